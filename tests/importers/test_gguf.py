"""A GGUF file's header is a configuration with exact bytes; what is damaged or hostile is refused in a moment."""

from __future__ import annotations

import math
import os
import struct

import pytest

import perfpass
from perfpass.errors import FileError, FormatError, LimitError, UnsupportedError
from perfpass.importers import gguf
from perfpass.importers.gguf_types import BLOCKS
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


def test_the_command_takes_a_file_and_its_folder(written, capsys):
    from perfpass.cli import main

    path = written(packed())
    for name in (path, path.parent):
        assert main(["llm", str(name), "--device", "rtx-4090"]) == 0
        assert "--precision q8_0" in capsys.readouterr().out


def test_shards_are_added_and_a_missing_one_is_said(written):
    listed = tensors()
    keys = KEYS | {"split.count": 2}
    first = written(packed(keys, listed[:5]), "model-00001-of-00002.gguf")
    alone = language_model(first)
    assert "1 of the model's files are not there" in alone.notes[0] and alone.stored_bytes == 0
    written(packed({"split.count": 2}, listed[5:]), "model-00002-of-00002.gguf")
    whole = language_model(first)
    assert whole.notes == () and whole.stored_bytes == gguf.read(first).weight_bytes > 90_000


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
    with pytest.raises(UnsupportedError, match="'clip' is not known here; known are"):
        of("clip")


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
    "absurd layers": packed(KEYS | {"llama.block_count": 2**31}),
    "layers that differ": packed(
        KEYS | {"llama.feed_forward_length": struct.pack("<IIQ", 9, 4, 2) + struct.pack("<II", 128, 256)}
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_is_no_good_file_is_one_error(written, case):
    with pytest.raises((FormatError, UnsupportedError)):
        language_model(written(HOSTILE[case]))


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
