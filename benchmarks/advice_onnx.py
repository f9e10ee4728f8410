"""Advice on inference checked by running it: what each change brings, predicted and in ONNX Runtime on this CPU.

    python benchmarks/advice_onnx.py --json benchmarks/results/advice_onnx.json      # some ten minutes of one core

Ten small networks of torchvision, timm and transformers, exported without folding. Each change that `perfpass advise`
tries alone is made and run: rewrites of the file, eight samples at once (time of a sample), and the way from PyTorch
(eager) to ONNX Runtime. What is compared runs in turn with one thread, and time is that of the processor. All is opened
anew five times, as where a session's memory lies decides some per cent; ratios are medians of the five. The original
runs twice: what the two differ by is noise. A change counts as none within 5 %.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))

import numpy as np
import torch
import transformers
from report import publish

from perfpass.deploy.advise import advise
from perfpass.deploy.advise.files import Files
from perfpass.deploy.advise.outputs import Sizes, inputs
from perfpass.deploy.advise.result import Change
from perfpass.deploy.advise.rewrites import session
from perfpass.importers import torchvision_schemas
from perfpass.measure.unet import NAMES, UNet
from perfpass.training.inference.cpu import machine

TOKENS, BATCH, SECONDS, NONE = 128, 8, 5.0, 0.05
OPENED = 5
REWRITES = {"tidy": ("tidy",), "fp16": ("tidy", "fp16"), "int8": ("tidy", "int8")}
Inputs = dict[str, tuple[tuple[int, ...], str]]


class Alone(torch.nn.Module):
    """A network with its first output, or all of a backbone's, and inputs by position."""

    def __init__(self, network: torch.nn.Module, names: list[str], **rest: Any) -> None:
        super().__init__()
        self.network, self.names, self.rest = network, names, rest

    def forward(self, *given: torch.Tensor, **named: torch.Tensor) -> Any:
        if self.names == ["x"]:
            found = self.network(*given, **named)
        else:
            found = self.network(**dict(zip(self.names, given, strict=False)), **named, **self.rest)
        if torch.is_tensor(found):
            return found
        return tuple(found.values()) if isinstance(found, dict) and self.names == ["x"] else found[0]


def networks() -> dict[str, tuple[Callable[[], torch.nn.Module], Inputs]]:
    """A network, and its inputs without the batch."""
    torchvision_schemas.define()
    import timm
    import torchvision

    timm.layers.set_fused_attn(False)
    t, v = transformers, torchvision.models
    ids: Inputs = {"input_ids": ((TOKENS,), "int64"), "attention_mask": ((TOKENS,), "int64")}
    eager = {"attn_implementation": "eager"}
    mini = t.BertConfig(
        hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024, **eager
    )  # fmt: skip
    gpt2 = t.GPT2Config(n_embd=256, n_layer=4, n_head=4, **eager)

    def image(side: int, other: int | None = None) -> Inputs:
        return {"x": ((3, side, other or side), "float32")}

    def decoder() -> torch.nn.Module:
        causal = torch.zeros(1, 1, TOKENS, TOKENS).masked_fill(~torch.ones(TOKENS, TOKENS).tril().bool(), -1e9)
        return Alone(t.GPT2LMHeadModel(gpt2), ["input_ids", "position_ids"], attention_mask=causal, use_cache=False)

    return {
        "resnet18": (lambda: v.resnet18(), image(224)),
        "mobilenet_v3_small": (lambda: v.mobilenet_v3_small(), image(224)),
        "efficientnet_b0": (lambda: timm.create_model("efficientnet_b0"), image(224)),
        "convnext_atto": (lambda: timm.create_model("convnext_atto"), image(224)),
        "vit_tiny": (lambda: timm.create_model("vit_tiny_patch16_224"), image(224)),
        "distilbert": (lambda: Alone(t.DistilBertModel(t.DistilBertConfig(**eager)), list(ids)), ids),
        "bert_mini": (lambda: Alone(t.BertModel(mini), list(ids)), ids),
        "gpt2_tiny": (decoder, dict.fromkeys(("input_ids", "position_ids"), ((TOKENS,), "int64"))),
        "unet": (lambda: UNet(NAMES["temperature-downscaling"]), image(96, 128)),
        "ssdlite_backbone": (
            lambda: Alone(
                v.detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None).backbone, ["x"]
            ),
            image(320),
        ),
    }


def tensors(shapes: Inputs, batch: int) -> tuple[torch.Tensor, ...]:
    """Inputs of one batch."""
    return tuple(
        torch.ones((batch, *shape), dtype=torch.int64) if kind == "int64" else torch.randn(batch, *shape)
        for shape, kind in shapes.values()
    )


def exported(module: torch.nn.Module, shapes: Inputs, path: Path) -> None:
    """As the exporter writes it: nothing folded, the batch open."""
    names = list(shapes)
    torch.onnx.export(
        module, tensors(shapes, 1), str(path), input_names=names, opset_version=17, dynamo=False,
        do_constant_folding=False, dynamic_axes={name: {0: "batch"} for name in names},
    )  # fmt: skip


def runner(path: Path, batch: int = 1) -> Callable[[], Any]:
    """One run of a file."""
    opened, given = session(path), inputs(path, Sizes(batch, {}, {}))
    return lambda: opened.run(None, given)


def in_turn(ways: dict[str, Callable[[], Callable[[], Any]]]) -> dict[str, float]:
    """Of each way that is opened, its time over that of the first: medians of the processor's seconds."""
    first = next(iter(ways))
    ratios: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(OPENED):
        order = random.sample(list(ways), len(ways))
        running = {name: ways[name]() for name in order}
        laps: dict[str, list[float]] = {name: [] for name in ways}
        for run in running.values():
            run()
        end = time.monotonic() + SECONDS
        while time.monotonic() < end or len(laps[first]) < 5:
            random.shuffle(order)
            for name in order:
                start = time.process_time()
                running[name]()
                laps[name].append(time.process_time() - start)
        for name, seconds in laps.items():
            ratios[name].append(float(np.median(seconds) / np.median(laps[first])))
    return {name: float(np.median(each)) for name, each in ratios.items()}


def rows(name: str, make: Callable[[], torch.nn.Module], shapes: Inputs, folder: Path) -> Iterator[dict[str, Any]]:
    """All changes of one network."""
    torch.manual_seed(0)
    module, path, device = make().eval(), folder / f"{name}.onnx", machine(1)
    exported(module, shapes, path)
    files = Files(path, folder, Sizes(1, {}, {}))
    given = tensors(shapes, 1)
    ways: dict[str, Callable[[], Callable[[], Any]]] = {
        "as it is": lambda: runner(path),
        "the same": lambda: runner(path),
        "from torch": lambda: lambda: module(*given),
        "batch": lambda: runner(path, BATCH),
    }
    wanted = advise(path, device, batch=1, tolerance=1.0)
    predicted = {one.changes["rewrite"]: one for one in wanted.alone if one.ratio is not None}
    for rewrite in predicted:
        ways[rewrite] = partial(runner, files.of(REWRITES[rewrite]))
    with torch.inference_mode():
        ratio = in_turn(ways)
    noise, kept = {"noise": ratio["the same"] - 1}, {step.changes.get("rewrite") for step in wanted.steps}
    for rewrite, change in predicted.items():
        yield row(name, rewrite, change, ratio[rewrite], rewrite in kept) | noise
    many = advise(path, device, batch=1, target="throughput", keep_precision=True)
    change = next(one for one in many.alone if one.changes == {"batch": BATCH})
    yield (
        row(name, "batch", change, ratio["batch"] / BATCH, any("batch" in step.changes for step in many.steps)) | noise
    )
    shape = shapes["x"][0] if "x" in shapes else dict(shapes)
    moved = advise(module, device, input_shape=shape, batch=1, runtime=("torch", "onnxruntime"), keep_precision=True)
    change = next(one for one in moved.alone if one.changes == {"runtime": "onnxruntime"})
    yield row(name, "from torch", change, 1 / ratio["from torch"], bool(moved.steps)) | noise


def row(name: str, what: str, change: Change, measured: float, advised: bool) -> dict[str, Any]:
    """One change; ratios of the time of a sample."""
    assert change.ratio is not None and change.ratio.interval is not None
    found = (change.ratio.inverted if change.ratio.metric == "throughput" else change.ratio).interval
    assert found is not None
    return {
        "model": name,
        "change": what,
        "predicted": found.median,
        "low": found.low,
        "high": found.high,
        "measured": measured,
        "probability": change.probability,
        "advised": advised,
        "output_error": change.error,
    }


def main() -> None:
    """Prints the rows, and writes them where --json says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", type=Path, help="also write all results to this file")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    found: list[dict[str, Any]] = []
    for name, (make, shapes) in networks().items():
        with TemporaryDirectory() as folder:
            for one in rows(name, make, shapes, Path(folder)):
                found.append(one)
                advised = "advised" if one["advised"] else ""
                ratios = f"predicted {one['predicted']:.3f} measured {one['measured']:.3f} noise {one['noise']:+.3f}"
                print(f"{name:20s}{one['change']:12s}{ratios} {advised}", flush=True)
    results = {"none": NONE, "opened": OPENED, "seconds": SECONDS, "batch": BATCH, "rows": found}
    publish("advice_onnx", results, ("torch", "transformers", "timm", "torchvision", "onnxruntime"), options.json)


if __name__ == "__main__":
    main()
