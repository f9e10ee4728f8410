"""`perfpass.fit`: the decision is that of the count, its changes make it fit, and its limits are the last that do."""

from __future__ import annotations

import json
import runpy
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfpass
from perfpass.decision import answer_of, percent
from perfpass.deploy.fit import Load, Settings, Subject, need, shown_in_use
from perfpass.deploy.fit.subject import placed
from perfpass.devices import device
from perfpass.errors import ArgumentError, DeviceError, FileError, FormatError, UnsupportedError
from perfpass.llm import language_model
from perfpass.llm.in_use import chance
from perfpass.prediction import Interval

ROOT = Path(__file__).resolve().parents[2]
RUNTIMES = ("vllm", "sglang", "trtllm", "llama.cpp", "transformers")


def counted(name, on, context=8192, sequences=1, **how):
    return need(Subject(name, language_model(name)), device(on), Settings(**how), Load(context, sequences))


# ---- The decision


def test_what_is_known_to_fit_fits_and_what_cannot_does_not():
    for model, board, options, answer in (
        ("llama-3.1-8b", "h100", {}, "yes"),
        ("llama-3.1-8b", "rtx-4090", {}, "yes"),
        ("llama-3.1-70b", "h100", {}, "no"),
        ("llama-3.1-70b", "h100", {"tp": 4}, "yes"),
        ("deepseek-v3", "h200", {"tp": 8}, "yes"),
        ("deepseek-v3", "h100", {"tp": 8}, "no"),
        ("mixtral-8x7b", "rtx-4090", {"runtime": "llama.cpp", "precision": "q4_k_m"}, "no"),
        ("mixtral-8x7b", "rtx-4090", {"runtime": "llama.cpp", "precision": "q4_k_m", "host_experts": 12}, "yes"),
        ("llama-3.1-8b", "t4", {"runtime": "llama.cpp", "precision": "q8_0"}, "yes"),
        ("llama-2-7b", "rtx-4090", {"runtime": "transformers", "context": 4096}, "yes"),
    ):
        assert perfpass.fit(model, board, **options).answer == answer, (model, board, options)


def test_between_yes_and_no_it_cannot_be_said():
    assert [answer_of(p, 0.9) for p in (0.95, 0.9, 0.5, 0.11, 0.09, 0.0)] == [
        "yes",
        "yes",
        *["cannot say"] * 2,
        "no",
        "no",
    ]
    found = perfpass.fit("llama-3.1-8b", "rtx-4090", context=32000)
    assert (found.answer, found.exit_status) == ("cannot say", 2)
    assert 0.1 < found.probability < 0.9 and "may or may not fit" in found.headline
    assert found.answers[0].reason.startswith("20.58 GiB are likely, but up to")
    sure = perfpass.fit("llama-3.1-8b", "rtx-4090", context=32000, confidence=0.6)
    assert sure.answer == "yes"


@pytest.mark.parametrize("device", ["t4", "v100-sxm2-16gb", "a10", "mi100", "rtx-4090"])
def test_a_format_that_is_advised_is_one_that_the_device_computes_in(device):
    found = perfpass.fit("llama-3.1-8b" if device in ("t4", "v100-sxm2-16gb") else "llama-2-13b", device)
    names = [c.options["precision"] for c in found.answers[0].changes if c.kind == "quantization"]
    assert names or found.answer == "yes"
    assert not (device in ("t4", "v100-sxm2-16gb", "mi100") and "fp8" in names)
    for name in (name for name in names if name in perfpass.llm.costs.PRECISIONS):
        perfpass.predict_llm(found.model, device, concurrency=1, precision=name)


def test_several_devices_are_all_to_hold_it_and_none_asked_are_the_smallest():
    both = perfpass.fit("llama-3.1-8b", ["l4", "t4"])
    assert [one.answer for one in both.answers] == ["yes", "no"] and both.exit_status == 1
    assert "fits on 1 of 2 devices: l4" in both.headline
    assert perfpass.fit("llama-3.1-70b", ["l4", "t4"]).headline == "llama-3.1-70b fits on none of 2 devices"
    free = perfpass.fit("llama-3.1-70b")
    sizes = [one.memory_bytes for one in free.answers]
    assert free.exit_status == 0 and sizes == sorted(sizes) and len(sizes) == 3
    assert perfpass.fit("llama-3.1-405b").exit_status == 1


@pytest.mark.parametrize("runtime", RUNTIMES)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_more_context_or_sequences_never_fit_better(runtime, data):
    context, more = data.draw(st.integers(256, 100_000)), data.draw(st.integers(1, 100_000))
    sequences = data.draw(st.integers(1, 64))
    model = data.draw(st.sampled_from(["llama-3.1-8b", "gemma-3-27b", "deepseek-v3", "qwen3.5-35b-a3b", "mamba-2.8b"]))
    one = counted(model, "h100", context, sequences, runtime=runtime)
    assert counted(model, "h100", context + more, sequences, runtime=runtime).probability <= one.probability + 1e-12
    assert counted(model, "h100", context, sequences + 1, runtime=runtime).probability <= one.probability + 1e-12
    assert one.needed.low <= one.needed.median <= one.needed.high
    assert counted(model, "h200", context, sequences, runtime=runtime).probability >= one.probability - 1e-12


# ---- Each runtime's own accounting


def test_a_wider_interval_has_no_more_probability_beyond_its_bounds():
    narrow, wide = Interval(100e9, 90e9, 110e9, "byte"), Interval(140e9, 91e9, 189e9, "byte")
    limits = [10e9, 50e9, 80e9, 90e9, 91e9, 95e9, 110e9, 120e9, 189e9, 300e9]
    told = [[chance(one, at) for at in limits] for one in (narrow, wide)]
    assert told[0] == sorted(told[0]) and told[1] == sorted(told[1])
    assert all(b <= a for a, b in zip(*told, strict=True))
    assert wide.probability_fits(50e9) > narrow.probability_fits(50e9), "by their widths they would"
    least = Interval(100e9, 100e9, 110e9, "byte")  # as weights whose size is known
    assert chance(least, 100e9) == 0.5 and chance(least, 99e9) < 0.05


def test_a_share_below_weights_of_a_known_size_hardly_fits():
    """SGLang leaves itself 0.829 of two H100: 66.3 GiB on each, and weights and one sequence take 67 at least."""
    found = perfpass.fit("llama-3.1-70b", "h100", tp=2, runtime="sglang")
    assert found.probability < 0.02 and found.answers[0].needed.low > 66.9 * 2**30
    assert any("--mem-fraction-static" in change.text for change in found.answers[0].changes)


def test_servers_fill_a_share_that_can_be_set():
    usual = counted("llama-3.1-8b", "l4", runtime="vllm")
    assert usual.limit_bytes == 0.92 * device("l4").usable_bytes  # vLLM's default since 0.21
    before = counted("llama-3.1-8b", "l4", runtime="vllm", runtime_version="0.20.1")
    assert before.limit_bytes == 0.9 * device("l4").usable_bytes
    assert counted("llama-3.1-8b", "l4", runtime="vllm", utilization=0.5).probability < 0.01
    whole = device("l4").usable_bytes
    static = counted("llama-3.1-8b", "l4", runtime="sglang", utilization=0.5)
    assert static.limit_bytes == 0.5 * whole and static.binding == "mem_fraction_static 0.5"
    free = [counted("llama-3.1-8b", "l4", runtime="trtllm", utilization=share).needed.median for share in (0.9, 0.45)]
    each = counted("llama-3.1-8b", "l4", runtime="trtllm").cache_bytes
    assert free[1] - free[0] == pytest.approx(each / 0.45 - each / 0.9)
    shown, basis = shown_in_use(
        Subject("llama-3.1-8b", language_model("llama-3.1-8b")),
        device("l4"),
        Settings(utilization=0.85),
        Load(8192),
        usual,
    )
    assert shown.median == 0.85 * whole and basis == "documented settings"


def test_vllm_leaves_what_is_offloaded_on_the_host():
    usual, less = (counted("llama-3.1-8b", "t4", offload_gib=g) for g in (0.0, 4.0))
    assert usual.weights - less.weights == 4 * 2**30 and less.host_bytes == 4 * 2**30


def test_llama_cpp_hands_out_whole_layers_and_the_head_last():
    how = {"runtime": "llama.cpp", "precision": "q4_k_m"}
    whole = counted("llama-3.1-8b", "rtx-4090", **how)
    layers = [counted("llama-3.1-8b", "rtx-4090", gpu_layers=n, **how) for n in (0, 16, 32, 33)]
    assert layers[0].weights == layers[0].cache_bytes == layers[0].needed.median == 0
    assert 2 * layers[1].weights == pytest.approx(layers[2].weights) and layers[3].weights == whole.weights
    assert 2 * layers[1].cache_bytes == layers[2].cache_bytes == whole.cache_bytes
    assert layers[1].host_bytes > layers[2].host_bytes > layers[3].host_bytes > 0, "the input table stays"
    aside = counted("llama-3.1-8b", "rtx-4090", cache_on_host=True, **how)
    assert aside.cache_bytes == 0 and aside.host_bytes == pytest.approx(whole.host_bytes + whole.cache_bytes)


def test_experts_that_stay_on_the_host_are_those_of_the_first_layers():
    how = {"runtime": "llama.cpp", "precision": "q4_k_m"}
    steps = [counted("deepseek-v3", "h200", host_experts=n, **how).weights for n in (0, 3, 4, 61)]
    assert steps[0] == steps[1] > steps[2] > steps[3], "the first three layers of DeepSeek-V3 are dense"
    assert steps[1] - steps[2] == pytest.approx((steps[1] - steps[3]) / 58)


def test_a_name_that_says_how_weights_are_packed_is_counted_so():
    named = counted("Qwen/Qwen3-32B-AWQ", "l40s")
    assert named.weights == counted("qwen3-32b", "l40s", precision="awq").weights


def test_formats_take_what_their_blocks_do():
    model = language_model("llama-3.1-8b")
    matrices = sum(n * (x.attention.matrices(4096) + 3 * 4096 * x.dense.width) for n, x in model.layers)
    rest = 2 * (model.parameters - matrices)
    for name, each in (("nf4", 0.5 + 4 / 64), ("nf4_double", 0.5 + 1 / 64 + 4 / 16384), ("awq", 0.5 + 2.5 / 128)):
        assert counted("llama-3.1-8b", "h100", precision=name).weights == pytest.approx(matrices * each + rest), name


def test_a_checkpoint_in_fp32_is_served_in_16_bits():
    content = {"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8}
    content |= {"intermediate_size": 1376, "vocab_size": 32000}
    from dataclasses import replace

    model = replace(language_model(content), stored_as="fp32", experts_stored_as="fp32")
    sizes = {
        runtime: need(Subject("m", model), device("l4"), Settings(runtime), Load(64)).weights
        for runtime in ("vllm", "transformers")
    }
    assert sizes["transformers"] == 2 * sizes["vllm"] == 4 * model.parameters


# ---- What still fits, and what would


@pytest.mark.parametrize(
    ("model", "board", "options"),
    [
        ("llama-3.1-8b", "l4", {}),
        ("gpt-oss-20b", "rtx-4090", {"concurrency": 8}),
        ("llama-3.1-8b", "rtx-4090", {"runtime": "llama.cpp", "precision": "q8_0"}),
        ("mistral-7b", "l4", {"runtime": "transformers"}),
    ],
)
def test_the_largest_still_fit_and_one_more_does_not(model, board, options):
    found = perfpass.fit(model, board, **options)
    most = found.answers[0].largest
    rest = {k: v for k, v in options.items() if k not in ("concurrency", "context")}
    assert perfpass.fit(model, board, concurrency=most.concurrency, **rest).answer == "yes"
    assert perfpass.fit(model, board, concurrency=most.concurrency + 1, **rest).answer != "yes"
    assert perfpass.fit(model, board, **{**options, "context": most.context}).answer == "yes"
    if most.context < language_model(model).max_positions:
        assert perfpass.fit(model, board, **{**options, "context": most.context + 512}).answer != "yes"


@pytest.mark.parametrize(
    ("model", "board", "options"),
    [
        ("llama-3.1-70b", "h100", {}),
        ("llama-3.1-405b", "h100", {}),
        ("mixtral-8x7b", "rtx-4090", {"runtime": "llama.cpp", "precision": "q4_k_m"}),
        ("gpt-oss-20b", "rtx-4090", {"concurrency": 64}),
        ("qwen3-32b", "a100-80gb:3g.40gb", {"runtime": "sglang"}),
        ("llama-3.1-8b", "t4", {"runtime": "transformers"}),
    ],
)
def test_every_change_makes_it_fit(model, board, options):
    found = perfpass.fit(model, board, **options).answers[0]
    assert found.answer != "yes" and found.changes
    for change in found.changes:
        changed = {"device": board, **options, **change.options}
        again = perfpass.fit(model, changed.pop("device"), **changed)
        assert again.answer == "yes", change
        assert again.probability == pytest.approx(change.probability), change


def test_a_slice_is_offered_a_larger_one_first():
    changes = perfpass.fit("llama-3.1-8b", "a100-80gb:1g.10gb").answers[0].changes
    devices = [change.options["device"] for change in changes if change.kind == "device"]
    assert devices[0] == "a100-sxm4-80gb:3g.40gb"


# ---- Headers


def header(tensors, path):
    listed, at = {}, 0
    for name, shape, kind in tensors:
        size = {"F32": 4, "BF16": 2, "I32": 4}[kind]
        for one in shape:
            size *= one
        listed[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(listed).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text)
    return at


LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 100,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}


def tensors_of_llama(kind="BF16"):
    found = [("model.embed_tokens.weight", (100, 64)), ("lm_head.weight", (100, 64)), ("model.norm.weight", (64,))]
    for i in range(2):
        shapes = {"q_proj": (64, 64), "k_proj": (32, 64), "v_proj": (32, 64), "o_proj": (64, 64)}
        shapes |= {"gate_proj": (128, 64), "up_proj": (128, 64), "down_proj": (64, 128)}
        found += [(f"model.layers.{i}.{name}.weight", shape) for name, shape in shapes.items()]
        found += [(f"model.layers.{i}.{name}.weight", (64,)) for name in ("input_norm", "post_norm")]
    return [(name, shape, kind) for name, shape in found]


def test_weights_are_those_of_the_header(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    total = header(tensors_of_llama(), tmp_path / "model.safetensors")
    found = perfpass.fit(str(tmp_path / "model.safetensors"), "t4")
    assert found.answers[0].parts["weights"] == total == 2 * found.parameters
    assert found.weights_basis == "the headers of its files"
    assert perfpass.fit(str(tmp_path), "t4").answers[0].parts["weights"] == total
    # What a header has beside the language model stays as it is where the rest is packed.
    tower = [("vision.block.weight", (1000, 1000), "BF16")]
    header([*tensors_of_llama(), *tower], tmp_path / "model.safetensors")
    wide, narrow = (perfpass.fit(str(tmp_path), "t4", precision=p).answers[0].parts["weights"] for p in (None, "awq"))
    assert wide == total + 2_000_000 and 2_000_000 < narrow < total + 2_000_000
    header(tensors_of_llama("F32"), tmp_path / "model.safetensors")
    assert perfpass.fit(str(tmp_path), "t4").answers[0].parts["weights"] == total
    assert perfpass.fit(str(tmp_path), "t4", runtime="transformers").answers[0].parts["weights"] == 2 * total


def test_weights_without_a_configuration_can_only_be_refused(tmp_path):
    header([("a.weight", (1 << 17, 1 << 17), "BF16")], tmp_path / "model.safetensors")
    found = perfpass.fit(str(tmp_path / "model.safetensors"), ["t4", "h100"])
    assert [one.answer for one in found.answers] == ["no", "cannot say"]
    assert "config.json" in found.notes[0] and found.exit_status == 1


def test_bytes_are_told_apart_by_the_names_of_llama_cpp_and_transformers():
    listed = [("token_embd.weight", 10), ("output.weight", 20), ("output_norm.weight", 1), ("blk.0.attn_q.weight", 100)]
    listed += [("blk.1.ffn_up_exps.weight", 1000), ("blk.1.attn_q.weight", 100)]
    at = placed(listed)
    assert (at.layers, at.experts, at.table, at.head, at.rest) == ((100, 1100), (0, 1000), 10, 20, 1)
    assert at.total == sum(size for _, size in listed)
    own = placed([("model.embed_tokens.weight", 7), ("model.layers.3.mlp.experts.0.up_proj.weight", 5)])
    assert (own.table, own.experts, own.layers) == (7, (5,), (5,))


def test_a_gguf_files_layers_are_split_by_their_own_bytes(tmp_path):
    tests = runpy.run_path(str(ROOT / "tests" / "importers" / "test_gguf.py"))
    path = tmp_path / "tiny.gguf"
    path.write_bytes(tests["packed"]())
    listed = dict(tests["gguf"].read(path).tensors)
    half = perfpass.fit(str(path), "t4", gpu_layers=1)
    assert half.runtime == "llama.cpp" and half.settings["precision"] == "q8_0"
    last = sum(size for name, size in listed.items() if name.startswith("blk.1."))
    assert half.answers[0].parts["weights"] == last
    assert half.answers[0].host_bytes == pytest.approx(sum(listed.values()) - last + half.answers[0].parts["cache"])


def test_layouts_are_those_that_transformers_builds():
    study = runpy.run_path(str(ROOT / "benchmarks" / "model_layouts.py"))
    for name in (
        "openai-community/openai-gpt",
        "qwen3-0.6b",
        "google/gemma-2b",
        "facebook/opt-350m",
        "EleutherAI/gpt-neo-125m",
    ):
        found = study["compared"](language_name(name))
        assert found["equal"], found


def language_name(name):
    from perfpass.importers.configuration_names import known

    return known().get(name.lower(), name)


# ---- Other networks


def test_a_network_is_asked_as_predict_answers_it():
    found = perfpass.fit(str(ROOT / "examples" / "resnet50.onnx"), "l4", batch=64)
    one = found.answers[0]
    memory = perfpass.predict(str(ROOT / "examples" / "resnet50.onnx"), "l4", batch=64).memory
    assert one.needed == memory.in_use and one.probability == memory.probability_fits(device("l4").usable_bytes)
    assert found.kind == "network" and found.load == {"batch": 64}
    most = one.largest.batch
    assert perfpass.fit(str(ROOT / "examples" / "resnet50.onnx"), "l4", batch=most).answer == "yes"
    assert perfpass.fit(str(ROOT / "examples" / "resnet50.onnx"), "l4", batch=most * 11 // 10).answer != "yes"


def test_a_network_that_does_not_fit_is_told_a_batch_a_precision_and_a_slice():
    found = perfpass.fit(str(ROOT / "examples" / "resnet50.onnx"), "a100:1g.5gb", batch=512).answers[0]
    assert found.answer == "no"
    assert [change.kind for change in found.changes][:3] == ["load", "quantization", "device"]
    for change in found.changes:
        asked = {"device": "a100:1g.5gb", "batch": 512, **change.options}
        assert perfpass.fit(str(ROOT / "examples" / "resnet50.onnx"), **asked).answer == "yes", change


@pytest.mark.parametrize(
    ("model", "how"),
    [
        ("llama-3.1-70b", {}),
        ("llama-3.1-8b", {"runtime": "trtllm", "context": 32768}),
        (str(ROOT / "examples" / "resnet50.onnx"), {"batch": 2048}),
    ],
)
def test_without_a_device_boards_that_hold_it_are_named_the_cheapest_and_what_would_do_below(model, how):
    found = perfpass.fit(model, **how)
    assert found.answer == "yes" and found.exit_status == 0 and found.boards and found.below is not None
    held = {one.device: one for one in found.boards}
    assert {one.device for one in found.answers} <= set(held)
    asked = perfpass.fit(model, list(held), **how)
    assert asked.answer == "yes"
    assert [one.probability for one in asked.answers] == pytest.approx([one.probability for one in held.values()])
    if how.get("runtime") == "trtllm":
        assert {device(name).vendor for name in held} == {"NVIDIA"}
    priced = {name: one.usd_per_hour for name, one in held.items() if one.usd_per_hour is not None}
    assert found.cheapest.usd_per_hour == min(priced.values()) and f"the cheapest is {found.cheapest.device}" in str(
        found
    )
    # What is below does not hold it, and each change told there does.
    assert found.below.answer != "yes" and found.below.memory_bytes < min(one.memory_bytes for one in found.answers)
    assert perfpass.fit(model, found.below.device, **how).answers[0] == found.below
    for change in found.below.changes:
        assert perfpass.fit(model, **{"device": found.below.device, **how, **change.options}).answer == "yes", change
    assert found.to_dict()["cheapest"]["device"] == found.cheapest.device


def test_what_no_board_holds_is_told_what_the_largest_would_take():
    found = perfpass.fit("deepseek-v3")
    assert found.exit_status == 1 and not found.boards and not found.answers
    assert found.below.memory_bytes >= 250e9 and found.below.changes and "would fit" in str(found)


def test_a_batch_that_is_not_free_is_not_invented():
    graph = perfpass.load(str(ROOT / "examples" / "resnet50.onnx"), batch=8)
    assert perfpass.fit(graph, "l4").answers[0].largest.batch == 8


# ---- What is said


def test_the_answer_is_strict_json_and_a_table():
    found = perfpass.fit("gemma-3-27b", "rtx-4090")
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False)) == found.to_dict()
    text = str(found)
    assert text.startswith("gemma-3-27b does not fit on rtx-4090 with vLLM: P(fits) ")
    assert "would fit" in text and "keys and values in windows" in text and max(map(len, text.split("\n")[1:])) <= 100


def test_bad_questions_are_one_clear_error(tmp_path):
    for kind, said, arguments in (
        (FileError, "neither a file nor a known model", ("no-such-model", "l4", {})),
        (FileError, "no such file", ("no-such.safetensors", "l4", {})),
        (DeviceError, "unknown device", ("llama-3.1-8b", "h9000", {})),
        (ArgumentError, "context must be a whole number from 1", ("llama-3.1-8b", "l4", {"context": 0})),
        (ArgumentError, "concurrency must be a whole number from 1", ("llama-3.1-8b", "l4", {"concurrency": 0})),
        (ArgumentError, "confidence must be above 0.5", ("llama-3.1-8b", "l4", {"confidence": 1.0})),
        (ArgumentError, "utilization is a share", ("llama-3.1-8b", "l4", {"utilization": float("nan")})),
        (ArgumentError, "unknown runtime 'vlm'; did you mean vllm", ("llama-3.1-8b", "l4", {"runtime": "vlm"})),
        (ArgumentError, "unknown cache type of vllm 'q8_0'", ("llama-3.1-8b", "l4", {"kv_cache": "q8_0"})),
        (ArgumentError, "gpu_layers is llama.cpp's", ("llama-3.1-8b", "l4", {"gpu_layers": 4})),
        (ArgumentError, "has no experts to leave", ("llama-3.1-8b", "l4", {"runtime": "llama.cpp", "host_experts": 3})),
        (ArgumentError, "offload_gib is vLLM's", ("llama-3.1-8b", "l4", {"offload_gib": 4, "runtime": "sglang"})),
        (ArgumentError, "32 attention heads do not divide into 3", ("llama-3.1-8b", "l4", {"tp": 3})),
        (ArgumentError, "batch has no meaning here", ("llama-3.1-8b", "l4", {"batch": 3})),
        (ArgumentError, "context has no meaning here", (str(ROOT / "examples/resnet50.onnx"), "l4", {"context": 9})),
        (UnsupportedError, "perfpass predict", ({"model_type": "bert"}, "l4", {})),
        (ArgumentError, "is counted on GPUs", ("llama-3.1-8b", "cpu", {})),
        (DeviceError, "TensorRT-LLM runs on NVIDIA GPUs only", ("llama-3.1-8b", "mi300x", {"runtime": "trtllm"})),
    ):
        model, board, options = arguments
        with pytest.raises(kind, match=said):
            perfpass.fit(model, board, **options)
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "quantization_config": {"quant_method": "magic"}}))
    with pytest.raises(UnsupportedError, match="quant_method 'magic' is not counted here"):
        perfpass.fit(str(tmp_path), "l4")
    (tmp_path / "config.json").unlink()
    header([], tmp_path / "model.safetensors")
    with pytest.raises(FormatError, match="lists no tensor"):
        perfpass.fit(str(tmp_path / "model.safetensors"), "l4")


def test_the_command_exits_with_the_decision(capsys):
    from perfpass.cli import main

    assert [main(["fit", "llama-3.1-8b", "--device", board]) for board in ("l4", "t4")] == [0, 1]
    assert main(["fit", "llama-3.1-8b", "--device", "l4", "--context", "24000"]) == 2
    capsys.readouterr()
    assert main(["fit", "llama-3.1-8b", "--device", "l4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["answer"] == "yes"
    assert main(["fit", "llama-3.1-8b", "--device", "nonsense"]) == 9
    assert capsys.readouterr().out == ""


def test_the_command_takes_several_devices_with_commas_and_devices_of_a_file(tmp_path, capsys):
    from perfpass.cli import main

    card = tmp_path / "card.toml"
    card.write_text(
        '[[device]]\nid = "my-card"\nname = "My card"\nkind = "gpu"\nvendor = "NVIDIA"\narchitecture = "ada"\n'
        "memory_gib = 16\nbandwidth_gb_s = 600\nsm_count = 60\npower_limit_w = 200\n"
        "[device.peak_tflops]\nfp32 = 20\nfp16 = 80\nbf16 = 80\n"
    )
    asked = ["fit", "llama-3.1-8b", "--precision", "fp16", "--context", "1024"]
    assert main([*asked, "--device", "rtx-4090,my-card", "--device", "a10", "--device-file", str(card), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [one["device"] for one in found["answers"]] == ["rtx-4090", "my-card", "a10"]
    assert [one["answer"] for one in found["answers"]][::2] == ["yes", "yes"]


def test_training_of_a_language_model_is_sent_where_it_is_answered(capsys):
    with pytest.raises(ArgumentError, match=r"predict gpt2 --mode training.*train-cost"):
        perfpass.fit("gpt2", "rtx-4090", mode="training")


def test_no_more_is_shown_in_use_than_the_device_has_and_one_sequence_is_counted_as_one():
    found = perfpass.fit("llama-3.1-8b", "rtx-4090", runtime="transformers", concurrency=8)
    (one,) = found.answers
    assert one.in_use.high <= one.memory_bytes
    alone = counted("llama-3.1-8b", "rtx-4090", runtime="transformers")
    many = counted("llama-3.1-8b", "rtx-4090", sequences=8, runtime="transformers")
    for bound in ("low", "median", "high"):
        assert getattr(many.least, bound) == pytest.approx(getattr(alone.needed, bound))
    # 8 GiB of cache are not "over 24 GiB": all of it together is.
    assert one.reason.startswith(
        "one sequence would do with 18.14 GiB, but all of them, with 8 GiB of cache, need 30.83"
    )


def test_the_least_that_is_offloaded_is_told():
    (change,) = (c for c in perfpass.fit("mistral-7b", "rtx-3060-8gb").answers[0].changes if c.kind == "offload")
    gib = change.options["offload_gib"]
    assert counted("mistral-7b", "rtx-3060-8gb", offload_gib=gib).probability >= 0.9
    assert counted("mistral-7b", "rtx-3060-8gb", offload_gib=gib - 1).probability < 0.9


def test_of_boards_with_the_same_memory_those_with_bfloat16_are_offered():
    found = perfpass.fit("llama-3.1-8b", "rtx-3060").answers[0].changes
    offered = [c.options["device"] for c in found if c.kind == "device"]
    assert "bf16" in device(next(name for name in offered if device(name).memory_bytes >> 30 == 32)).peak_flops


def test_fewer_requests_at_most_are_offered_where_vllms_sampler_is_what_does_not_fit():
    of = {"context": 32768, "runtime_version": "0.11"}
    usual = perfpass.fit("gpt-oss-120b", "h100", **of)
    change = next(c for c in usual.answers[0].changes if "max_sequences" in c.options)
    assert usual.answer == "cannot say" and change.text == "--max-num-seqs 64"  # vLLM's own error asks for it (#27508)
    told = perfpass.fit("gpt-oss-120b", "h100", **of, **change.options)
    assert told.answer == "yes" and told.answers[0].probability == change.probability
    few = perfpass.fit("gpt-oss-120b", "h100", max_sequences=2, concurrency=2).answers[0]
    assert few.largest.concurrency == 2, "no more run at once, though there is room"
    with pytest.raises(ArgumentError, match="concurrency is 64, of which vLLM runs 16 at once"):
        perfpass.fit("gpt-oss-120b", "h100", max_sequences=16, concurrency=64)
    with pytest.raises(ArgumentError, match="max_sequences is vLLM's --max-num-seqs"):
        perfpass.fit("gpt-oss-120b", "h100", runtime="sglang", max_sequences=64)


def test_a_server_is_counted_by_its_newest_defaults_and_the_answer_says_so():
    newest, old = (perfpass.fit("gpt-oss-120b", "h100", runtime_version=v) for v in (None, "0.16.0"))
    assert newest.probability > 0.9 > old.probability
    assert newest.settings["runtime_version"] == "0.21 or newer" and "runtime_version" in newest.assumed
    assert old.settings["runtime_version"] == "0.16.0" and "runtime_version" not in old.assumed
    assert "runtime_version" not in perfpass.fit("gpt-oss-120b", "h100", runtime="trtllm").settings
    with pytest.raises(ArgumentError, match="runtime_version is asked of vLLM and SGLang"):
        perfpass.fit("llama-3.1-8b", "h100", runtime="llama.cpp", runtime_version="0.9")
    with pytest.raises(ArgumentError, match="runtime version 'latest' is none"):
        perfpass.fit("llama-3.1-8b", "h100", runtime_version="latest")


def test_several_devices_that_work_together_are_told_as_each():
    assert perfpass.fit("deepseek-v3", "h200", tp=8).headline.endswith("83.01 GiB of 129.7 GiB needed on each")


def test_of_an_apple_chip_metal_gives_a_part_and_more_where_it_is_told():
    from dataclasses import replace

    chip = device("apple-m3-max")
    counted_at = {gib: counted_on(replace(chip, memory_bytes=gib << 30)) for gib in (16, 32, 36, 64, 128)}
    assert {gib: need.limit_bytes / 2**30 for gib, need in counted_at.items()} == pytest.approx(
        {16: 10.67, 32: 21.33, 36: 27, 64: 48, 128: 96}, rel=1e-3
    )
    # 40 GiB of weights are over the 27 GiB of a chip with 36, and of one with 48 GiB they are only by default.
    assert [counted_on(replace(chip, memory_bytes=gib << 30), "llama-3.1-70b").answer(0.9) for gib in (36, 48, 64)] == [
        "no",
        "cannot say",
        "yes",
    ]
    found = perfpass.fit("llama-3.1-70b", "apple-m2-ultra", runtime="llama.cpp", precision="q4_k_m")
    assert found.answers[0].limit_bytes == 144 << 30
    assert any("192 GiB, the most it is sold with" in note and "iogpu.wired_limit_mb" in note for note in found.notes)


def test_of_an_apple_chip_a_batch_is_judged_by_the_same_part_of_its_memory():
    """`predict_offline` said that 40 GiB of weights fit into a chip of 48 GiB, of which Metal gives 36."""
    from dataclasses import replace

    chip = device("apple-m3-max")
    for gib, answer in ((36, "no"), (48, "perhaps"), (64, "yes")):
        here = replace(chip, memory_bytes=gib << 30)
        asked = counted_on(here, "llama-3.1-70b")
        options = {"runtime": "llama.cpp", "precision": "q4_k_m", "tp": 1, "input_length": 128}
        if answer == "no":
            with pytest.raises(ArgumentError, match="does not fit"):
                perfpass.predict_offline("llama-3.1-70b", here, **options)
            continue
        found = perfpass.predict_offline("llama-3.1-70b", here, **options).memory
        assert found.limit_bytes == asked.limit_bytes and found.answer == answer
        assert ("iogpu.wired_limit_mb" in found.reason) == (answer == "perhaps")


def test_experts_that_llama_cpp_leaves_in_mxfp4_are_told():
    own = perfpass.fit("gpt-oss-20b", "rtx-4090", runtime="llama.cpp")
    assert own.settings["precision"] == "q8_0" and any("experts stay in mxfp4" in note for note in own.notes)
    asked = perfpass.fit("llama-3.1-8b", "rtx-4090", runtime="llama.cpp", precision="q8_0")
    assert not any("experts" in note for note in asked.notes)


def test_of_an_amd_processors_gpu_linux_gives_half_and_more_where_it_is_told():
    """gpt-oss-120b with its longest context takes 64.4 GiB of a Strix Halo: it runs where ttm.pages_limit is raised."""
    options = {"runtime": "llama.cpp", "precision": "mxfp4"}
    short, long = (perfpass.fit("gpt-oss-120b", "strix-halo", context=n, **options) for n in (8192, 131072))
    assert short.answers[0].limit_bytes == device("strix-halo").usable_bytes / 2
    assert long.answer == "cannot say" and any("ttm.pages_limit" in note for note in long.notes)
    assert perfpass.fit("llama-3.1-405b", "strix-halo", **options | {"precision": "q4_k_m"}).answer == "no"
    whole = perfpass.fit("llama-3.1-8b", "mi300a", runtime="llama.cpp").answers[0]
    assert whole.limit_bytes > 0.99 * device("mi300a").usable_bytes  # stacked memory of its own


def counted_on(chip, name="llama-3.1-8b"):
    return need(Subject(name, language_model(name)), chip, Settings("llama.cpp", precision="q4_k_m"), Load(8192))


# ---- What a device cannot do


@pytest.mark.parametrize(
    ("model", "board", "precision"),
    [("llama-3.1-8b", "t4", "bf16"), ("llama-3.1-8b", "a100", "fp8"), ("llama-3.1-8b", "h100", "nvfp4")],
)
def test_a_precision_that_serving_refuses_is_refused_alike(model, board, precision):
    with pytest.raises(DeviceError) as counted_as:
        perfpass.fit(model, board, precision=precision)
    with pytest.raises(DeviceError) as served_as:
        perfpass.predict_llm(model, board, precision=precision)
    assert str(counted_as.value) == str(served_as.value) and "it can run" in str(served_as.value)


def test_what_is_stored_is_served_as_the_device_can_and_a_note_says_so():
    (note,) = perfpass.fit("llama-3.1-8b", "t4").notes
    assert note.endswith("served bf16 as fp16")
    assert not perfpass.fit("llama-3.1-8b", "l4").notes
    with pytest.raises(DeviceError, match="no fp8 arithmetic"):  # Marlin's kernels begin with Turing
        perfpass.fit("deepseek-v3", "v100-sxm2-32gb", tp=16)
    # Weights by their own blocks are unpacked to what the device has.
    for how in ({"precision": "awq"}, {"runtime": "llama.cpp", "precision": "q4_k_m"}):
        assert perfpass.fit("llama-3.1-8b", "t4", **how).answer == "yes"


def test_where_a_board_has_no_16_bits_what_is_counted_is_fp32_as_the_note_says():
    runtime = "transformers"  # servers have no kernels for such boards
    narrow = perfpass.fit("tinyllama-1.1b", "h100", runtime=runtime)
    wide = perfpass.fit("tinyllama-1.1b", "m40-24gb", runtime=runtime)
    assert any(note.endswith("served bf16 as fp32") for note in wide.notes)
    assert wide.settings["precision"] == wide.settings["kv_cache"] == "fp32"
    for name in ("weights", "cache", "activations"):
        assert wide.answers[0].parts[name] == pytest.approx(2 * narrow.answers[0].parts[name], rel=0.05), name
    asked = perfpass.fit("tinyllama-1.1b", "m40-24gb", runtime=runtime, precision="fp32")
    assert asked.answers[0].needed == wide.answers[0].needed


def test_products_in_int8_are_refused_where_there_is_no_int8():
    for precision in ("int8", "w8a8"):
        assert perfpass.fit("tinyllama-1.1b", "t4", precision=precision).answer == "yes"
        with pytest.raises(DeviceError, match=f"no int8 arithmetic, which precision '{precision}' needs"):
            perfpass.fit("tinyllama-1.1b", "p100-pcie-16gb", runtime="transformers", precision=precision)


def test_a_probability_is_not_rounded_to_a_whole_number_that_it_is_not():
    said = [percent(p) for p in (0.8997, 0.9, 0.98123, 0.1, 0.00234, 0.9995, 0.0, None)]
    assert said == ["89.97 %", "90 %", "98.1 %", "10 %", "0.234 %", "over 99.9 %", "under 0.1 %", "not known"]


def test_of_several_devices_each_precision_that_is_loaded_is_told():
    several = perfpass.fit("llama-3.1-8b", ["l4", "t4", "h100"]).settings
    assert several["precision"] == several["kv_cache"] == "bf16 and fp16"
    assert perfpass.fit("llama-3.1-8b", "t4").settings["kv_cache"] == "fp16"


def test_no_device_is_proposed_that_cannot_compute_what_is_asked():
    found = perfpass.fit("llama-3.1-405b", "h100", precision="fp8", tp=4)
    proposed = [device(one.options["device"]) for one in found.answers[0].changes if one.kind == "device"]
    assert proposed and all("fp8" in one.peak_flops for one in proposed)
    anywhere = perfpass.fit("llama-3.1-8b", precision="fp8")
    assert all("fp8" in device(one.device).peak_flops for one in (*anywhere.boards, anywhere.below))


def test_slices_do_not_work_together_and_chips_with_their_own_memory_are_not_proposed_to():
    for ask in (perfpass.fit, perfpass.predict_llm):
        with pytest.raises(
            ArgumentError,
            match=r"no link to others, as no instance of MIG has, .*; ask for one of it, or a100-sxm4-80gb",
        ):
            ask("llama-3.1-8b", "a100-80gb:3g.40gb", tp=2)
    for board in ("m2-max", "jetson-agx-orin"):
        assert not [one for one in perfpass.fit("llama-3.1-70b", board).answers[0].changes if one.kind == "split"]


@pytest.mark.parametrize("board", ["m2-max", "jetson-agx-orin", "gb10"])
def test_serving_may_fill_of_a_shared_memory_what_fit_says(board):
    served = perfpass.predict_llm("llama-3.1-8b", board)
    limit = perfpass.fit("llama-3.1-8b", board).answers[0].limit_bytes
    assert served.memory.usable_bytes == pytest.approx(limit, abs=1)
    assert served.memory.in_use.median == pytest.approx(limit, rel=1e-6)
