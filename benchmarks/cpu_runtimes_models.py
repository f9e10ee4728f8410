"""Thirty-three networks with random weights as ONNX, OpenVINO and LiteRT files, for benchmarks/cpu_runtimes.py.

    python benchmarks/cpu_runtimes_models.py FOLDER [NAME ...]

Needs torch, torchvision, timm, transformers, openvino and litert-torch in one environment (litert-torch asks for older
releases of what a server needs, so not in perfpass's own). Files that are there are kept; what a converter refuses is
said and left out.
"""

from __future__ import annotations

import gc
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from perfpass.importers import torchvision_schemas

TORCHVISION = [
    "mobilenet_v2",
    "mobilenet_v3_small",
    "mobilenet_v3_large",
    "resnet18",
    "resnet50",
    "squeezenet1_1",
    "shufflenet_v2_x1_0",
    "mnasnet1_0",
    "efficientnet_b0",
    "regnet_y_400mf",
    "regnet_x_800mf",
    "densenet121",
    "googlenet",
]
TIMM = [
    "vit_tiny_patch16_224",
    "deit_small_patch16_224",
    "convnext_atto",
    "convnext_tiny",
    "mobilevit_s",
    "ghostnet_100",
    "mixnet_s",
    "resnext50_32x4d",
    "poolformer_s12",
    "repvgg_a0",
    "lcnet_050",
    "mobileone_s0",
    "efficientformer_l1",
    "tf_efficientnet_lite0",
]
TRANSFORMERS = ["bert", "distilbert", "roberta", "electra", "gpt2", "albert"]
_EDGES = {"mobilevit_s": 256}
_LENGTH = 128


class Hidden(torch.nn.Module):
    """A model of transformers that reads tokens alone and gives its last hidden states alone."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids).last_hidden_state


def language(name: str) -> torch.nn.Module:
    """Six layers: of 384 units in DistilBERT and GPT-2, of 256 elsewhere."""
    import transformers as t

    sizes = {"hidden_size": 256, "num_hidden_layers": 6, "num_attention_heads": 4, "intermediate_size": 1024}
    made: dict[str, Callable[[], Any]] = {
        "bert": lambda: t.BertModel(t.BertConfig(**sizes)),
        "roberta": lambda: t.RobertaModel(t.RobertaConfig(**sizes)),
        "electra": lambda: t.ElectraModel(t.ElectraConfig(**sizes, embedding_size=128)),
        "albert": lambda: t.AlbertModel(t.AlbertConfig(**sizes, embedding_size=128)),
        "distilbert": lambda: t.DistilBertModel(t.DistilBertConfig(dim=384, n_layers=6, n_heads=6, hidden_dim=1536)),
        "gpt2": lambda: t.GPT2Model(t.GPT2Config(n_embd=384, n_layer=6, n_head=6, use_cache=False)),
    }
    return Hidden(made[name]().eval())


def built(name: str) -> tuple[torch.nn.Module, torch.Tensor]:
    """The network and an input for it."""
    if name in TRANSFORMERS:
        return language(name).eval(), torch.zeros(1, _LENGTH, dtype=torch.long)
    edge = _EDGES.get(name, 224)
    if name in TORCHVISION:
        import torchvision

        more = {"init_weights": False, "aux_logits": False} if name == "googlenet" else {}
        return torchvision.models.get_model(name, weights=None, **more).eval(), torch.zeros(1, 3, edge, edge)
    import timm

    return timm.create_model(name, exportable=True).eval(), torch.zeros(1, 3, edge, edge)


def to_onnx(module: torch.nn.Module, example: torch.Tensor, path: Path) -> None:
    torch.onnx.export(module, (example,), str(path), opset_version=17, dynamo=False, input_names=["x"])


def to_openvino(module: torch.nn.Module, example: torch.Tensor, path: Path) -> None:
    import openvino

    model = openvino.convert_model(module, example_input=example, input=[list(example.shape)])
    openvino.save_model(model, path, compress_to_fp16=False)


def to_litert(module: torch.nn.Module, example: torch.Tensor, path: Path) -> None:
    import litert_torch

    litert_torch.convert(module, (example,)).export(str(path))


def write(name: str, folder: Path) -> None:
    """All formats of one network that are not there yet."""
    made = {".onnx": to_onnx, ".xml": to_openvino, ".tflite": to_litert}
    missing = {folder / f"{name}{suffix}": save for suffix, save in made.items()}
    missing = {path: save for path, save in missing.items() if not path.exists()}
    if not missing:
        return
    started = time.perf_counter()
    module, example = built(name)
    for parameter in module.parameters():
        if parameter.numel() > 1 and not parameter.any():  # exporters fold what is zero throughout
            torch.nn.init.normal_(parameter, std=0.02)
    for path, save in missing.items():
        try:
            save(module, example, path)
        except Exception as error:  # of each converter's own kinds
            path.unlink(missing_ok=True)
            print(f"{path.name}: {type(error).__name__}: {' '.join(str(error).split())[:200]}", flush=True)
        gc.collect()
    print(f"{name}: {time.perf_counter() - started:.0f} s", flush=True)


def main() -> None:
    warnings.simplefilter("ignore")
    torchvision_schemas.define()
    folder, *names = sys.argv[1:]
    for name in names or (*TORCHVISION, *TIMM, *TRANSFORMERS):
        torch.manual_seed(0)
        write(name, Path(folder))


if __name__ == "__main__":
    main()
