"""Models by name, built from definitions installed here: timm, torchvision, Hugging Face configurations.

Weights are never downloaded or read: on the meta device there are none, elsewhere they are random. Needs no compiled
core.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfpass.bounded_file import exists
from perfpass.errors import FormatError, PerfPassError, UnsupportedError, needs
from perfpass.importers import catalogue, configuration_ranges, model_parts
from perfpass.importers.formats import is_gguf
from perfpass.json_text import read_json
from perfpass.text import nearest

if TYPE_CHECKING:
    import torch

CONFIGURATIONS = Path(__file__).resolve().parent.parent / "configurations"
# Model types of code in repositories, which is never run, and those of transformers that build the same layers.
_SAME_LAYERS = {"kimi_k2": "deepseek_v3", "internlm2": "llama", "baichuan": "llama"}
_LONGEST_CHAIN = 4  # of configurations that each change another
_FRAMES = 16  # of a film: the clip that torchvision's video models were trained on
_TORCHVISION_FILMS = {  # edge of a frame, in pixels
    **dict.fromkeys(("r3d_18", "mc3_18", "r2plus1d_18"), 112),
    **dict.fromkeys(("s3d", "mvit_v1_b", "mvit_v2_s", "swin3d_t", "swin3d_s", "swin3d_b"), 224),
}
_RAFT_IMAGE = (3, 520, 960)  # torchvision's example of optical flow
LARGEST_CONFIG_BYTES = 16 * 2**20  # the largest public configurations (label lists) stay below 2 MiB


def read_configuration(config: str | os.PathLike[str] | Mapping[str, Any], *, run_code: bool = True) -> dict[str, Any]:
    """The content of a config.json, of the one in a folder, of a shipped one by its name (`CONFIGURATIONS`, the first
    names of `perfpass.importers.catalogue`), of a part of one behind a colon (`perfpass.importers.model_parts`), or
    what the header of a GGUF file says.

    Raises FileError, FormatError for a file that is no configuration or has a field out of its range, and, where the
    model is to be built (``run_code``), UnsupportedError for one that needs code of its own (`auto_map`): that code
    would have to be downloaded and run.
    """
    where = "the configuration"
    if isinstance(config, Mapping):
        content: Any = dict(config)
    else:
        path = Path(config)
        shipped = CONFIGURATIONS / f"{path.name}.json"
        here = exists(path)
        if not here and path.name == str(config) and shipped.exists():
            path, here = shipped, True
        where = str(path)
        whole, colon, asked = where.rpartition(":")
        if not here and catalogue.holds(where):
            content = _listed(where)
        elif not here and colon and asked:
            content = model_parts.part(read_configuration(whole, run_code=run_code), asked, whole)[1]
        elif is_gguf(path):
            from perfpass.importers import gguf

            content = gguf.read(path).configuration
        else:
            path = path / "config.json" if path.is_dir() else path
            where = str(path)
            # Keys that no model type has are usual, and so is Infinity; `configuration_ranges` has the fields that
            # count.
            content = read_json(path, "a config.json", LARGEST_CONFIG_BYTES, any_number=True)
    if not isinstance(content, dict) or not isinstance(content.get("model_type"), str):
        raise FormatError(
            f"{where} has no model_type, so it is no Hugging Face model configuration{_of_diffusers(content)}"
        )
    configuration_ranges.check(content, where)
    if run_code and content.get("auto_map"):
        raise UnsupportedError(
            f"{where} needs code from its own repository (auto_map), which is never downloaded or run; "
            "export the model to ONNX and pass that file"
        )
    return content


def _of_diffusers(content: Any) -> str:
    """What to give instead of the configuration of one network of a pipeline."""
    name = content.get("_class_name") if isinstance(content, dict) and "_diffusers_version" in content else None
    if not isinstance(name, str):
        return ""
    return (
        f": it is that of a network of diffusers ({name[:80]}); give the folder of its pipeline, which has "
        "model_index.json, or build the module and pass it to perfpass.predict with input_shape"
    )


def _listed(name: str, depth: int = 0) -> dict[str, Any]:
    """The configuration of an entry of the catalogue: its fields, over those of the one that it is like."""
    found = catalogue.entry(name)
    like = found.get("like")
    if like is None:
        return dict(found["config"])
    if depth >= _LONGEST_CHAIN:
        raise FormatError(f"{name} leads to over {_LONGEST_CHAIN} others of the catalogue")
    base = _listed(like, depth + 1) if catalogue.holds(like) else read_configuration(like, run_code=False)
    return {**base, **found["config"]}


def huggingface(content: Mapping[str, Any], *, dtype: str, causal: bool, device: str = "meta") -> torch.nn.Module:
    """The module of the configuration's first architecture, in eval mode.

    ``causal``: with a language-modelling head where the configuration names no architecture.
    Raises UnsupportedError where the installed transformers cannot build it.
    """
    from perfpass.importers import sound_models, torchvision_schemas

    with needs("transformers", "a Hugging Face configuration"):
        torchvision_schemas.define()
        import torch
        import transformers

    kind = _SAME_LAYERS.get(content["model_type"], content["model_type"])
    if why := sound_models.by_type(kind):
        raise UnsupportedError(f"model_type {kind!r} {why}")
    if kind not in transformers.CONFIG_MAPPING:
        raise UnsupportedError(
            f"model_type {kind!r} is unknown to transformers {transformers.__version__}; export the model to ONNX and "
            "pass that file"
        )
    dropped = ("model_type", "torch_dtype", "dtype", "quantization_config")
    settings = {k: v for k, v in content.items() if k not in dropped}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            configuration = transformers.CONFIG_MAPPING[kind](**settings)
            configuration.architectures = configuration.architectures or []  # of None transformers cannot choose
            names = content.get("architectures") or [] if kind == content["model_type"] else []
            named = _class_of(configuration, names[0]) if names else None
            with torch.device(device), _host_sizes(), _default_dtype(dtype if device != "meta" else "float32"):
                if isinstance(named, type) and issubclass(named, transformers.PreTrainedModel):
                    model = named(configuration)
                elif causal and type(configuration) in transformers.AutoModelForCausalLM._model_mapping:
                    model = transformers.AutoModelForCausalLM.from_config(configuration, trust_remote_code=False)
                else:
                    model = _auto_class(configuration).from_config(configuration, trust_remote_code=False)
    except (PerfPassError, MemoryError):
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise UnsupportedError(f"{kind}: transformers cannot build this configuration: {error}") from error
    return model.to(getattr(torch, dtype)).eval()


def _class_of(configuration: Any, name: str) -> Any:
    """A class of transformers, or of the module beside a configuration's; None where there is none of the name."""
    import transformers

    if found := getattr(transformers, name, None):
        return found
    place = type(configuration).__module__.replace(".configuration_", ".modeling_")
    return getattr(importlib.import_module(place), name, None)


def _auto_class(configuration: Any) -> Any:
    """The class of transformers that makes a model of the configuration; AutoModel where it can, or where none does."""
    import transformers

    plain = transformers.AutoModel
    others = (value for value in vars(transformers.models.auto.modeling_auto).values() if isinstance(value, type))
    able = [one for one in (plain, *others) if type(configuration) in (getattr(one, "_model_mapping", None) or ())]
    return next((one for one in able if one.__name__.startswith("AutoModel")), plain)


def is_decoder(model: Any) -> bool:
    """Whether the model generates token by token with a cache of keys and values."""
    configuration = model.config
    if getattr(configuration, "is_encoder_decoder", False):
        return False
    return bool(model.can_generate()) or bool(getattr(configuration, "is_decoder", False))


def _host_sizes() -> contextlib.AbstractContextManager[Any]:
    """A whole number that a constructor keeps as a tensor (a stride, a padding) stays on the host: shapes follow it.

    BatchNorm's number of batches names a device, if none, and goes where the rest goes: training writes it.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    def whole(kwargs: dict) -> bool:
        return kwargs.get("dtype") in (None, int, torch.int64, torch.int32, torch.int16, torch.int8)

    class HostSizes(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
            kwargs = kwargs or {}
            if func is torch.tensor and "device" not in kwargs and args and type(args[0]) is int and whole(kwargs):
                kwargs = kwargs | {"device": "cpu"}
            return func(*args, **kwargs)

    return HostSizes()


@contextlib.contextmanager
def _default_dtype(name: str) -> Iterator[None]:
    """Parameters are made in their final type: a model of 8e9 parameters need not pass through fp32."""
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, name))
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of a framework means that memory, of the host or a device, is exhausted."""
    text = str(error).lower()
    return (
        isinstance(error, MemoryError)
        or (type(error).__name__ in ("OutOfMemoryError", "AcceleratorError") and "memory" in text)
        or any(phrase in text for phrase in ("out of memory", "can't allocate memory", "bad_alloc", "bad allocation"))
    )


def timm(name: str, image_size: int | None = None, device: str = "meta") -> torch.nn.Module:
    """A timm model, in eval mode. Raises UnsupportedError where timm does not know or cannot build it."""
    from perfpass.importers import torchvision_schemas

    with needs("timm", "a model of timm"):
        torchvision_schemas.define()
        import timm as library
        import torch

    base = name.partition(".")[0]  # resnet50.a1_in1k: the part behind the point names weights
    if not library.is_model(base):
        raise UnsupportedError(
            f"timm {library.__version__} has no model {name!r};{nearest(base, library.list_models())} "
            "timm.list_models() lists them, and nothing is downloaded"
        )
    try:
        with torch.device(device), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if image_size is not None:
                with contextlib.suppress(TypeError):  # networks that take any size have no such argument
                    return library.create_model(name, pretrained=False, img_size=image_size).eval()
            return library.create_model(name, pretrained=False).eval()
    except MemoryError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise UnsupportedError(f"timm {library.__version__} cannot build {name!r}: {error}") from error


def torchvision(name: str, device: str = "meta") -> torch.nn.Module:
    """A torchvision model, in eval mode. Raises UnsupportedError where torchvision does not have it."""
    from perfpass.importers import torchvision_schemas

    with needs("timm", "a model of torchvision"):
        torchvision_schemas.define()
        import torch
        import torchvision as library

    if name not in library.models.list_models():
        raise UnsupportedError(
            f"torchvision {library.__version__} has no model {name!r};{nearest(name, library.models.list_models())} "
            "torchvision.models.list_models() lists them"
        )
    extra: dict[str, Any] = {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
    if "weights_backbone" in inspect.signature(library.models.get_model_builder(name)).parameters:
        extra["weights_backbone"] = None  # it would be downloaded
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with torch.device(device):
                module: torch.nn.Module = library.models.get_model(name, weights=None, **extra)
        except NotImplementedError:  # RegNet computes its widths with tensors, which the meta device does not have
            module = library.models.get_model(name, weights=None, **extra).to(device)
    return module.eval()


def timm_image_model(
    name: str, image_size: int | None = None, device: str = "meta"
) -> tuple[torch.nn.Module, tuple[int, int, int]]:
    """`timm`, and the shape [C, H, W] of its images: ``image_size``, or what the model was made for."""
    module = timm(name, image_size, device)
    settings: Any = getattr(module, "pretrained_cfg", None) or getattr(module, "default_cfg", None) or {}
    channels, height, width = settings.get("input_size") or (3, 224, 224)
    return module, (int(channels), int(image_size or height), int(image_size or width))


def torchvision_image_model(
    name: str, image_size: int | None = None, device: str = "meta"
) -> tuple[torch.nn.Module, tuple[int, ...] | tuple[tuple[int, ...], ...]]:
    """`torchvision`, and the shape of what it reads, of ``image_size`` or of the size that it was made for.

    [C, H, W] of an image, [C, T, H, W] of a film, and two images where the flow between them is asked for.
    """
    module = torchvision(name, device)
    if name in _TORCHVISION_FILMS:
        size = image_size or _TORCHVISION_FILMS[name]
        return module, (3, _FRAMES, size, size)
    if name.startswith("raft_"):
        image = (3, image_size, image_size) if image_size else _RAFT_IMAGE
        return module, (image, image)
    size = image_size or (299 if name in ("inception_v3", "quantized_inception_v3") else 224)
    return module, (3, size, size)
