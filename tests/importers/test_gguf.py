"""A GGUF file's header is a configuration with exact bytes; what is damaged or hostile is refused in a moment."""

from __future__ import annotations

import math
import os
import struct

import pytest

import perfpass
from perfpass.errors import FileError, FormatError, LimitError, UnsupportedError
from perfpass.importers import gguf
from perfpass.importers.configuration_names import known
from perfpass.importers.gguf_architectures import REFUSED, TYPES
from perfpass.importers.gguf_types import BLOCKS
from perfpass.importers.model_sources import read_configuration
from perfpass.llm import Parallelism, Quantization, language_model, weight_bytes

Q8_0, F32 = 8, 0


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def key(name: str, value) -> bytes:
    if isinstance(value, bytes):  # made by hand
        return text(name) + value
    if isinstance(value, str):
        return text(name) + struct.pack("<I", 8) + text(value)
    if isinstance(value, list):
        return text(name) + struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
    return text(name) + struct.pack("<II", 4, value)


KEYS = {
    "general.architecture": "llama",
    "general.file_type": 7,
    "llama.block_count": 2,
    "llama.embedding_length": 64,
    "llama.feed_forward_length": 128,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.context_length": 512,
    "tokenizer.ggml.tokens": [f"token {i}" for i in range(5000)],
}


def tensors(layers=2):
    found = [("token_embd.weight", (64, 100), Q8_0), ("output.weight", (64, 100), Q8_0)]
    found.append(("output_norm.weight", (64,), F32))
    for i in range(layers):
        sizes = {"attn_q": (64, 64), "attn_k": (64, 32), "attn_v": (64, 32), "attn_output": (64, 64)}
        sizes |= {"ffn_gate": (64, 128), "ffn_up": (64, 128), "ffn_down": (128, 64)}
        found += [(f"blk.{i}.{name}.weight", dims, Q8_0) for name, dims in sizes.items()]
        found += [(f"blk.{i}.{name}.weight", (64,), F32) for name in ("attn_norm", "ffn_norm")]
    return found


def packed(keys=None, listed=None, version=3, offsets=None) -> bytes:
    keys, listed = KEYS if keys is None else keys, tensors() if listed is None else listed
    out = b"GGUF" + struct.pack("<IQQ", version, len(listed), len(keys))
    out += b"".join(key(name, value) for name, value in keys.items())
    at = 0
    for name, dims, kind in listed:
        out += text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
        out += struct.pack("<IQ", kind, at if offsets is None else offsets.get(name, at))
        elements, size = BLOCKS.get(kind, (1, 1))
        at += -(-(math.prod(dims) // elements * size) // 32) * 32
    return out


@pytest.fixture
def written(tmp_path):
    def write(content: bytes, name="tiny.gguf"):
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write


def test_a_file_is_counted_to_the_byte(written):
    path = written(packed())
    model = language_model(path)
    header = gguf.read(path)
    assert model.parameters == header.elements == 86848
    assert (model.stored_as, model.tied, model.notes) == ("q8_0", False, ())
    # 34 bytes for 32 elements of Q8_0, four for one of F32.
    assert header.weight_bytes == (86848 - 320) * 34 // 32 + 320 * 4
    stored = Quantization("q8_0", "q8_0", "fp16")
    assert weight_bytes(model, Parallelism(), stored) == pytest.approx(header.weight_bytes)
    assert perfpass.predict_llm(str(path), "rtx-4090").assumed["precision"] == "q8_0"


def test_a_size_out_of_its_range_names_the_file(written):
    with pytest.raises(FormatError, match="intermediate_size 8388736") as refused:
        language_model(written(packed({**KEYS, "llama.feed_forward_length": 8388736})))
    assert "tiny.gguf" in str(refused.value.subject)


def test_the_command_takes_a_file_and_its_folder(written, capsys):
    from perfpass.cli import main

    path = written(packed())
    for name in (path, path.parent):
        assert main(["llm", str(name), "--device", "rtx-4090"]) == 0
        assert "--precision q8_0" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["sha256-0b1c", "weights.bin", "tiny.onnx"])
def test_the_content_tells_the_format_where_the_suffix_does_not(written, capsys, name):
    from perfpass.cli import main

    path = written(packed(), name)
    assert language_model(path).parameters == 86848
    assert main(["llm", str(path), "--device", "rtx-4090"]) == 0
    assert "--precision q8_0" in capsys.readouterr().out


def test_an_onnx_model_of_that_suffix_is_read_as_what_it_is(tmp_path):
    onnx = pytest.importorskip("onnx")
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 8]) for name in "xy"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", ends[:1], ends[1:])
    onnx.save(onnx.helper.make_model(graph), str(tmp_path / "m.gguf"))
    assert perfpass.load(tmp_path / "m.gguf").node_count == 1


def test_shards_are_added_and_a_missing_one_is_said(written):
    listed = tensors()
    keys = KEYS | {"split.count": 2}
    first = written(packed(keys, listed[:5]), "model-00001-of-00002.gguf")
    alone = language_model(first)
    assert "1 of the model's files are not there" in alone.notes[0] and alone.stored_bytes == 0
    written(packed({"split.count": 2}, listed[5:]), "model-00002-of-00002.gguf")
    whole = language_model(first)
    assert whole.notes == () and whole.stored_bytes == gguf.read(first).weight_bytes > 90_000


def test_what_is_a_part_of_a_model_alone_is_refused(tmp_path):
    path = tmp_path / "part.gguf"
    for changed, listed, said in (
        ({"general.type": "adapter"}, tensors()[:1], "an adapter of a model of architecture llama"),
        ({}, [], "holds no tensor"),
        ({"llama.block_count": "many"}, tensors(), "does not state llama.block_count"),
    ):
        path.write_bytes(packed(KEYS | changed, listed))
        with pytest.raises((UnsupportedError, FormatError), match=said):
            gguf.read(path)


def test_a_type_that_is_not_stated_is_found_by_its_size(written):
    model = language_model(written(packed({k: v for k, v in KEYS.items() if k != "general.file_type"})))
    assert model.stored_as == "q8_0" and "nearest to q8_0" in model.notes[0]


def test_other_architectures_have_their_own_layers(written):
    def of(kind, **more):
        keys = {name.replace("llama.", f"{kind}."): value for name, value in KEYS.items()}
        return language_model(written(packed(keys | {"general.architecture": kind, **more})))

    assert of("qwen3").model_type == "qwen3"
    routed = of("llama", **{"llama.expert_count": 4, "llama.expert_used_count": 2})
    assert routed.model_type == "mixtral" and routed.is_mixture
    with pytest.raises(UnsupportedError, match="'clip' is not read: it holds a projector"):
        of("clip")
    with pytest.raises(UnsupportedError, match="'tomorrow' is not known here; known are"):
        of("tomorrow")


def test_a_tensor_of_a_type_that_is_not_known_is_refused_with_those_that_are(written):
    with pytest.raises(UnsupportedError, match=r"'output\.weight' is of type 99 of GGML; known are 0 to 41"):
        gguf.read(written(packed(listed=[("output.weight", (64, 100), 99)])))


def test_every_architecture_of_llama_cpp_is_read_or_refused_with_a_reason():
    from gguf.constants import MODEL_ARCH_NAMES

    names = set(MODEL_ARCH_NAMES.values())
    assert names == set(TYPES) | set(REFUSED) and not set(TYPES) & set(REFUSED)


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        ("refact", 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128 + 2 * 64) + 100 * 64 + 64),
        ("codeshell", 2 * (2 * 64 * 64 + 2 * 64 * 32 + 2 * 64 * 128 + 4 * 64) + 100 * 64 + 2 * 64),
        ("apertus", 2 * (2 * 64 * 64 + 2 * 64 * 32 + 2 * 64 * 128 + 2 * 64 + 2 * 16) + 100 * 64 + 64),
    ],
)
def test_an_architecture_of_known_layers_has_their_parameters(written, kind, parameters):
    keys = {name.replace("llama.", f"{kind}."): value for name, value in KEYS.items()} | {"general.architecture": kind}
    graph = perfpass.load(written(packed(keys)), dims={"sequence": 8})
    counted = perfpass.graph.costs.count(graph).totals["parameters"]
    assert counted == pytest.approx(parameters, rel=0.02)  # biases and frequencies beside them


def of_each(values) -> bytes:
    return struct.pack("<IIQ", 9, 4, len(values)) + struct.pack(f"<{len(values)}I", *values)


def mamba2_keys(c):
    heads = c["mamba_n_heads"]
    inner = c.get("mamba_d_ssm") or c.get("mamba_expand", 2) * c["hidden_size"]
    sizes = {"time_step_rank": heads, "inner_size": inner, "state_size": c["mamba_d_state"]}
    return {f"ssm.{k}": v for k, v in {**sizes, "group_count": c["mamba_n_groups"], "conv_kernel": 4}.items()}


def kv_of_each(c, attends) -> bytes:
    return of_each([c["num_key_value_heads"] * attend for attend in attends])


def attending(c):
    return [kind in ("attention", "full_attention") for kind in c["layer_types"]]


def lfm2_file(c):
    more = {"feed_forward_length": c["intermediate_size"], "shortconv.l_cache": 3}
    return "lfm2", {**more, "attention.head_count_kv": kv_of_each(c, attending(c))}, []


def granite_file(c):
    more = {**mamba2_keys(c), "attention.head_count_kv": kv_of_each(c, attending(c))}
    if not c["num_local_experts"]:
        return "granitehybrid", {**more, "feed_forward_length": c["shared_intermediate_size"]}, []
    more |= {"expert_count": c["num_local_experts"], "expert_used_count": c["num_experts_per_tok"]}
    more |= {"expert_shared_feed_forward_length": c["shared_intermediate_size"]}
    return "granitehybrid", {**more, "feed_forward_length": c["intermediate_size"]}, []


def falcon_file(c):
    more = {"feed_forward_length": c["intermediate_size"], "attention.key_length": c["head_dim"]}
    return "falcon-h1", {**mamba2_keys(c), **more, "attention.head_count_kv": c["num_key_value_heads"]}, []


def mamba2_file(c):
    sizes = {"time_step_rank": c["num_heads"], "inner_size": c["expand"] * c["hidden_size"], "conv_kernel": 4}
    sizes |= {"state_size": c["state_size"], "group_count": c["n_groups"]}
    return "mamba2", {f"ssm.{k}": v for k, v in sizes.items()}, []


def jamba_file(c):
    sizes = {"time_step_rank": 256, "inner_size": 8192, "state_size": 16, "conv_kernel": 4}
    more = {f"ssm.{k}": v for k, v in sizes.items()} | {"feed_forward_length": c["intermediate_size"]}
    more |= {"expert_count": 16, "expert_used_count": 2}
    more |= {"attention.head_count_kv": kv_of_each(c, [i % 8 == 4 for i in range(32)])}
    return "jamba", more, [(f"blk.{i}.ffn_gate_inp.weight", (4096, 16), F32) for i in range(1, 32, 2)]


def nemotron_file(c):
    letters = c["hybrid_override_pattern"]
    sizes = {"time_step_rank": c["mamba_num_heads"], "inner_size": c["mamba_num_heads"] * c["mamba_head_dim"]}
    sizes |= {"state_size": c["ssm_state_size"], "group_count": c["n_groups"], "conv_kernel": c["conv_kernel"]}
    more = {f"ssm.{k}": v for k, v in sizes.items()}
    more |= {"expert_count": c["n_routed_experts"], "expert_used_count": c["num_experts_per_tok"]}
    more |= {"expert_feed_forward_length": c["moe_intermediate_size"], "attention.key_length": c["head_dim"]}
    more |= {"expert_shared_feed_forward_length": c["moe_shared_expert_intermediate_size"]}
    more |= {"attention.head_count_kv": kv_of_each(c, [letter == "*" for letter in letters])}
    marks = {"M": "ssm_in", "*": "attn_q", "E": "ffn_gate_inp", "-": "ffn_up"}
    wide = c.get("moe_latent_size") or c["hidden_size"]
    first = (f"blk.{letters.index('E')}.ffn_up_exps.weight", (wide, c["moe_intermediate_size"], 1), F32)
    found = [(f"blk.{i}.{marks[letter]}.weight", (8,), F32) for i, letter in enumerate(letters)]
    return "nemotron_h_moe", more, [*found, first]


HYBRIDS = {
    "LiquidAI/LFM2-1.2B": lfm2_file,
    "ibm-granite/granite-4.0-h-tiny": granite_file,
    "ibm-granite/granite-4.0-h-micro": granite_file,
    "tiiuae/Falcon-H1-7B-Base": falcon_file,
    "state-spaces/mamba2-130m": mamba2_file,
    "ai21labs/Jamba-v0.1": jamba_file,
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": nemotron_file,
}


@pytest.mark.parametrize("name", HYBRIDS)
def test_a_hybrid_s_layers_are_told_apart_by_its_header(written, name):
    model = language_model(name)
    content = dict(read_configuration(known()[name.lower()], run_code=False))
    kind, more, marks = HYBRIDS[name](content)
    layers = content.get("num_hidden_layers") or len(content["hybrid_override_pattern"])
    same = {"block_count": layers, "embedding_length": content["hidden_size"]}
    if "num_attention_heads" in content:
        same |= {"attention.head_count": content["num_attention_heads"]}
    keys = {"general.architecture": kind, "general.file_type": 7}
    keys |= {f"{kind}.{key}": value for key, value in {**same, **more}.items()}
    table = ("token_embd.weight", (content["hidden_size"], model.vocabulary), Q8_0)
    head = [] if model.tied else [("output.weight", (content["hidden_size"], model.vocabulary), Q8_0)]
    found = language_model(written(packed(keys, [table, *head, *marks])))
    assert found.layers == model.layers and found.parameters == model.parameters


def test_a_hybrid_whose_header_is_silent_of_its_states_is_refused(written):
    keys = {name.replace("llama.", "mamba2."): value for name, value in KEYS.items()}
    with pytest.raises(UnsupportedError, match=r"no mamba2\.ssm\.inner_size"):
        language_model(written(packed(keys | {"general.architecture": "mamba2"})))
    keys = {name.replace("llama.", "lfm2."): value for name, value in KEYS.items()} | {"general.architecture": "lfm2"}
    del keys["lfm2.block_count"]
    with pytest.raises(UnsupportedError, match="says nothing of its layers"):
        language_model(written(packed(keys)))


HOSTILE = {
    "empty": b"",
    "no magic": b"GGML" + packed()[4:],
    "old version": packed(version=1),
    "other endian": b"GGUF" + struct.pack(">I", 3) + packed()[8:],
    "cut off": packed()[:300],
    "many tensors": b"GGUF" + struct.pack("<IQQ", 3, 2**60, 1),
    "many keys": b"GGUF" + struct.pack("<IQQ", 3, 1, 2**60),
    "long key": b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + struct.pack("<Q", 2**62),
    "long text": b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + text("a") + struct.pack("<IQ", 8, 2**62),
    "long array": b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + text("a") + struct.pack("<IIQ", 9, 8, 2**62),
    "nested array": b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + text("a") + struct.pack("<IIQ", 9, 9, 1),
    "unknown type": b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + text("a") + struct.pack("<I", 77),
    "key twice": b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + 2 * key("general.architecture", "llama"),
    "many dimensions": packed(listed=[("x", (1,) * 9, 0)]),
    "dimension of none": packed(listed=[("x", (0,), 0)]),
    "wide dimension": packed(listed=[("x", (2**63,), 0)]),
    "unknown tensor type": packed(listed=[("x", (32,), 999)]),
    "no architecture": packed({"general.file_type": 7}),
    "overlapping": packed(offsets={"output.weight": 64}),
    "a gap": packed(offsets={"output.weight": 1 << 20}),
    "far away": packed(offsets={"output.weight": 2**63}),
    "half the data": packed() + bytes(5000),
    "half a block": packed(listed=[("token_embd.weight", (63, 100), Q8_0)]),
    "alignment": packed(KEYS | {"general.alignment": 33}),
    "absurd layers": packed(KEYS | {"llama.block_count": 2**31}),
    "layers that differ": packed(
        KEYS | {"llama.feed_forward_length": struct.pack("<IIQ", 9, 4, 2) + struct.pack("<II", 128, 256)}
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_is_no_good_file_is_one_error(written, case):
    with pytest.raises((FormatError, UnsupportedError)):
        language_model(written(HOSTILE[case]))


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("overlapping", "'output.weight' begins at byte 64 of the data and overlaps the one before it"),
        ("a gap", "leaves a gap before it"),
        ("half the data", "give the whole file, or the header alone"),
        ("half a block", "has rows of 63, and its type packs 32 numbers"),
        ("alignment", "general.alignment is 33; a power of 2"),
    ],
)
def test_a_lie_about_where_tensors_are_is_told(written, case, said):
    with pytest.raises(FormatError, match=said):
        gguf.read(written(HOSTILE[case]))


def test_a_whole_file_says_what_its_header_does(written):
    alone = gguf.read(written(packed()))
    at = sum(-(-size // 32) * 32 for _, size in alone.tensors)
    padding = -len(packed()) % 32
    whole = gguf.read(written(packed() + bytes(padding + at), "whole.gguf"))
    assert whole == alone and sum(size for _, size in alone.tensors) == alone.weight_bytes


def test_types_have_the_blocks_of_the_format():
    import gguf as judge

    known = {int(kind): sizes for kind, sizes in judge.GGML_QUANT_SIZES.items()}
    assert {kind: BLOCKS[kind] for kind in known if kind in BLOCKS} == {k: known[k] for k in known if k in BLOCKS}
    assert set(known) - set(BLOCKS) <= {15}, "types of the format that are not read"


def test_a_file_of_the_formats_own_writer_is_counted_to_the_byte(tmp_path):
    import gguf as judge
    import numpy

    writer = judge.GGUFWriter(tmp_path / "written.gguf", "llama")
    for add, value in (
        *((writer.add_block_count, 1), (writer.add_embedding_length, 256), (writer.add_feed_forward_length, 512)),
        *((writer.add_head_count, 4), (writer.add_head_count_kv, 2), (writer.add_context_length, 512)),
    ):
        add(value)
    kinds = judge.GGMLQuantizationType
    expected = 0
    for name, shape, kind in (
        ("token_embd.weight", (100, 256), kinds.Q6_K),
        ("blk.0.attn_q.weight", (256, 256), kinds.Q4_K),
        ("blk.0.ffn_up.weight", (512, 256), kinds.IQ4_XS),
        ("blk.0.attn_norm.weight", (256,), kinds.F32),
    ):
        size = judge.quant_shape_to_byte_shape(shape, kind)
        data = numpy.zeros(size, dtype=numpy.uint8) if kind != kinds.F32 else numpy.zeros(shape, dtype=numpy.float32)
        writer.add_tensor(name, data, raw_shape=size if kind != kinds.F32 else None, raw_dtype=kind)
        expected += data.nbytes
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = gguf.read(tmp_path / "written.gguf")
    assert found.weight_bytes == expected
    assert found.elements == 100 * 256 + 256 * 256 + 512 * 256 + 256


def test_a_header_without_end_is_left_at_the_limit(written, monkeypatch):
    monkeypatch.setattr(gguf, "LARGEST_HEADER_BYTES", 1 << 16)
    with pytest.raises((LimitError, FormatError)):
        gguf.read(written(packed()))


def test_what_is_no_file_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(FileError, match="is a pipe"):
        language_model(tmp_path / "pipe.gguf")
    with pytest.raises(FileError, match=r"tin\.gguf: no such file; did you mean tiny\.gguf"):
        (tmp_path / "tiny.gguf").write_bytes(packed())
        language_model(tmp_path / "tin.gguf")
