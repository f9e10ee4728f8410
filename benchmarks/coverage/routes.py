"""The same network by every route into perfpass: parameters, MACs, operators, bytes written, predicted latency.

    python benchmarks/coverage/routes.py [ROUTE ...] [--models NAME ...] [--files FOLDER]

A network's files are kept in FOLDER/NETWORK and written where they are not there: routes whose packages are in another
environment are run once by that one's Python, then one command here reads all. Rows are added to
benchmarks/results/coverage_routes.json. Weights are random; nothing is downloaded. Latency is asked with one stated
runtime on one GPU and one processor: routes differ in the graph alone. A row names the predictors that were asked by a
digest of their manifests; the table leaves out times of others than torch's row has.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import sys
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from mac_agreement import distinct_values, export  # noqa: E402
from report import machine, versions  # noqa: E402

import perfpass  # noqa: E402
from perfpass.errors import PerfPassError  # noqa: E402
from perfpass.graph import OpGraph, costs  # noqa: E402
from perfpass.importers import torchvision_schemas  # noqa: E402
from perfpass.predictors.learned import artefacts  # noqa: E402

MADE = HERE.parents[1] / "build" / "coverage" / "routes"
RESULT = HERE.parent / "results" / "coverage_routes.json"
GPU, PROCESSOR, RUNTIME = "a100-80gb", "xeon-platinum-8168", "onnxruntime"
PACKAGES = ("torch", "torchvision", "transformers", "onnx", "apache-tvm", "xtc-tvm-python-bindings", "openvino")
PACKAGES += ("litert-torch", "jax", "torchax")
_IMAGES = {
    "resnet50": (3, 224, 224),
    "mobilenet_v3_large": (3, 224, 224),
    "vit_b_16": (3, 224, 224),
    "convnext_tiny": (3, 224, 224),
    "swin_t": (3, 224, 224),
    "efficientnet_b0": (3, 224, 224),
    "deeplabv3_resnet50": (3, 520, 520),
}
_TOKENS = {"input_ids": ((128,), "int64")}
MODELS = (*_IMAGES, "bert-base", "gpt2", "whisper-tiny encoder")


def shape_of(model: str) -> Any:
    """Input shapes without the batch, as `perfpass.load` takes them."""
    if model in _IMAGES:
        return _IMAGES[model]
    return {"input_features": ((80, 3000), "float32")} if model.startswith("whisper") else _TOKENS


@cache
def module_of(model: str) -> Any:
    """The network with random weights, in eval mode, with its first output alone."""
    torchvision_schemas.define()
    import torch
    import torchvision
    import transformers

    class First(torch.nn.Module):
        def __init__(self, module: torch.nn.Module) -> None:
            super().__init__()
            self.module = module

        def forward(self, *given: torch.Tensor, **named: torch.Tensor) -> torch.Tensor:
            out = self.module(*given, **named)
            return out["out"] if isinstance(out, dict) and "out" in out else out[0]

    if model in _IMAGES:
        extra = {"weights_backbone": None} if model.startswith("deeplab") else {}
        module = torchvision.models.get_model(model, weights=None, **extra)
        module = First(module) if extra else module
    else:
        made: dict[str, Callable[[], torch.nn.Module]] = {
            "bert-base": lambda: transformers.BertModel(
                transformers.BertConfig(return_dict=False), add_pooling_layer=False
            ),
            "gpt2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(use_cache=False)),
            "whisper-tiny encoder": lambda: (
                transformers.WhisperModel(
                    transformers.WhisperConfig(
                        d_model=384,
                        encoder_layers=4,
                        encoder_attention_heads=6,
                        encoder_ffn_dim=1536,
                        return_dict=False,
                    )
                ).encoder
            ),
        }
        module = First(made[model]())
    distinct_values(module)
    return module.eval()


class Files:
    """Where the networks' files are."""

    folder = MADE


def _file(model: str, name: str, make: Callable[[Path], None]) -> Path:
    """A file of the network, made once."""
    path = Files.folder / model.replace(" ", "_") / name
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            make(path)
    return path


def _sample(model: str) -> tuple[Any, ...]:
    import torch

    shape = shape_of(model)
    pairs = list(shape.values()) if isinstance(shape, dict) else [(shape, "float32")]
    return tuple(torch.zeros((1, *size), dtype=getattr(torch, kind)) for size, kind in pairs)


def _batch_of_one(model: str, path: Path) -> None:
    import mac_agreement

    mac_agreement.BATCH = 1
    export(module_of(model), shape_of(model), path)


def legacy(model: str) -> Path:
    """By torch's older exporter, nothing folded."""
    return _file(model, "legacy.onnx", lambda path: _batch_of_one(model, path))


def _dynamo(model: str) -> Path:
    def make(path: Path) -> None:
        import torch

        torch.onnx.export(module_of(model), _sample(model), str(path), dynamo=True, external_data=False, verbose=False)

    return _file(model, "dynamo.onnx", make)


def _exported(model: str) -> Path:
    def make(path: Path) -> None:
        import torch

        torch.export.save(torch.export.export(module_of(model), _sample(model)), str(path))

    return _file(model, "model.pt2", make)


def _script(model: str) -> Path:
    def make(path: Path) -> None:
        import torch

        torch.jit.trace(module_of(model), _sample(model), check_trace=False).save(str(path))

    return _file(model, "model.pt", make)


def _openvino(model: str) -> Path:
    def make(path: Path) -> None:
        import openvino
        import torch

        torch.backends.mha.set_fastpath_enabled(False)  # traced twice, it differs
        sample = _sample(model)
        made = openvino.convert_model(module_of(model), example_input=sample, input=[list(t.shape) for t in sample])
        openvino.save_model(made, str(path), compress_to_fp16=False)

    return _file(model, "model.xml", make)


def _tflite(model: str) -> Path:
    def make(path: Path) -> None:
        import litert_torch

        litert_torch.convert(module_of(model), _sample(model)).export(str(path))

    return _file(model, "model.tflite", make)


def _stablehlo(model: str) -> Path:
    def make(path: Path) -> None:
        import jax
        from stablehlo_models import of_torch, written_as

        jax.config.update("jax_enable_x64", False)  # the converter to TensorFlow Lite leaves it on
        path.write_bytes(written_as("named", *of_torch(module_of(model), *_sample(model))))

    return _file(model, "model.mlir", make)


def _relay(model: str) -> Any:
    """TVM's importer wants `onnx.mapping`, gone since onnx 1.19: ONNX types to NumPy types and back."""
    import types

    import numpy as np
    import onnx
    from tvm import relay

    mapping: Any = types.ModuleType("onnx.mapping")
    codes = [code for code in onnx.TensorProto.DataType.values() if code not in (0, 8)]
    mapping.TENSOR_TYPE_TO_NP_TYPE = {code: np.dtype(onnx.helper.tensor_dtype_to_np_dtype(code)) for code in codes}
    mapping.NP_TYPE_TO_TENSOR_TYPE = {kind: code for code, kind in mapping.TENSOR_TYPE_TO_NP_TYPE.items()}
    sys.modules["onnx.mapping"], vars(onnx)["mapping"] = mapping, mapping
    return relay.frontend.from_onnx(onnx.load(str(legacy(model))), freeze_params=True)[0]


def _relax(model: str) -> Any:
    import onnx
    from tvm.relax.frontend.onnx import from_onnx

    return from_onnx(onnx.load(str(legacy(model))))


ROUTES: dict[str, Callable[[str], Any]] = {
    "torch": module_of,
    "torch.export": _exported,
    "TorchScript": _script,
    "ONNX, legacy": legacy,
    "ONNX, dynamo": _dynamo,
    "Relay": _relay,
    "Relax": _relax,
    "OpenVINO": _openvino,
    "TFLite": _tflite,
    "StableHLO": _stablehlo,
}


def row(model: str, route: str) -> dict[str, Any]:
    """Counts and predictions of the network by that route, or why it has none."""
    found: dict[str, Any] = {"model": model, "route": route}
    try:
        made = ROUTES[route](model)
    except Exception as error:
        return found | {"not_made": " ".join(f"{type(error).__name__}: {error}".split())[:200]}
    try:
        shape = shape_of(model) if route == "torch" else None
        graph: OpGraph = perfpass.load(made, input_shape=shape, batch=1 if route == "torch" else None)
    except PerfPassError as error:
        return found | {"refused": " ".join(f"{type(error).__name__}: {error}".split())[:200]}
    totals = costs.count(graph).totals
    return found | {
        "parameters": totals["parameters"],
        "macs": totals["macs"],
        "operators": graph.node_count,
        "unknown": sorted(graph.unknown_operators),
        "bytes_written": totals["bytes_written"],
        "gpu_ms": perfpass.predict(graph, GPU, runtime=RUNTIME).latency_ms.median,
        "processor_ms": perfpass.predict(graph, PROCESSOR, runtime=RUNTIME).latency_ms.median,
        "predictors": predictors(),
    }


@cache
def predictors() -> str:
    """Twelve digits of the SHA-256 of the manifests of what is asked for times."""
    files = [artefacts.shipped(area) / artefacts.MANIFEST for area in ("inference", "operators", "cpu")]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("routes", nargs="*", metavar="ROUTE", help=f"of {'; '.join(ROUTES)}; else all")
    parser.add_argument("--models", nargs="+", metavar="NAME", help=f"of {'; '.join(MODELS)}; else all")
    parser.add_argument("--files", type=Path, default=MADE, metavar="FOLDER", help="of the files (%(default)s)")
    options = parser.parse_args()
    Files.folder = options.files
    before = json.loads(RESULT.read_text()) if RESULT.exists() else {"versions": {}, "rows": []}
    rows = {(r["model"], r["route"]): r for r in before["rows"]}
    head = {"benchmark": "coverage_routes", "gpu": GPU, "processor": PROCESSOR, "runtime": RUNTIME}
    head |= {"machine": machine(), "versions": before["versions"] | versions("perfpass", *PACKAGES)}
    for model in options.models or MODELS:
        for route in options.routes or ROUTES:
            made = row(model, route)
            if "not_made" not in made or (model, route) not in rows:
                rows[model, route] = made
            print(json.dumps(made), flush=True)
        module_of.cache_clear()
        ordered = [rows[m, r] for m in MODELS for r in ROUTES if (m, r) in rows]
        RESULT.write_text(json.dumps(head | {"rows": ordered}, indent=1) + "\n")


if __name__ == "__main__":
    main()
