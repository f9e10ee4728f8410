"""A diffusers pipeline from its ``model_index.json``: which networks run, how often, on what.

The networks are built by diffusers and transformers from their ``config.json`` on the meta device and traced; no weight
is read and no code of the pipeline's repository is run.
"""

from __future__ import annotations

import importlib
import inspect
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from perfpass import json_text
from perfpass.errors import ArgumentError, FormatError, LimitError, PerfPassError, UnsupportedError, needs
from perfpass.graph import single
from perfpass.graph.assumed import STEPS, Assumed
from perfpass.graph.joined import Part
from perfpass.text import shown_value

INDEX = "model_index.json"
USUAL = "_usual"
DIMS = ("height", "width", "frames", "tokens")
_MOST_BYTES = 1 << 22
_MOST_LAYERS = 1024
_MOST_SIZE = 1 << 16
_EXTRA = "a diffusers pipeline"
_DECODERS = ("vae", "movq", "vqgan", "vqvae")
_NO_NETWORKS = ("scheduler", "tokenizer", "feature_extractor", "image_processor", "processor", "guider")
# Both halves of guidance in two runs, not in one of twice the batch (besides pipelines with a true_cfg_scale).
_TWO_RUNS = frozenset({"WanPipeline", "ChromaPipeline", "CogView4Pipeline", "HunyuanImagePipeline"})
# Tokens of text where the pipeline's arguments have none, from its code; and what its template of a prompt adds.
_TOKENS = {
    "Kandinsky3Pipeline": 128,
    "StableAudioPipeline": 128,
    "HunyuanDiTPipeline": 256,
    "LattePipeline": 120,
    "AudioLDM2Pipeline": 128,
}
_TEMPLATE = {"HunyuanVideoPipeline": 95, "QwenImagePipeline": 34}
_CLIP_TOKENS = 77
_CASCADE = (
    42.67  # pixels a side of Stable Cascade's and Wuerstchen's smallest latents; the decoder's are 10.67 times as many
)
_CASCADE_DECODER = 10.67


@dataclass(frozen=True)
class Pipeline:
    """What an index says: the class of the pipeline and of its networks, by component.

    ``usual``: arguments that are usual of it where its class has others, by name; an index that ships says so of a
    distilled pipeline, whose card runs fewer steps and no guidance.
    """

    folder: Path
    name: str
    components: Mapping[str, tuple[str, str]]
    usual: Mapping[str, float] = field(default_factory=dict)


@dataclass
class Found:
    """The networks as parts, notes of what runs and what is not counted, the number of steps, and the sizes that nobody
    asked for.
    """

    parts: list[Part]
    notes: list[str]
    steps: Assumed
    unasked: tuple[str, ...]


def read_index(path: Path) -> Pipeline:
    """Raises FileError, FormatError, and UnsupportedError for a pipeline with code of its own."""
    path = path / INDEX if path.is_dir() else path
    content = json_text.read_json(path, "a pipeline's model_index.json", _MOST_BYTES, any_number=True)
    if not isinstance(content, dict):
        raise FormatError("a model_index.json that holds no object; download the pipeline again")
    name = content.get("_class_name")
    if isinstance(name, list):
        raise UnsupportedError(
            f"a pipeline with code of its own ({shown_value(name)}), which is never run; predict its networks alone"
        )
    if not isinstance(name, str):
        raise FormatError("a model_index.json without _class_name; download the pipeline again")
    components = {}
    for key, value in content.items():
        if key.startswith("_"):
            continue
        if isinstance(value, list) and len(value) == 2 and all(isinstance(v, str) for v in value):
            components[key] = (value[0], value[1])
    return Pipeline(path.parent, name, components, _usual(content.get(USUAL, {})))


def _usual(content: Any) -> dict[str, float]:
    """Numbers by the names of arguments. Raises FormatError."""
    if not isinstance(content, dict) or not all(type(v) in (int, float) and 0 <= v <= 10_000 for v in content.values()):
        raise FormatError(f"a model_index.json whose {USUAL} is {shown_value(content)}; it maps arguments to numbers")
    return content


def networks(pipeline: Pipeline, batch: int, dims: Mapping[str, int], assume: Mapping[str, int]) -> Found:
    """Every network of the pipeline that a prompt runs, traced at these sizes."""
    try:
        with needs("diffusers", _EXTRA):
            return _Reading(pipeline, batch, dims, assume).found()
    except PerfPassError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise UnsupportedError(
            f"{pipeline.name}: no input of its networks follows from their config.json ({error}); check the sizes there"
        ) from error


class _Reading:
    def __init__(self, pipeline: Pipeline, batch: int, dims: Mapping[str, int], assume: Mapping[str, int]) -> None:
        from perfpass.importers import torchvision_schemas

        torchvision_schemas.define()
        import diffusers

        self.library: Any = diffusers
        self.pipeline, self.batch, self.dims = pipeline, batch, _checked(dims)
        kind = getattr(diffusers, pipeline.name, None)
        if not isinstance(kind, type) or not issubclass(kind, diffusers.DiffusionPipeline):
            raise UnsupportedError(
                f"diffusers {diffusers.__version__} has no pipeline {pipeline.name[:80]!r}; install the release that "
                "wrote it, or predict its networks one by one"
            )
        self.defaults = {k: p.default for k, p in inspect.signature(kind.__call__).parameters.items()}
        usual = self.default("num_inference_steps", 1)
        self.upcasts = hasattr(kind, "upcast_vae")  # as pipelines do that decode in fp32 where they are in fp16
        self.steps = Assumed.steps(usual, assume.get(STEPS))
        self.notes: list[str] = []

    def default(self, name: str, otherwise: Any) -> Any:
        value = self.pipeline.usual.get(name, self.defaults.get(name))
        return otherwise if value is None or value is inspect.Parameter.empty else value

    # -- networks --------------------------------------------------------------------------------------------------

    def found(self) -> Found:
        from perfpass.importers.formats.diffusers.denoisers import DECODERS, DENOISERS

        classes = {key: of for key, (_, of) in self.pipeline.components.items()}
        denoisers = [key for key, of in classes.items() if of in DENOISERS]
        decoder = next((key for key in _DECODERS if classes.get(key) in DECODERS), None)
        if not denoisers:
            listed = ", ".join(f"{key} ({of})" for key, of in classes.items() if not key.startswith(_NO_NETWORKS))
            raise UnsupportedError(
                f"{self.pipeline.name}: none of its networks is known here to run once a step; it has {listed}"
            )
        configurations = {key: self.configuration(key) for key in [*denoisers, *([decoder] if decoder else [])]}
        built = {key: self.build(key, configurations[key]) for key in configurations}
        rule = DECODERS[classes[decoder]] if decoder else None
        main = built[denoisers[0]].config
        vae = built[decoder].config if decoder else None
        at = self.latent(main, rule, vae)
        parts = [p for key in classes if "text_encoder" in key and (p := self.text(key)) is not None]
        runs = self.shared(denoisers)
        for key in denoisers:
            how = DENOISERS[classes[key]](built[key].config, at)
            parts.append(Part(key, _traced(built[key], how), runs[key]))
        if decoder and rule is not None:
            parts.append(self.decoded(decoder, built[decoder], rule, at))
        known = {part.name for part in parts}
        beside = [key for key in classes if key not in known and not key.startswith(_NO_NETWORKS)]
        if beside:
            self.notes.append(f"not counted: {', '.join(f'{key} ({classes[key]})' for key in beside)}")
        counted = (f"{p.name} ({classes[p.name]}) runs {p.runs:g} time{'s' if p.runs != 1 else ''}" for p in parts)
        self.notes.insert(0, f"{self.pipeline.name}: {', '.join(counted)}")
        self.notes.insert(1, self.sizes(at, rule, vae))
        left = (name for name in DIMS if name not in self.dims and (name != "frames" or at.frames > 1))
        return Found(parts, self.notes, self.steps, tuple(left))

    def sizes(self, at: Any, rule: Any, vae: Any) -> str:
        side = rule.side(vae) if rule else 1
        return (
            f"latents of {at.height} x {at.width}{f' in {at.frames} frames' if at.frames > 1 else ''}, {side} a side; "
            f"{at.tokens} tokens of text; {'with' if self.guided else 'without'} guidance"
        )

    def shared(self, denoisers: list[str]) -> dict[str, float]:
        """Runs of each denoiser: of two transformers (Wan 2.2) each takes half of the steps."""
        times = self.steps.value * (2 if self.guided and self.two_runs else 1)
        return {key: times / len(denoisers) for key in denoisers}

    @property
    def two_runs(self) -> bool:
        return "true_cfg_scale" in self.defaults or self.pipeline.name in _TWO_RUNS

    @property
    def guided(self) -> bool:
        """Whether each step is run with the prompt and without it: the pipeline's own default."""
        if "true_cfg_scale" in self.defaults:
            return float(self.default("true_cfg_scale", 1.0)) > 1
        if self.pipeline.name in ("LatentConsistencyModelPipeline", "Flux2Pipeline"):
            return False  # told of the scale as an input
        scale = self.default("max_guidance_scale", self.default("guidance_scale", 1.0))
        return float(scale) > 1

    def configuration(self, key: str) -> dict[str, Any]:
        path = self.pipeline.folder / key / "config.json"
        content = json_text.read_json(path, f"the config.json of {key}", _MOST_BYTES, any_number=True)
        if not isinstance(content, dict):
            raise FormatError(f"{key}/config.json holds no object; download the pipeline again")
        _refuse_large(key, content)
        return content

    def build(self, key: str, content: dict[str, Any]) -> Any:
        """A network of diffusers on the meta device. Raises UnsupportedError where it cannot be built."""
        import torch

        library, name = self.pipeline.components[key]
        kind = self.network_class(key, library, name)
        try:
            with warnings.catch_warnings(), torch.device("meta"):
                warnings.simplefilter("ignore")
                return kind.from_config(content).eval()
        except (PerfPassError, MemoryError):
            raise
        except Exception as error:
            raise UnsupportedError(
                f"{key}: diffusers cannot build this {name} ({error}); check its config.json"
            ) from error

    def network_class(self, key: str, library: str, name: str) -> Any:
        base = self.library.ModelMixin
        places = [self.library]
        for module in (f"diffusers.pipelines.{library}", f"diffusers.pipelines.deprecated.{library}"):
            if library != "diffusers" and library.isidentifier():
                try:
                    places.append(importlib.import_module(module))
                except ImportError:
                    continue
        for place in places:
            kind = getattr(place, name, None)
            if isinstance(kind, type) and issubclass(kind, base):
                return kind
        raise UnsupportedError(
            f"{key} is a {name[:80]} of {library[:80]}, which diffusers {self.library.__version__} does not define; "
            "code of a repository is never run"
        )

    # -- sizes -----------------------------------------------------------------------------------------------------

    def latent(self, main: Any, rule: Any, vae: Any) -> Any:
        from perfpass.importers.formats.diffusers.denoisers import Latent

        side, deep = (rule.side(vae), rule.frames(vae)) if rule else (1, 1)
        height, width = (self.dims.get(n) or self.usual(n, main, side) for n in ("height", "width"))
        name = self.pipeline.name
        if name == "StableAudioPipeline":
            height, width = 1, int(main.sample_size)
        elif name == "AudioLDM2Pipeline":
            height, width = int(main.sample_size), self.bins() // side
        elif name.startswith(("StableCascade", "Wuerstchen")):
            scale = _CASCADE_DECODER if "Decoder" in name else 1
            height, width = (int(math.ceil(size / _CASCADE) * scale) for size in (height, width))
        else:
            height, width = height // side, width // side
        frames = self.dims.get("frames") or self.usual_frames(main, deep)
        if frames > 1 and deep > 1:
            frames = (frames - 1) // deep + 1 if (frames - 1) % deep == 0 else math.ceil(frames / deep)
        if height < 1 or width < 1:
            raise ArgumentError(f"height and width leave no latents: one stands for {side} x {side} pixels")
        batch = self.batch * (2 if self.guided and not self.two_runs else 1)
        return Latent(batch, height, width, frames, self.tokens())

    def usual(self, name: str, main: Any, side: int) -> int:
        """The pipeline's own height or width: its argument's default, else from what the network was made for."""
        given = self.default(name, None)
        if isinstance(given, int):
            return given
        size = getattr(main, f"sample_{name}", None) or getattr(main, "sample_size", None)
        size = size[0 if name == "height" else 1] if isinstance(size, list | tuple) else size
        if self.pipeline.name == "MochiPipeline":
            return 480 if name == "height" else 848
        return int(size) * side if isinstance(size, int) else 128 * max(side, 8)

    def usual_frames(self, main: Any, deep: int) -> int:
        given = self.default("num_frames", self.default("video_length", None))
        if isinstance(given, int):
            return given
        if self.pipeline.name == "AllegroPipeline":
            return int(main.sample_frames) * deep
        return int(getattr(main, "sample_frames", None) or getattr(main, "num_frames", None) or 1)

    def bins(self) -> int:
        """Mel bins of a vocoder."""
        value = self.configuration("vocoder").get("model_in_dim", 64)
        return int(value) if isinstance(value, int) else 64

    def tokens(self) -> int:
        """Tokens that a denoiser reads: those of the longer text encoder, of Stable Diffusion 3 those of both."""
        long = self.dims.get("tokens") or self.long_text()
        if self.pipeline.name.startswith("StableDiffusion3"):
            return _CLIP_TOKENS + long if "text_encoder_3" in self.pipeline.components else _CLIP_TOKENS
        return long

    def long_text(self) -> int:
        return int(self.default("max_sequence_length", _TOKENS.get(self.pipeline.name, _CLIP_TOKENS)))

    # -- text and pixels -------------------------------------------------------------------------------------------

    def text(self, key: str) -> Part | None:
        """A text encoder, of transformers; it reads the prompt, and with guidance also what is not wanted."""
        from perfpass.importers.huggingface import is_decoder
        from perfpass.importers.model_sources import huggingface, read_configuration

        library, name = self.pipeline.components[key]
        path = self.pipeline.folder / key / "config.json"
        if library != "transformers" or name == "ClapModel":
            return None
        content = {**read_configuration(path), "architectures": [name]}
        module: Any = huggingface(content, dtype="float32", causal=False)
        texts = getattr(module.config, "text_config", module.config)
        most = getattr(texts, "max_position_embeddings", None)
        short = name.startswith(("CLIP", "Bert"))
        length = _CLIP_TOKENS if short else (self.dims.get("tokens") or self.long_text())
        length += _TEMPLATE.get(self.pipeline.name, 0) if is_decoder(module) else 0
        length = min(length, most) if isinstance(most, int) and most > 0 else length
        given: dict[str, Any] = {"use_cache": False} if is_decoder(module) else {}
        ids = _meta((self.batch, length), "int64")
        graph = _traced(module, {"input_ids": ids, **given})
        kept = single.weights_of(graph, getattr(module, "_keep_in_fp32_modules", None) or ())
        return Part(key, replace(graph, single=kept), 2 if self.guided else 1)

    def decoded(self, key: str, module: Any, rule: Any, at: Any) -> Part:
        """Latents to pixels, once: frames of a picture's decoder are so many pictures."""
        from perfpass.importers.formats.diffusers.denoisers import Decoding

        channels = int(getattr(module.config, rule.channels))
        if type(module).__name__ == "AutoencoderKLAllegro":
            module.enable_tiling()  # it decodes no other way
        shape: tuple[int, ...]
        if type(module).__name__ == "AutoencoderOobleck":
            shape = (self.batch, channels, at.width)
        elif rule.video:
            shape = (self.batch, channels, at.frames, at.height, at.width)
        else:
            shape = (self.batch * at.frames, channels, at.height, at.width)
        graph = _traced(Decoding(module, at.frames), {"latents": _meta(shape, "float32")})
        wide = self.upcasts and bool(getattr(module.config, "force_upcast", False))
        if wide:
            self.notes.append(f"in fp16 {key} runs in fp32 (force_upcast)")
        return Part(key, replace(graph, single=single.all_of(graph)) if wide else graph)


def _meta(shape: tuple[int, ...], dtype: str) -> Any:
    import torch

    from perfpass.importers.torch import meta_tensor

    return meta_tensor(shape, getattr(torch, dtype))


def _traced(module: Any, given: Mapping[str, Any]) -> Any:
    """The graph of a network that is given these tensors by name; the first one begins with the batch."""
    from perfpass.importers.torch import trace_owned

    first, *others = given
    tensor = given[first]
    rest = {name: given[name] for name in others}
    shape = (tuple(tensor.shape[1:]), str(tensor.dtype).removeprefix("torch."))
    return trace_owned(module, {first: shape}, batch=int(tensor.shape[0]), given=rest, given_tensors=_named(rest))


def _named(given: Any, name: str = "") -> dict[str, Any]:
    """The meta tensors within arguments, by where they stand."""
    if hasattr(given, "device"):
        return {name: given} if given.device.type == "meta" else {}
    pairs = given.items() if isinstance(given, Mapping) else enumerate(given) if isinstance(given, tuple | list) else ()
    found: dict[str, Any] = {}
    for key, value in pairs:
        found |= _named(value, f"{name}.{key}" if name else str(key))
    return found


def _checked(dims: Mapping[str, int]) -> dict[str, int]:
    found = {}
    for name, value in dims.items():
        if name not in DIMS:
            raise ArgumentError(f"a pipeline has no dimension {shown_value(name)}; it has {', '.join(DIMS)}")
        if isinstance(value, bool) or not hasattr(value, "__index__") or not 1 <= value.__index__() <= _MOST_SIZE:
            raise ArgumentError(f"{name} = {shown_value(value)}; it must be a whole number from 1 to {_MOST_SIZE}")
        found[name] = value.__index__()
    return found


def _refuse_large(key: str, content: Any, name: str = "") -> None:
    """Raises LimitError for numbers of layers, or lists of blocks, that no network has: building them would not end."""
    if isinstance(content, dict):
        for inner, value in content.items():
            _refuse_large(key, value, str(inner))
    elif isinstance(content, list):
        if len(content) > _MOST_LAYERS:
            raise LimitError(f"{key}/config.json: {name} of {len(content)} entries; up to {_MOST_LAYERS} are read")
        for value in content:
            _refuse_large(key, value, name)
    elif isinstance(content, int) and not isinstance(content, bool):
        deep = ("layers" in name or "blocks" in name or "depth" in name) and "channels" not in name
        if abs(content) > (_MOST_LAYERS if deep else 1 << 24):
            raise LimitError(f"{key}/config.json: {name} = {content} is more than is read")
