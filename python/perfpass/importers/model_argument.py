"""What a user calls a model: a file, a folder, a name, or SOURCE:NAME, for every command the same.

``timm:resnet50`` and ``torchvision:resnet50`` are built from the definitions installed here, without weights, and
``definitions:yolov8n`` from ours; ``hf:NAME`` and ``onnx:PATH`` say what a path or a name is, as `perfpass measure`
writes it. A name alone is looked up in all of them; what stands at a path of that name comes first. A network within
one stands behind a colon: ``openai/whisper-large-v3:encoder``, ``stabilityai/stable-diffusion-xl-base-1.0:unet``.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from perfpass.bounded_file import exists, mode_of
from perfpass.errors import ArgumentError, FileError, FormatError, PerfPassError, UnsupportedError, shown
from perfpass.importers import formats
from perfpass.late import dataclass
from perfpass.text import nearest

Kind = Literal["onnx", "hf", "file", "timm", "torchvision", "definitions"]
KINDS: dict[Kind, str] = {
    "onnx": "an ONNX file",
    "file": "a file of another framework",
    "hf": "a Hugging Face configuration",
    "timm": "a model of timm",
    "torchvision": "a model of torchvision",
    "definitions": "a network that is defined here",
}
_FILE_KINDS: tuple[Kind, ...] = ("onnx", "file")
_BUILT: tuple[Kind, ...] = ("timm", "torchvision", "definitions")
_PICKLES = frozenset({".pt", ".pth", ".pkl", ".pickle", ".bin", ".ckpt", ".joblib", ".pt2"})
_WEIGHTS = frozenset({".safetensors", ".npz", ".npy", ".msgpack"})
_ENGINES = frozenset({".engine", ".plan"})
_FILES = (".onnx", ".json", ".gguf", ".keras", ".h5", ".pb")
_TIMM = "timm/"  # the owner of timm's own checkpoints on the hub
_MOST_SHOWN = 5
_AS = {"timm": "resnet50", "torchvision": "resnet50", "definitions": "yolov8n"}


@dataclass(frozen=True)
class ModelArgument:
    """A model as `understood`: ``name`` is the path of a file, the name of a shipped configuration, or that of a model
    in its library.

    ``stored``: the precision of the weights where the name said one, else "". ``notes``: what was made of the name, a
    sentence each. ``repository``: where on the hub it was found, else "". ``format``: of a file of another framework
    its name in `perfpass.importers.formats`, else "".
    """

    kind: Kind
    name: str
    stored: str = ""
    notes: tuple[str, ...] = ()
    repository: str = ""
    format: str = ""

    @property
    def described(self) -> str:
        """What it is, for a sentence: "an ONNX file"."""
        return formats.named(self.format).title if self.format else KINDS[self.kind]

    @property
    def source(self) -> str:
        """SOURCE:NAME, as `perfpass measure` keeps it in its records."""
        return f"{self.kind}:{self.name}"

    def file(self, what: str, instead: str) -> str:
        """The path of an ONNX file; ``what`` needs one. Raises UnsupportedError for another kind."""
        if self.kind != "onnx":
            raise UnsupportedError(f"{what} needs an ONNX file, and {self.name} is {self.described}; {instead}")
        return self.name

    def configuration(self, what: str) -> str:
        """The config.json, its folder or the name of a shipped one. Raises UnsupportedError for another kind."""
        if self.kind != "hf":
            raise UnsupportedError(
                f"{what} reads a language model's config.json, and {self.name} is {self.described}; "
                f"`perfpass predict {self.name if self.kind in _FILE_KINDS else self.source}` answers it"
            )
        return self.name


class _Understood(str):
    """A model's name with what it means, for as long as one question takes: the file behind it is looked at once."""

    argument: ModelArgument


def _as(name: str, argument: ModelArgument) -> _Understood:
    found = _Understood(name)
    found.argument = argument
    return found


def once(model: Any) -> Any:
    """``model``, where it is a name or path as one whose meaning is not looked up again. Raises what `understood` does.

    For whoever asks several things of it in one call: what is kept for the next may by then be another file.
    """
    if isinstance(model, _Understood) or not isinstance(model, (str, os.PathLike)):
        return model
    return _as(os.fsdecode(model), understood(model))


def understood(model: str | os.PathLike[str]) -> ModelArgument:
    """What ``model`` means, by its form and by what stands at its path; of a file its first bytes are looked at.

    A folder is that of a Hugging Face checkpoint (config.json), of a format (`perfpass.importers.formats`), or holds
    one ONNX or GGUF file. A name is one of
    torchvision or timm (`perfpass.importers.library_names`), of our own definitions
    (`perfpass.importers.definitions`), one that ships (`perfpass.importers.model_names`), ``timm/NAME``, or OWNER/NAME
    of a hub (`perfpass.importers.hub`), with the type of a GGUF file behind a colon where it has several. NAME:PART is
    a part of a configuration (`perfpass.importers.model_parts`) or a network of a pipeline of diffusers. Raises
    FileError for what does not exist, with the nearest names; FormatError for a folder without one model,
    UnsupportedError for files that are never read, for repositories that hold several networks and for a part that
    there is not, with those there are.
    """
    if isinstance(model, _Understood):
        return model.argument
    text = os.fsdecode(model)
    source, colon, name = text.partition(":")
    for kind in _BUILT:
        if colon and source == kind:
            if not name:
                raise ArgumentError(f"{text!r} names no model; write {source}:NAME, as {source}:{_AS[kind]}")
            return ModelArgument(kind, name)
    if colon and source in ("hf", "onnx") and not exists(Path(text)):
        found = understood(name)
        if found.kind != source:
            raise FormatError(f"{shown(name)} is {KINDS[found.kind]}; write {found.source}, or its path alone")
        return found
    path = Path(text)
    suffix = path.suffix.lower()
    mode = mode_of(path)
    content = None if mode is None else _content(path, mode)
    if content is not None and content.is_empty:
        raise FormatError(f"{shown(text)}: the file is empty, and a model was expected; is the download complete?")
    if content is not None:
        with contextlib.suppress(FileError):
            if known := formats.recognised(content):
                return ModelArgument("file", text, format=known.name)
        if content.is_gguf and not content.is_folder:
            return ModelArgument("hf", text)
    _refuse_unread(path, suffix)
    if mode is None:
        return _named(text, path)
    if stat.S_ISDIR(mode):
        return _in_folder(path)
    is_configuration = suffix == ".json" or (content is None and suffix == ".gguf")
    return ModelArgument("hf" if is_configuration else "onnx", text)


def _content(path: Path, mode: int) -> formats.Content | None:
    """What a file or folder at ``path`` shows of itself. None of what cannot be opened, which is refused later."""
    if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
        return None
    with contextlib.suppress(FileError):
        return formats.Content.of(path)
    return None


def _refuse_unread(path: Path, suffix: str) -> None:
    """Raises UnsupportedError for files that are never read, by their suffix."""
    if suffix in _PICKLES:
        raise UnsupportedError(
            f"{path}: files of type {suffix} are pickles or archives of them, which can run code when read, and are "
            "never unpickled here; export the model to ONNX (torch.onnx.export) and pass that file, or build the "
            "module in Python and pass it to perfpass.predict with input_shape"
        )
    if suffix in _WEIGHTS:
        raise UnsupportedError(
            f"{path}: {suffix} holds weights without the operators that use them; pass the model's ONNX file, its "
            "Hugging Face config.json, or the torch module"
        )
    if suffix in _ENGINES:
        raise UnsupportedError(
            f"{path}: TensorRT's engines are not read; give what one says of its layers (trtexec "
            "--profilingVerbosity=detailed --exportLayerInfo=FILE), or the model that it was built from"
        )


def _named(text: str, path: Path) -> ModelArgument:
    """A shipped configuration, a repository of a hub, or the error of what is no file either."""
    if path.suffix.lower() in _FILES:
        beside = _models_in(path.parent)
        raise FileError(f"{shown(text)}: no such file;{nearest(path.name, beside) or ' give the path of the model'}")
    if built := _built(text):
        return built
    from perfpass.importers import configuration_names, definitions, library_names, model_names, sound_models

    found = model_names.find(text)
    if found is not None:
        notes = (*found.notes, *sound_models.follows(found.configuration))
        return ModelArgument("hf", found.configuration, found.stored, notes)
    if why := sound_models.by_name(text):
        raise UnsupportedError(f"{shown(text)} {why}")
    if text.startswith(_TIMM):
        return ModelArgument("timm", text.removeprefix(_TIMM))
    whole, _, part = text.rpartition(":")
    if whole and part and not model_names.is_type(part) and (one := _part(whole, part)):
        return one
    from perfpass.importers import hub

    if pipeline := hub.pipeline(text):
        return ModelArgument("file", str(pipeline), repository=text, format="diffusers")
    if shipped := configuration_names.pipeline(text):
        note = f"{text} was read as the pipeline {shipped.name}, of which the configurations ship"
        return ModelArgument("file", str(shipped), notes=(note,), format="diffusers")
    if what := configuration_names.several(text):
        raise UnsupportedError(
            f"{shown(text)} is no single network: {what}. Ask for its networks exported to ONNX (torch.onnx.export) or "
            "as torch modules; a pipeline of diffusers is read whole, and FOLDER:NETWORK of it, from its folder with "
            "model_index.json and the config.json of each network (hf download NAME --include '*.json')"
        )
    why = ""
    repository, _, kind = text.partition(":")
    if hub.may_be_repository(repository):
        try:
            return ModelArgument("hf", str(hub.model(repository, kind)), repository=repository)
        except FileError as error:
            why = f" As a repository: {error}."
    names = (*configuration_names.known(), *library_names.names(), *definitions.names())
    # A name of an owner that is known is misspelt as a whole, one of another owner may be a copy.
    owner = text.partition("/")[0].lower() + "/"
    asked = (text, path.name) if any(name.lower().startswith(owner) for name in names) else (path.name, text)
    like = nearest(path.name, _models_in(path.parent)) or nearest(asked[0], names) or nearest(asked[1], names)
    like = like or (nearest(whole, names) if whole else "")
    begin = "A" if like or why else "a"
    end = "." if why and not like else ";"
    raise FileError(
        f"{shown(text)}: neither a file nor a known model{end}{like}{why} {begin} model is an ONNX or GGUF file, a "
        "Hugging Face config.json or its folder, the name of a network or of a repository, timm:NAME or "
        "torchvision:NAME"
    )


def _part(whole: str, part: str) -> ModelArgument | None:
    """A part of a model that is known; None where the model is not. Raises UnsupportedError for another part."""
    from perfpass.importers import configuration_names

    if parts := configuration_names.parts(whole):
        if part.lower() in parts:
            return understood(parts[part.lower()])
        raise UnsupportedError(
            f"{whole} has no part {shown(part)};{nearest(part, parts)} its parts are {', '.join(parts)}"
        )
    try:
        found = understood(whole)
    except PerfPassError:
        return None
    if found.format == "diffusers":
        return ModelArgument("file", f"{found.name}:{part}", notes=found.notes, format=found.format)
    if found.kind != "hf":
        raise UnsupportedError(
            f"{whole} is {found.described}, of which no part has a name, so not {shown(part)}; ask for {whole} alone"
        )
    from perfpass.importers.model_parts import part as part_of
    from perfpass.importers.model_sources import read_configuration

    name, _ = part_of(read_configuration(found.name, run_code=False), part, whole)
    return ModelArgument("hf", f"{found.name}:{name}", found.stored, found.notes)


def _built(text: str) -> ModelArgument | None:
    """A network that a library or we define under this very name; None where none does."""
    from perfpass.importers import configuration_names, definitions, library_names

    if network := configuration_names.network(text):
        return ModelArgument("torchvision", network)
    if library := library_names.library(text):
        return ModelArgument("timm" if library == "timm" else "torchvision", text.lower())
    if own := definitions.named(text):
        return ModelArgument("definitions", own)
    return None


def _in_folder(path: Path) -> ModelArgument:
    if (path / "config.json").is_file():
        return ModelArgument("hf", str(path))
    found = [name for name in _models_in(path) if name.lower().endswith(".onnx")]
    packed = [name for name in _models_in(path) if name.lower().endswith(".gguf")]
    if len(found) == 1:
        return ModelArgument("onnx", str(path / found[0]))
    if not found and packed and (len(packed) == 1 or "-00001-of-" in packed[0]):
        return ModelArgument("hf", str(path / packed[0]))
    if not found:
        raise FormatError(
            f"{path}: a folder without config.json, one .gguf or an .onnx file; give one of these, or a Hugging Face "
            "model folder"
        )
    names = ", ".join(found[:_MOST_SHOWN]) + (" and others" if len(found) > _MOST_SHOWN else "")
    raise FormatError(f"{path}: a folder with {len(found)} ONNX files; give one of them: {names}")


def _models_in(folder: Path) -> list[str]:
    """Names of the ONNX, JSON and GGUF files of a folder; none where it cannot be read."""
    try:
        names = sorted(entry.name for entry in os.scandir(folder or "."))
    except OSError:
        return []
    return [name for name in names if name.lower().endswith(_FILES)]


def opened(
    model: Any, input_shape: Any = None, dims: Mapping[str, int] | None = None
) -> tuple[Any, Any, Mapping[str, int] | None]:
    """A model of timm, torchvision or our own as its module (without weights), the shape of its input without the
    batch, and no dims, of which ``image_size`` was one; the module of what torch.export made; everything else as it is
    given.

    Raises UnsupportedError for a model that the installed library does not have, ArgumentError for other dims.
    """
    if type(model).__name__ == "ExportedProgram" and hasattr(model, "graph_signature"):
        return model.module(), input_shape, dims
    if not isinstance(model, (str, os.PathLike)):
        return model, input_shape, dims
    found = understood(model)
    if found.kind not in _BUILT:
        return _as(found.name, found), input_shape, dims
    if found.kind == "definitions":
        return *_defined(found, input_shape, dims), None
    from perfpass.importers import model_sources

    size = _size(found, "image_size", dims)
    if isinstance(input_shape, Mapping) and input_shape:
        raise ArgumentError(
            f"{found.source} has one input, an image; set its size with --dim image_size=N (dims={{'image_size': N}})"
        )
    module, shape = getattr(model_sources, f"{found.kind}_image_model")(found.name, size)
    return module, input_shape or shape, None


def unasked(model: Any, input_shape: Any, dims: Mapping[str, int] | None) -> tuple[str, ...]:
    """The name of a size that nobody asked for, of a network that a library or we define: `OpGraph.unasked`."""
    if dims or input_shape or not isinstance(model, (str, os.PathLike)):
        return ()
    found = understood(model)
    if found.kind == "definitions":
        from perfpass.importers import definitions

        sized_by = definitions.definition(found.name).sized_by
        return (sized_by,) if sized_by else ()
    return ("image_size",) if found.kind in _BUILT else ()


def _defined(found: ModelArgument, input_shape: Any, dims: Mapping[str, int] | None) -> tuple[Any, Any]:
    """A network of ours and the shapes of its inputs."""
    from perfpass.importers import definitions

    own = definitions.definition(found.name)
    if input_shape:
        set_by = f"--dim {own.sized_by}=N (dims={{'{own.sized_by}': N}})" if own.sized_by else "nothing but the batch"
        raise ArgumentError(f"{found.source} has inputs of its own, which are set by {set_by}; leave input_shape out")
    size = _size(found, own.sized_by, dims)
    return own.module(), own.inputs(*((size, size) if size else own.size))


def _size(found: ModelArgument, name: str, dims: Mapping[str, int] | None) -> int | None:
    """What ``dims`` give the one size of a network, which is called ``name`` ("" where it has none)."""
    unknown = sorted(set(dims or {}) - {name})
    if unknown:
        allowed = f"allowed is {name}" if name else "its inputs are of fixed shapes"
        raise ArgumentError(
            f"{found.source} has no dimension {unknown[0]!r}; {allowed}; batch and --batch set the batch"
        )
    size = (dims or {}).get(name)
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= 16384):
        raise ArgumentError(f"{name} = {size!r}; it must be a whole number from 1 to 16384")
    return size
