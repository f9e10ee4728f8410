"""The graph + language model without training: texts, tokens, bases that cannot be trusted, and what ships."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from perfpass import load as load_graph
from perfpass.errors import ArgumentError, FileError, FormatError, UnsupportedError
from perfpass.features import extract
from perfpass.importers import torchvision_schemas
from perfpass.predictors.learned import artefacts
from perfpass.predictors.published import graph_text
from perfpass.predictors.published.graph_classes import partition
from perfpass.predictors.published.graph_language import (
    ROUNDS,
    node_columns,
)

torchvision_schemas.define()


@given(st.floats(np.log(1.1e-3), np.log(9.9e11)))
@settings(max_examples=60)
def test_a_value_in_words_says_three_digits_and_a_power(value):
    from perfpass.training.published.graph_language.model import answer_text

    letter, digits = answer_text(value).split(" ")
    assert digits == f"{np.exp(value):.2e}".partition("e")[0].replace(".", "")
    assert answer_text(value + np.log(10.0)).split(" ")[0] == chr(ord(letter) + 1)


def test_the_numpy_llama_is_that_of_transformers():
    import transformers

    from perfpass.predictors.published.small_llama import Shape, last_hidden

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=48, num_hidden_layers=3, num_attention_heads=4, intermediate_size=80, vocab_size=10
    )
    model = transformers.LlamaModel(config).eval()
    given_tokens = torch.randn(2, 17, 48)
    with torch.no_grad():
        expected = model(inputs_embeds=given_tokens).last_hidden_state[:, -1].numpy()
    weights = {n: v.numpy() for n, v in model.state_dict().items()}
    found = last_hidden(Shape(48, 3, 4, 80), weights, given_tokens.numpy())
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-4)


def test_texts_name_what_the_graph_holds(examples):
    graph = load_graph(examples / "resnet50.onnx")
    features = extract(graph)
    text = graph_text.summary(graph, features.statics[:10])
    assert "53 conv" in text and "4.1g macs" in text and "26m parameters" in text
    divided = partition(features.nodes[:, node_columns()], features.edge_index, ROUNDS)
    content = json.loads(graph_text.structure(graph, divided.member, features.edge_index))
    assert sum(count for _, count, _ in content["operators"]) == graph.node_count
    assert all(0 <= a < len(content["operators"]) for edge in content["edges"] for a in edge)


def test_a_base_that_cannot_be_trusted_or_read_is_one_clear_error(tmp_path):
    from perfpass.predictors.published import language_model as base

    with pytest.raises(FileError, match=r"no config\.json"):
        base.load(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(FormatError, match="not JSON"):
        base.load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "auto_map": {"AutoModel": "x.Y"}}))
    with pytest.raises(UnsupportedError, match="never run"):
        base.load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80")
    with pytest.raises(UnsupportedError, match="may hold a pickle"):
        base.load(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\x00" * 64)
    with pytest.raises(UnsupportedError, match="cannot load"):
        base.load(tmp_path)
    with pytest.raises(ArgumentError, match="at least 1"):
        base.with_lora(None, 0)


def test_what_ships_answers_inference_and_leaves_the_rest_to_ours(examples):
    import perfpass

    resnet = load_graph(examples / "resnet50.onnx", batch=64)
    how = {"batch": 64, "precision": "amp", "layout": "nhwc"}
    ours = perfpass.predict(resnet, "rtx-4090", **how)
    found = perfpass.predict(resnet, "rtx-4090", predictor="graph-language", **how)
    assert ours.latency_ms.median / 4 < found.latency_ms.median < ours.latency_ms.median * 4
    assert found.peak_memory_bytes == ours.peak_memory_bytes and found.power_w == ours.power_w
    assert found.throughput_per_s.median == pytest.approx(64e3 / found.latency_ms.median)
    assert found.provenance["predictor"] == "graph-language"
    assert any("not said by graph-language but by perfpass" in reason for reason in found.support.reasons)
    unseen = perfpass.predict(resnet, "h100-sxm5-80gb", predictor="graph-language", **how)
    assert unseen.support.level == "outside"
    assert unseen.latency_ms.high / unseen.latency_ms.low > found.latency_ms.high / found.latency_ms.low
    with pytest.raises(UnsupportedError, match="latency of inference"):
        perfpass.predict(resnet, "rtx-4090", mode="training", predictor="graph-language")


def test_what_ships_is_small_and_needs_no_torch_to_predict(examples):
    assert sum(path.stat().st_size for path in artefacts.shipped("graph-language").iterdir()) < 1.5e6
    program = (
        "import sys, perfpass; "
        f"perfpass.predict({str(examples / 'resnet50.onnx')!r}, 'rtx-4090', predictor='graph-language'); "
        "print(sorted({'torch', 'transformers', 'peft', 'tokenizers'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
