"""The header of a GGUF file -> a configuration: what llama.cpp keeps of a model beside its weights, which stay unread.

Format: the GGUF page of ggml-org/ggml, versions 2 and 3, little-endian; names of keys and sizes of types as in gguf-py
0.19. A header is read block by block up to a limit, every length in it is checked before it is believed, and what no
header needs (long texts, arrays of thousands) is passed over.
"""

from __future__ import annotations

import math
import os
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfpass.bounded_file import exists, open_regular, reason
from perfpass.errors import FileError, FormatError, LimitError, UnsupportedError, shown
from perfpass.importers import gguf_hybrids
from perfpass.importers.gguf_architectures import REFUSED, TYPES
from perfpass.importers.gguf_types import FILE_TYPES, Tensor, bytes_of, check_layout
from perfpass.text import shown_value

_WHAT = "a GGUF file"
LARGEST_HEADER_BYTES = 256 * 2**20  # vocabularies of 256,000 tokens with their merges take some 20 MiB
_BLOCK_BYTES = 1 << 20
_MOST_KEYS, _MOST_TENSORS, _MOST_SHARDS = 10_000, 200_000, 1_000
_LONGEST_NAME, _LONGEST_TEXT, _LONGEST_LIST = 1 << 16, 4096, 4096
_WIDEST = 2**48  # of a dimension
_NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_TEXT, _ARRAY = 8, 9
_LENGTH = struct.Struct("<Q")
_STATED = ("embedding_length", "block_count")  # llama.cpp loads no model without (llama-model.cpp, load_hparams)
# Field of a config.json: the keys that may hold it, without the architecture.
_FIELDS: dict[str, str] = {
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "max_position_embeddings": "context_length",
    "vocab_size": "vocab_size",
    "sliding_window": "attention.sliding_window",
    "head_dim": "attention.key_length",
    "moe_intermediate_size": "expert_feed_forward_length",
    "num_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
    "n_shared_experts": "expert_shared_count",
    "first_k_dense_replace": "leading_dense_block_count",
    "interleave_moe_layer_step": "interleave_moe_layer_step",
}
_WINDOWED = ("gemma2", "gemma3_text", "gpt_oss", "cohere2", "exaone4", "phi3")


@dataclass(frozen=True)
class Header:
    """What a file says of its model: ``configuration`` as a config.json has it, ``file_type`` as FILE_TYPES calls it
    ("" where it is none of them), bytes and elements of all tensors. ``missing``: shards that the file speaks of and
    that do not stand beside it; their tensors are not in the sums. ``tensors``: name and bytes of each.
    """

    configuration: dict[str, Any]
    file_type: str
    weight_bytes: int
    elements: int
    missing: int = 0
    tensors: tuple[tuple[str, int], ...] = ()


def read(path: str | os.PathLike[str]) -> Header:
    """The header of the file at ``path``, and of the shards beside it where it is the first of several.

    Raises FileError for what cannot be opened, FormatError for what is no GGUF file or is damaged, LimitError for a
    header over 256 MiB, UnsupportedError for an architecture that is not known here.
    """
    keys, tensors = _one(path)
    shards, missing = _others(Path(path), keys)
    for shard in shards:
        tensors += _one(shard)[1]
    if not tensors and not missing:
        raise UnsupportedError(f"{shown(path)}: holds no tensor (a vocabulary alone); pass the model's own file")
    listed = [(tensor.name, bytes_of(tensor, shown(path))) for tensor in tensors]
    known = keys.get("general.file_type")
    return Header(
        _configuration(keys, tensors, shown(path)),
        FILE_TYPES.get(known, "") if isinstance(known, int) else "",
        sum(size for _, size in listed),
        sum(math.prod(tensor.dims) for tensor in tensors),
        missing,
        tuple(listed),
    )


def is_whole(path: str | os.PathLike[str]) -> bool:
    """Whether the beginning of a file at ``path`` has all of its header. Raises what `read` does but FormatError."""
    file = open_regular(path, _WHAT)
    try:
        _header(_Cursor(file, shown(path)))
    except FormatError:
        return False
    finally:
        os.close(file)
    return True


def _one(path: str | os.PathLike[str]) -> tuple[dict[str, Any], list[Tensor]]:
    file = open_regular(path, _WHAT)
    try:
        at = _Cursor(file, shown(path))
        keys, tensors = _header(at)
        check_layout(tensors, keys.get("general.alignment"), at.position, os.fstat(file).st_size, shown(path))
        return keys, tensors
    finally:
        os.close(file)


def _header(at: _Cursor) -> tuple[dict[str, Any], list[Tensor]]:
    if at.take(4) != b"GGUF":
        raise FormatError(f"{at.where}: is no GGUF file")
    version = at.number("<I")
    if version not in (2, 3):
        what = "written for big-endian machines" if version > 1 << 16 else f"of version {version}"
        raise UnsupportedError(f"{at.where}: a GGUF file {what}; versions 2 and 3, little-endian, are read")
    tensors, keys = at.count(_MOST_TENSORS, "tensors"), at.count(_MOST_KEYS, "keys")
    found: dict[str, Any] = {}
    for _ in range(keys):
        key = at.text(_LONGEST_NAME, "a key")
        if key in found:
            raise FormatError(f"{at.where}: the key {shown_value(key)} occurs twice")
        found[key] = at.value(at.number("<I"))
    listed = []
    for _ in range(tensors):
        name = at.text(_LONGEST_NAME, "the name of a tensor")
        dims = at.number("<I")
        if dims > 8:
            raise FormatError(f"{at.where}: tensor {shown_value(name)} has {dims} dimensions")
        sizes = tuple(at.number("<Q") for _ in range(dims))
        if any(not 0 < size <= _WIDEST for size in sizes):
            raise FormatError(f"{at.where}: tensor {shown_value(name)} has a dimension of {max(sizes)}")
        listed.append(Tensor(name, sizes, at.number("<I"), at.number("<Q")))
    return found, listed


class _Cursor:
    """Reads a header forwards, block by block."""

    def __init__(self, file: int, where: str) -> None:
        self.where = where
        self._file, self._data, self._at, self._left = file, b"", 0, LARGEST_HEADER_BYTES
        self._read = 0

    @property
    def position(self) -> int:
        """Bytes that were taken so far."""
        return self._read - len(self._data) + self._at

    def take(self, size: int) -> bytes:
        """The next ``size`` bytes. Raises FormatError where the file ends before, LimitError beyond the limit."""
        while len(self._data) - self._at < size:
            self._more()
        begin, self._at = self._at, self._at + size
        return self._data[begin : self._at]

    def skip(self, size: int) -> None:
        """Passes over ``size`` bytes, keeping none of them."""
        while (here := len(self._data) - self._at) < size:
            size -= here
            self._at = len(self._data)
            self._more()
        self._at += size

    def _more(self) -> None:
        try:
            block = os.read(self._file, min(_BLOCK_BYTES, self._left)) if self._left else b""
        except OSError as error:
            raise FileError(f"{self.where}: cannot be read as {_WHAT}: {reason(error)}") from error
        if not block:
            if not self._left:
                raise LimitError(f"{self.where}: a header of over {LARGEST_HEADER_BYTES} bytes, the limit of {_WHAT}")
            raise FormatError(f"{self.where}: ends within its header; is the download complete?")
        self._left -= len(block)
        self._read += len(block)
        self._data, self._at = self._data[self._at :] + block, 0

    def _skip_texts(self, members: int) -> None:
        """Passes over so many texts: a vocabulary of 256,000 tokens in a tenth of a second."""
        read, left = _LENGTH.unpack_from, members
        while left:
            data, at, last = self._data, self._at, len(self._data) - _LENGTH.size
            while left and at <= last and (after := at + _LENGTH.size + read(data, at)[0]) <= len(data):
                at, left = after, left - 1
            self._at = at
            if left:  # one that the block ends in
                self.skip(self.count(LARGEST_HEADER_BYTES, "bytes in a text"))
                left -= 1

    def number(self, form: str) -> Any:
        """The next number of a form of `struct`."""
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def count(self, most: int, what: str) -> int:
        """The next count, of at most ``most``."""
        found = int(self.number("<Q"))
        if found > most:
            raise FormatError(f"{self.where}: {found} {what}; at most {most} are read")
        return found

    def text(self, most: int, what: str) -> str:
        """The next text, of at most ``most`` bytes."""
        return self.take(self.count(most, f"bytes in {what}")).decode(errors="replace")

    def value(self, kind: int) -> Any:
        """The next value; None for texts and arrays longer than any that is asked for; ("array", n) has n members."""
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        if kind == _TEXT:
            size = self.count(LARGEST_HEADER_BYTES, "bytes in a text")
            if size > _LONGEST_TEXT:
                self.skip(size)
                return None
            return self.take(size).decode(errors="replace")
        if kind != _ARRAY:
            raise FormatError(f"{self.where}: a value of type {kind}, which the format does not have")
        inner, members = self.number("<I"), self.count(LARGEST_HEADER_BYTES, "members of an array")
        if inner in _NUMBERS and members <= _LONGEST_LIST:
            return [self.number(_NUMBERS[inner]) for _ in range(members)]
        if inner in _NUMBERS:
            self.skip(members * struct.calcsize(_NUMBERS[inner]))
        elif inner == _TEXT:
            self._skip_texts(members)
        else:
            raise FormatError(f"{self.where}: an array of type {inner}; arrays of numbers and texts are read")
        return ("array", members)


def _others(path: Path, keys: Mapping[str, Any]) -> tuple[list[Path], int]:
    """The other shards of a file that is one of several, and how many of them are not there."""
    count = keys.get("split.count")
    name = re.fullmatch(r"(.*)-(\d{5})-of-(\d{5})\.gguf", path.name, re.IGNORECASE)
    if not isinstance(count, int) or count < 2:
        return [], 0
    if count > _MOST_SHARDS:
        raise FormatError(f"{shown(path)}: one of {count} files; at most {_MOST_SHARDS} are read")
    if name is None or int(name[3]) != count:
        return [], count - 1
    others = [n for n in range(1, count + 1) if n != int(name[2])]
    paths = [path.with_name(f"{name[1]}-{n:05}-of-{count:05}.gguf") for n in others]
    return [one for one in paths if exists(one)], sum(not exists(one) for one in paths)


def _configuration(keys: Mapping[str, Any], tensors: list[Tensor], where: str) -> dict[str, Any]:
    """The fields of a config.json that the keys hold."""
    kind = keys.get("general.architecture")
    if not isinstance(kind, str):
        raise FormatError(f"{where}: has no general.architecture, so it is no model of llama.cpp")
    if kind not in TYPES:
        known = ", ".join(sorted(TYPES))
        why = f"is not read: {REFUSED[kind]}" if kind in REFUSED else f"is not known here; known are {known}"
        raise UnsupportedError(
            f"{where}: architecture {shown_value(kind)} {why}. Pass the config.json of the model it was made "
            "from, and its file type as --precision"
        )
    if keys.get("general.type") == "adapter":
        raise UnsupportedError(
            f"{where}: an adapter of a model of architecture {kind} (LoRA), which runs with that model's own file: "
            "pass the model's"
        )
    stated = () if kind in gguf_hybrids.TYPES else _STATED  # those ask for more (`gguf_hybrids`)
    if silent := [key for key in stated if not isinstance(keys.get(f"{kind}.{key}"), int | list)]:
        raise FormatError(f"{where}: does not state {kind}.{silent[0]}, without which llama.cpp loads no model")
    found: dict[str, Any] = {"model_type": TYPES[kind]}
    for name, key in _FIELDS.items():
        value = keys.get(f"{kind}.{key}")
        if isinstance(value, list) and kind in gguf_hybrids.TYPES and key in gguf_hybrids.BY_LAYER:
            value = max((one for one in value if isinstance(one, int)), default=0)
        if isinstance(value, list):
            if not value or any(one != value[0] for one in value):
                raise UnsupportedError(f"{where}: {key} differs from layer to layer, which is not counted here")
            value = value[0]
        if isinstance(value, int) and not isinstance(value, bool):
            found[name] = value
    shapes = {tensor.name: tensor.dims for tensor in tensors}
    if (table := shapes.get("token_embd.weight")) and len(table) == 2:
        found["vocab_size"] = table[1]
    found["tie_word_embeddings"] = "output.weight" not in shapes
    _adapt(found, keys, kind, shapes)
    return gguf_hybrids.adapted(kind, found, keys, shapes, where) if kind in gguf_hybrids.TYPES else found


def _adapt(found: dict[str, Any], keys: Mapping[str, Any], kind: str, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """What single architectures say in other words."""
    if kind == "llama" and found.get("num_experts"):
        found["model_type"] = "mixtral"
    if not found.get("num_experts"):
        for name in ("num_experts", "num_experts_per_tok", "n_shared_experts", "shared_expert_intermediate_size"):
            found.pop(name, None)
    if found["model_type"] not in _WINDOWED:
        found.pop("sliding_window", None)
    if any(name.startswith("blk.0.attn_") and name.endswith(("q.bias", "qkv.bias")) for name in shapes):
        found["attention_bias"] = True
    if found["model_type"] == "deepseek_v3":
        _latent(found, keys, kind)
    if found["model_type"] == "mamba":
        inner, rank = keys.get("mamba.ssm.inner_size"), keys.get("mamba.ssm.time_step_rank")
        state, kernel = keys.get("mamba.ssm.state_size"), keys.get("mamba.ssm.conv_kernel")
        found |= {"intermediate_size": inner, "time_step_rank": rank, "state_size": state, "conv_kernel": kernel}
    if found["model_type"] == "hunyuan_v1_moe":
        found["moe_topk"] = found.pop("num_experts_per_tok", None)
        found["num_shared_expert"] = 1
    if found["model_type"] == "falcon":
        found["num_kv_heads"] = found.get("num_key_value_heads")
        found["new_decoder_architecture"] = (found.get("num_key_value_heads") or 1) > 1
    if found["model_type"] in ("gpt2", "gpt_bigcode", "bloom", "mpt", "gptj"):
        found.pop("head_dim", None)


def _latent(found: dict[str, Any], keys: Mapping[str, Any], kind: str) -> None:
    """DeepSeek-V2 and V3: keys and values of the heads, or (in newer files) of the latent and of each head apart."""
    key = keys.get(f"{kind}.attention.key_length_mla") or keys.get(f"{kind}.attention.key_length")
    value = keys.get(f"{kind}.attention.value_length_mla") or keys.get(f"{kind}.attention.value_length")
    rope = keys.get(f"{kind}.rope.dimension_count")
    if isinstance(key, int) and isinstance(rope, int):
        found |= {"qk_rope_head_dim": rope, "qk_nope_head_dim": key - rope, "v_head_dim": value}
    found["kv_lora_rank"] = keys.get(f"{kind}.attention.kv_lora_rank")
    found["q_lora_rank"] = keys.get(f"{kind}.attention.q_lora_rank")
    found["n_routed_experts"] = found.pop("num_experts", None)
    found["num_key_value_heads"] = found.get("num_attention_heads")
    if keys.get(f"{kind}.expert_gating_func") != 2:  # scores by softmax, without a correction: DeepSeek-V2
        found["model_type"] = "deepseek_v2"
    found.pop("head_dim", None)
