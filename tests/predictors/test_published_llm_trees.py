"""The shipped trees for language models: bounds, what was not measured, the command line."""

from __future__ import annotations

import pytest

from perfpass.predictors.generation.predictor import batch_of


def test_the_shipped_trees_answer_with_bounds_and_say_what_was_not_measured():
    from perfpass.predictors.published.llm_trees import LlmTreesPredictor

    predictor = LlmTreesPredictor.load()
    sizes = {"batch": 16, "input_tokens": 512, "output_tokens": 512}
    known, support = predictor.predict(batch_of("llama-2-7b", "h100", **sizes))
    assert support.level == "in range" and known.low < known.median < known.high
    unseen, support = predictor.predict(batch_of("qwen3-8b", "l40s", **sizes))
    assert support.level == "outside" and len(support.reasons) == 2
    assert unseen.high / unseen.median > known.high / known.median


def test_lengths_and_sizes_that_no_record_has_are_outside_and_bounded_by_what_was_measured():
    from dataclasses import replace

    from perfpass.predictors.generation.predictor import GenerationPredictor, batch_of
    from perfpass.predictors.published.llm_trees import LlmTreesPredictor

    long = batch_of("llama-2-7b", "h100", runtime="vllm", batch=16, input_tokens=1024, output_tokens=1024)
    short = replace(long, input_tokens=128, output_tokens=128)
    trees = LlmTreesPredictor.load()
    for uneven in (replace(long, output_tokens=128), replace(long, input_tokens=128)):
        found, support = trees.predict(uneven)
        assert support.level == "outside" and "prompts as long as their answers" in " ".join(support.reasons)
        assert found.low < trees.predict(short)[0].median and found.high > trees.predict(long)[0].median
        ours = GenerationPredictor.load()
        found = ours.predict(uneven)
        assert found.support.level == "outside"
        equal = ours.predict(replace(uneven, input_tokens=uneven.output_tokens)).latency_s
        # What a longer prompt adds is counted; a longer answer may take as long as one that its prompt is as long as.
        assert equal.median < found.latency_s.high
        assert found.latency_s.low < equal.median or uneven.input_tokens > uneven.output_tokens
    for beyond in ({"batch": 512}, {"precision": "fp8"}, {"input_tokens": 16, "output_tokens": 16}):
        found, support = trees.predict(replace(long, **beyond))
        assert support.level == "outside" and found.high / found.low > 1.5


OFFLINE = ["--input-length", "512", "--output-length", "512", "--concurrency", "16"]


def test_the_command_line_answers_a_batch_by_trees_and_says_what_they_do_not_know(capsys, examples):
    import json

    from perfpass.cli import main

    trees = ["llm", "llama-2-7b", "--device", "h100", "--predictor", "llm-trees", *OFFLINE]
    assert main([*trees, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["provenance"]["predictor"] == "llm-trees" and found["support"]["level"] == "in range"
    latency, rate = found["latency_s"]["median"], found["output_tokens_per_s"]["median"]
    assert rate == pytest.approx(16 * 512 / latency)
    assert main(trees) == 0
    assert "the whole batch" in capsys.readouterr().out
    refused = {
        "leave out --pp": [*trees, "--pp", "2"],
        "leave out a cost option": [*trees, "--region", "FR"],
        "answers operator graphs": [*trees[:5], "dippm", *OFFLINE],
        "allowed are perfpass, dippm, trappm, llm-trees": [*trees[:5], "weather", *OFFLINE],
        "does not fit": ["llm", "llama-2-70b", *trees[2:], "--tp", "1"],
        "perfpass llm MODEL --predictor llm-trees": [
            *("predict", str(examples / "resnet50.onnx"), "--device", "a100", "--predictor", "llm-trees")
        ],
    }
    for message, arguments in refused.items():
        assert main(arguments) != 0
        assert message in capsys.readouterr().err
