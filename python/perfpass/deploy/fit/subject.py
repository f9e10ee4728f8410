"""MODEL of `perfpass fit`: what its headers and its configuration say, and where its bytes lie.

A file of safetensors or GGUF, or its header alone, says the bytes of every tensor; a configuration beside it (or the
GGUF file's own keys) says what a sequence keeps. Without a header the bytes are counted from the configuration, without
a configuration the cache is not known. Weights are never read.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perfpass.bounded_file import exists
from perfpass.errors import FileError, FormatError, UnsupportedError
from perfpass.importers import hub, safetensors_header
from perfpass.importers.formats import is_gguf
from perfpass.importers.model_argument import ModelArgument, understood
from perfpass.importers.model_sources import read_configuration
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.configuration import READERS, language_model, packed

HEADERS, COUNTED = "the headers of its files", "its configuration"
_EXPERTS = re.compile(r"\.experts\.|_exps\b|\.block_sparse_moe\.experts|_chexps\b")
_LAYER = re.compile(r"(?:^|\.)(?:blk|layers|h|blocks|block)\.(\d+)\.")
_INPUT_TABLES = ("token_embd.weight", "embed_tokens.weight", "wte.weight", "word_embeddings.weight", "embed_in.weight")
_HEADS = ("output.weight", "lm_head.weight", "embed_out.weight")
_WIDE = ("F32", "F64")


@dataclass(frozen=True)
class Placed:
    """Bytes of a model's tensors by where a runtime puts them: ``layers`` in order, of these ``experts``, the input
    ``table``, the ``head`` (0 where it is the table), and the ``rest``.
    """

    layers: tuple[int, ...]
    experts: tuple[int, ...]
    table: int
    head: int
    rest: int

    @property
    def total(self) -> int:
        """All tensors."""
        return sum(self.layers) + self.table + self.head + self.rest


@dataclass(frozen=True)
class Subject:
    """What is asked about: a language model, or a network of any other kind (``network``, as `perfpass.predict` takes
    it), or weights alone.

    ``placed``: bytes of the tensors, where a header says them; ``basis``: what stands behind the weights.
    ``parameters`` counts what is stored (of a header: elements, packed ones as they are stored). ``packed``: a file of
    llama.cpp.
    """

    name: str
    language: LanguageModel | None = None
    network: Any = None
    placed: Placed | None = None
    basis: str = COUNTED
    parameters: int = 0
    notes: tuple[str, ...] = ()
    packed: bool = False


def placed(tensors: Iterable[tuple[str, int]]) -> Placed:
    """Where tensors go, by the names that transformers and llama.cpp give them."""
    layers: Counter[int] = Counter()
    experts: Counter[int] = Counter()
    table = head = rest = 0
    for name, size in tensors:
        if found := _LAYER.search(name):
            layers[int(found[1])] += size
            if _EXPERTS.search(name):
                experts[int(found[1])] += size
        elif name.endswith(_INPUT_TABLES):
            table += size
        elif name.endswith(_HEADS):
            head += size
        else:
            rest += size
    order = sorted(layers)
    return Placed(tuple(layers[i] for i in order), tuple(experts[i] for i in order), table, head, rest)


def subject(model: Any, name: str = "") -> Subject:
    """What ``model`` is: a path, a name, a configuration's content, a LanguageModel, or what `perfpass.load` takes.

    Raises FileError, FormatError, LimitError and UnsupportedError as the readers of each do.
    """
    if isinstance(model, LanguageModel):
        return Subject(name or model.name, model, parameters=model.parameters)
    if isinstance(model, Mapping):
        return _configured(model, name or str(model.get("_name_or_path") or model.get("model_type", "the model")))
    if not isinstance(model, (str, os.PathLike)):
        return Subject(name or type(model).__name__, network=model)
    text = os.fsdecode(model)
    path = Path(text)
    if text.endswith((safetensors_header.SUFFIX, f"{safetensors_header.SUFFIX}.index.json")):
        return _stored(path, path.parent / "config.json", name or text)
    if path.is_dir() and _has_safetensors(path):
        return _stored(path, path / "config.json", name or text)
    found = understood(text)
    if found.kind == "hf" and is_gguf(found.name):
        return _packed(found.name, name or text)
    if found.kind != "hf":
        return Subject(name or text, network=text)
    return _of_hub(text, found, name or text)


def _configured(model: Any, name: str) -> Subject:
    try:
        language = language_model(model, name)
    except UnsupportedError:
        if isinstance(model, Mapping) or _is_packed_otherwise(model):
            raise  # content is read by language models alone; a file may be traced
        return Subject(name, network=model)
    return Subject(name, language, parameters=language.parameters, notes=language.notes)


def _is_packed_otherwise(model: Any) -> bool:
    """Whether a file describes a decoder whose weights are packed in a way that is not counted."""
    content = read_configuration(understood(model).name, run_code=False)
    return bool(content.get("quantization_config")) and content["model_type"] in READERS


def _of_hub(text: str, found: ModelArgument, name: str) -> Subject:
    """A configuration by name or path; of a repository that does not ship the headers of its weights as well."""
    counted = _configured(text, name)
    listed = hub.tensors(found.repository) if found.repository and counted.language else None
    if listed is None or counted.language is None:
        return counted
    return _with_tensors(counted.language, listed, name)


def _packed(path: str, name: str) -> Subject:
    from perfpass.importers import gguf

    header = gguf.read(path)
    language = packed(header, name)
    where = None if header.missing else placed(header.tensors)
    return Subject(name, language, None, where, HEADERS, header.elements, language.notes, True)


def _has_safetensors(folder: Path) -> bool:
    try:
        return any(entry.name.endswith(safetensors_header.SUFFIX) for entry in os.scandir(folder))
    except OSError:
        return False


def _stored(path: Path, configuration: Path, name: str) -> Subject:
    """Safetensors files, with the config.json beside them where there is one."""
    if not exists(path):
        raise FileError(f"{path}: no such file; give a safetensors file, its header, its index or a folder of them")
    listed = safetensors_header.read(path)
    language = None
    if exists(configuration):
        found = _configured(str(configuration), name)
        if found.language is None:
            return found
        language = found.language
    if language is None:
        where = placed((tensor.name, tensor.bytes) for tensor in listed.tensors)
        said = "there is no config.json beside the file, so what a sequence keeps is not known"
        return Subject(name, None, None, where, HEADERS, listed.elements, (said, *_missing(listed)))
    return _with_tensors(language, listed, name)


def _missing(listed: safetensors_header.Listed) -> tuple[str, ...]:
    return (f"{listed.missing} of the model's files are not there",) if listed.missing else ()


def _with_tensors(language: LanguageModel, listed: safetensors_header.Listed, name: str) -> Subject:
    """A language model with the bytes that its files' headers say."""
    notes = (*language.notes, *_missing(listed))
    if listed.missing:
        return Subject(name, language, parameters=language.parameters, notes=notes)
    where = placed((tensor.name, tensor.bytes) for tensor in listed.tensors)
    wide = sum(tensor.bytes for tensor in listed.tensors if tensor.dtype in _WIDE)
    if 2 * wide > where.total and language.stored_as == "bf16":
        language = replace(language, stored_as="fp32", experts_stored_as="fp32")
    return Subject(
        name, replace(language, stored_bytes=where.total), None, where, HEADERS, listed.elements, notes
    )  # fmt: skip


def check_usable(found: Subject) -> None:
    """Raises FormatError for a header without tensors."""
    if found.placed is not None and not found.placed.total:
        raise FormatError(f"{found.name}: its header lists no tensor with any bytes; there is nothing to fit")
