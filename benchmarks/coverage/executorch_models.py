"""ExecuTorch programs of networks of torchvision, timm and transformers: portable kernels, and handed to XNNPACK."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path

from converted import FOLDED, built, counted, names
from row import NotMadeError, Reading

import perfpass

TITLE = "ExecuTorch"
PACKAGES = ("executorch", "torch", "torchvision", "timm", "transformers")
_DROPPED = "torch.export drops what no output needs (a BERT's pooler)"
_PORTABLE = (
    "torchvision:mobilenet_v3_small torchvision:resnet18 torchvision:shufflenet_v2_x1_0 torchvision:squeezenet1_1 "
)
_PORTABLE += "timm:lcnet_050 timm:vit_tiny_patch16_224 transformers:albert transformers:bert transformers:distilbert "
_PORTABLE += "transformers:gpt2 transformers:llama transformers:t5-encoder"


def models() -> list[str]:
    """SOURCE:NAME/WAY, each handed to XNNPACK, and some for portable kernels."""
    return [*(f"{name}/xnnpack" for name in names()), *(f"{name}/portable" for name in _PORTABLE.split())]


def read(model: str) -> Reading:
    """The program beside the torch route."""
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import EdgeCompileConfig, to_edge, to_edge_transform_and_lower

    name, _, way = model.rpartition("/")
    module, example = built(name)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            program = torch.export.export(module, (example,))
            if way == "xnnpack":
                lowered = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
            else:
                lowered = to_edge(program, compile_config=EdgeCompileConfig(_check_ir_validity=False))
            written = lowered.to_executorch().buffer
    except Exception as error:
        raise NotMadeError(f"executorch: {type(error).__name__}: {str(error)[:200]}") from error
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pte"
        path.write_bytes(written)
        del written, lowered, program
        graph = perfpass.load(path)
    theirs = counted(module, example)
    return Reading(graph, theirs["macs"], theirs["parameters"], FOLDED if way == "xnnpack" else _DROPPED)
