"""The training benchmarks of milabench whose model is public, as programs whose allocations can be recorded.

Definitions: mila-iqia/milabench (MIT), config/base.yaml (model, precision), benchmarks/torchvision/main.py,
torchvision_ddp/main.py, lightning/main.py, huggingface/bench (model, length, optimizer, order of a step) and timm's
train.py. The measured versions of transformers are 4.44 to 4.48; T5, Whisper and Reformer allocate differently since.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from perfpass.importers.torch_memory import Recorded


@dataclass(frozen=True)
class Bench:
    """One benchmark: ``model`` names a builder of `_MODELS`; the rest are arguments of `torch_memory.record`.

    ``copies`` counts buffers as large as all parameters that a wrapper adds (DistributedDataParallel: 1). ``inferred``
    says what its public definition leaves open and the measured slope decided.
    """

    model: str
    precision: str
    optimizer: str
    zero_grad: str = "none"
    loop: bool = True
    copies: int = 0
    half_inputs: bool = False
    inferred: str = ""


_VISION: dict[str, Any] = {"optimizer": "sgd", "zero_grad": "zeros", "half_inputs": True}
_TEXT: dict[str, Any] = {"optimizer": "adam", "zero_grad": "never", "loop": False}
BENCHES: dict[str, Bench] = {
    "resnet50": Bench("torchvision:resnet50", "amp", **_VISION),
    "resnet50-noio": Bench(
        "torchvision:resnet50", "fp32", **(_VISION | {"half_inputs": False}), inferred="fp32, not autocast"
    ),
    **{
        f"convnext_large-{name}": Bench("torchvision:convnext_large", precision, **(_VISION | {"half_inputs": half}))
        for name, precision, half in (
            ("fp32", "fp32", False),
            ("tf32", "tf32", False),
            ("fp16", "amp", True),
            ("tf32-fp16", "amp", True),
        )
    },
    "regnet_y_128gf": Bench("torchvision:regnet_y_128gf", "amp", **_VISION),
    "resnet152-ddp-gpus": Bench("torchvision:resnet152", "amp_bf16", "sgd", copies=1),
    "lightning": Bench("torchvision:resnet152", "amp_bf16", "adam"),
    "lightning-gpus": Bench("torchvision:resnet152", "amp_bf16", "adam", copies=1),
    "focalnet": Bench("timm:focalnet_base_lrf", "amp_bf16", "sgd_momentum"),
    **{
        f"bert-{name}": Bench("transformers:bert", precision, **_TEXT)
        for name, precision in (("fp32", "fp32"), ("tf32", "tf32"), ("fp16", "amp"), ("tf32-fp16", "amp"))
    },
    "t5": Bench("transformers:t5", "amp", **_TEXT),
    "reformer": Bench("transformers:reformer", "amp", **_TEXT),
    "whisper": Bench("transformers:whisper", "amp", **_TEXT),
}
_LENGTHS = {"bert": 512, "t5": 1024, "reformer": 4096}


def family(bench: str) -> str:
    """The group that is held out together: everything that trains the same network."""
    return BENCHES[bench].model.partition(":")[2]


def recorded(bench: str, batch: int) -> Recorded:
    """Two steps of a benchmark at a batch size."""
    import torch
    from torch.nn import functional

    from perfpass.importers.torch_memory import record

    b = BENCHES[bench]
    source, _, name = b.model.partition(":")
    module = _built(source, name)
    inputs: Callable[[], Any]
    loss: Callable[[Any], torch.Tensor]
    if source == "transformers":

        def inputs() -> Any:
            if name == "whisper":
                return {
                    "input_features": torch.empty(batch, 80, 3000),
                    "labels": torch.empty(batch, dtype=torch.int64),
                }
            return {n: torch.empty(batch, _LENGTHS[name], dtype=torch.int64) for n in ("input_ids", "labels")}

        def loss(out: Any) -> torch.Tensor:
            return out.loss
    else:
        kind = torch.float16 if b.half_inputs else torch.float32

        def inputs() -> Any:
            return (torch.empty(batch, 3, 224, 224, dtype=kind),)

        def loss(out: Any) -> torch.Tensor:
            return functional.cross_entropy(out, torch.empty(batch, dtype=torch.int64))

    return record(
        module,
        inputs,
        precision=b.precision,
        optimizer=b.optimizer,
        loss=loss,
        zero_grad=b.zero_grad,
        loop=b.loop,
        buckets=b.copies > 0,
    )


def _built(source: str, name: str) -> torch.nn.Module:
    from perfpass.importers import model_sources

    if source == "timm":
        return model_sources.timm(name)
    if source == "torchvision" and name != "regnet_y_128gf":
        return model_sources.torchvision(name)
    from perfpass.importers import torchvision_schemas

    torchvision_schemas.define()
    import torch

    if source == "torchvision":
        return _regnet()
    import transformers

    kinds: dict[str, tuple[str, str, dict[str, Any]]] = {
        "bert": ("BertForMaskedLM", "BertConfig", {}),
        "t5": ("T5ForConditionalGeneration", "T5Config", {"num_layers": 6, "decoder_start_token_id": 0}),  # t5-small
        "reformer": ("ReformerForMaskedLM", "ReformerConfig", {"is_decoder": False, "num_buckets": 128}),
        "whisper": (
            "WhisperForAudioClassification",
            "WhisperConfig",
            {"d_model": 384, "encoder_layers": 4, "encoder_attention_heads": 6, "encoder_ffn_dim": 1536},  # tiny
        ),
    }
    model, config, options = kinds[name]
    with torch.device("meta"):
        built = getattr(transformers, model)._from_config(getattr(transformers, config)(**options))
    assert isinstance(built, torch.nn.Module)
    return built


def _regnet() -> torch.nn.Module:
    """regnet_y_128gf. Its widths are computed with tensors, so that part cannot run on the meta device."""
    from functools import partial

    import torch
    from torchvision.models.regnet import BlockParams, RegNet

    sizes = {"depth": 27, "w_0": 456, "w_a": 160.83, "w_m": 2.52, "group_width": 264, "se_ratio": 0.25}
    blocks = BlockParams.from_init_params(**sizes)
    with torch.device("meta"):
        return RegNet(blocks, norm_layer=partial(torch.nn.BatchNorm2d, eps=1e-5, momentum=0.1))
