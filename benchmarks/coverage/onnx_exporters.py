"""The same networks as ONNX files of every maker: torch's exporters, ONNX Runtime's optimisers and quantisers, opsets.

Each file is written once to build/coverage/onnx_exporters; torch's own trace of the network says its MACs.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from mac_agreement import distinct_values
from row import NotMadeError, Reading

import perfpass
from perfpass.graph import costs
from perfpass.importers import torchvision_schemas
from perfpass.importers.torch import trace

TITLE = "ONNX files by maker"
PACKAGES = ("torch", "onnx", "onnxscript", "onnxruntime", "timm", "transformers")
_MADE = Path(__file__).resolve().parents[2] / "build" / "coverage" / "onnx_exporters"
_IMAGE: dict[str, tuple[tuple[int, ...], str]] = {"x": ((3, 224, 224), "float32")}
_TOKENS: dict[str, tuple[tuple[int, ...], str]] = {"input_ids": ((64,), "int64")}
_IMAGES = ("resnet18", "mobilenetv3_small_100", "efficientnet_b0", "vit_tiny_patch16_224", "convnext_atto")
_IMAGES += ("swin_tiny_patch4_window7_224", "regnety_002", "ghostnet_100", "mobilevit_xxs", "edgenext_xx_small")
_TEXTS = ("bert", "gpt2", "distilbert", "t5 encoder", "llama")
NETWORKS = (*_IMAGES, *_TEXTS)
_OLDEST_OPSET, _FEWER_LAYERS = 7, 2
_FOLDED = "batch normalisation and other constants are folded into the weights"
_SCALES = "scales and zero points of the quantisation are parameters too, and biases are of integers"
_BLOCKED = "the layout of whole blocks of channels pads channels and weights"
_MIXED = "constants are folded, and made anew in the layouts that the runtime reads"


def module_of(network: str) -> tuple[torch.nn.Module, dict[str, tuple[tuple[int, ...], str]]]:
    """The network with random weights, and its inputs without the batch."""
    torchvision_schemas.define()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if network in _IMAGES:
            import timm

            module, inputs = timm.create_model(network, pretrained=False), _IMAGE
        else:
            module, inputs = _FirstOutput(_language_model(network)), _TOKENS
    distinct_values(module)
    return module.eval(), inputs


def _language_model(network: str) -> torch.nn.Module:
    import transformers

    few = _FEWER_LAYERS
    made: dict[str, Callable[[], torch.nn.Module]] = {
        "bert": lambda: transformers.BertModel(transformers.BertConfig(num_hidden_layers=few), add_pooling_layer=False),
        "gpt2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=few, use_cache=False)),
        "distilbert": lambda: transformers.DistilBertModel(transformers.DistilBertConfig(n_layers=few)),
        "t5 encoder": lambda: transformers.T5EncoderModel(transformers.T5Config(num_layers=few)),
        "llama": lambda: transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                num_hidden_layers=few, hidden_size=512, intermediate_size=1376, num_attention_heads=8, use_cache=False
            )
        ),
    }
    return made[network]()


class _FirstOutput(torch.nn.Module):
    """A model of transformers from its tokens to its first output."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.module(input_ids, return_dict=False)[0]


def _sample(inputs: dict[str, tuple[tuple[int, ...], str]], batch: int = 1) -> tuple[torch.Tensor, ...]:
    return tuple(torch.zeros((batch, *shape), dtype=getattr(torch, kind)) for shape, kind in inputs.values())


def _by_torch(network: str, path: Path, **options: Any) -> None:
    module, inputs = module_of(network)
    torch.onnx.export(module, _sample(inputs), str(path), input_names=list(inputs), **options)


def _unfolded(network: str, path: Path) -> None:
    as_is = torch.onnx.TrainingMode.PRESERVE
    _by_torch(network, path, dynamo=False, opset_version=17, do_constant_folding=False, training=as_is)


def _legacy(network: str, path: Path) -> None:
    _by_torch(network, path, dynamo=False, opset_version=14)


def _open_batch(network: str, path: Path) -> None:
    _, inputs = module_of(network)
    _by_torch(network, path, dynamo=False, opset_version=17, dynamic_axes={name: {0: "batch"} for name in inputs})


def _dynamo(network: str, path: Path) -> None:
    _by_torch(network, path, dynamo=True, external_data=False, optimize=False)


def _dynamo_optimised(network: str, path: Path) -> None:
    _by_torch(network, path, dynamo=True, external_data=False, optimize=True)


def _from_legacy(change: Callable[[Path, Path, str], None]) -> Callable[[str, Path], None]:
    def make(network: str, path: Path) -> None:
        change(file_of(network, "torch, legacy, folded"), path, network)

    return make


def _session(level: str) -> Callable[[Path, Path, str], None]:
    def make(source: Path, path: Path, _: str) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        options.optimized_model_filepath = str(path)
        options.log_severity_level = 4
        onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])

    return make


def _fused(source: Path, path: Path, network: str) -> None:
    from onnxruntime.transformers.optimizer import optimize_model

    kind = {"bert": "bert", "distilbert": "bert", "gpt2": "gpt2", "t5 encoder": "t5"}.get(network, "vit")
    heads, width = (0, 0) if network in _IMAGES else (12, 768)
    optimize_model(str(source), kind, num_heads=heads, hidden_size=width, opt_level=0).save_model_to_file(str(path))


def _half(source: Path, path: Path, _: str) -> None:
    from onnxruntime.transformers.float16 import convert_float_to_float16

    onnx.save(convert_float_to_float16(onnx.load(str(source)), keep_io_types=True), str(path))


def _static(form: str) -> Callable[[Path, Path, str], None]:
    def make(source: Path, path: Path, network: str) -> None:
        from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

        inputs = _IMAGE if network in _IMAGES else _TOKENS

        class OneSample(CalibrationDataReader):
            def __init__(self) -> None:
                numbers = np.random.default_rng(0)
                self.left = [{n: numbers.random((1, *s)).astype(kind) for n, (s, kind) in inputs.items()}]

            def get_next(self) -> dict[str, np.ndarray] | None:
                return self.left.pop() if self.left else None

        quantize_static(
            str(source), str(path), OneSample(), quant_format=getattr(QuantFormat, form), per_channel=True,
            activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
        )  # fmt: skip

    return make


def _dynamic(source: Path, path: Path, _: str) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(str(source), str(path), weight_type=QuantType.QInt8)


def _four_bits(source: Path, path: Path, _: str) -> None:
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    made = MatMulNBitsQuantizer(onnx.load(str(source)), block_size=32, is_symmetric=True)
    made.process()
    made.model.save_model_to_file(str(path))


def _opset(number: int) -> Callable[[Path, Path, str], None]:
    def make(source: Path, path: Path, _: str) -> None:
        onnx.save(onnx.version_converter.convert_version(onnx.load(str(source)), number), str(path))

    return make


_TRANSFORMERS = "ONNX Runtime's transformer optimiser"
WAYS: dict[str, tuple[Callable[[str, Path], None], str]] = {
    "torch, legacy, as it is": (_unfolded, "constants that the forward pass makes are initializers"),
    "torch, legacy, folded": (_legacy, _FOLDED),
    "torch, legacy, open batch": (_open_batch, _FOLDED),
    "torch, dynamo": (_dynamo, "constants of the graph are initializers, and unused statistics are left out"),
    "torch, dynamo, optimised": (_dynamo_optimised, _FOLDED),
    "ONNX Runtime, basic": (_from_legacy(_session("ORT_ENABLE_BASIC")), _FOLDED),
    "ONNX Runtime, extended": (_from_legacy(_session("ORT_ENABLE_EXTENDED")), _MIXED),
    "ONNX Runtime, all": (_from_legacy(_session("ORT_ENABLE_ALL")), _BLOCKED),
    _TRANSFORMERS: (_from_legacy(_fused), _MIXED),
    "half precision": (_from_legacy(_half), _FOLDED),
    "quantised, QDQ": (_from_legacy(_static("QDQ")), _SCALES),
    "quantised, QOperator": (_from_legacy(_static("QOperator")), _SCALES),
    "quantised, dynamic": (_from_legacy(_dynamic), _SCALES),
    "quantised, MatMulNBits": (_from_legacy(_four_bits), _SCALES),
}
_EVERY_OPSET = ("mobilenetv3_small_100", "vit_tiny_patch16_224")


def models() -> list[str]:
    """NETWORK: WAY of every network by every way, and some in every opset that is made or converted."""
    newest = onnx.defs.onnx_opset_version()
    made = [f"{network}: {way}" for network in NETWORKS for way in WAYS if _is_made(network, way)]
    made += [f"{network}: torch, legacy, opset {n}" for network in _EVERY_OPSET for n in range(_OLDEST_OPSET, 21)]
    return made + [
        f"{network}: converted to opset {n}" for network in _EVERY_OPSET for n in range(_OLDEST_OPSET, newest + 1)
    ]


def _is_made(network: str, way: str) -> bool:
    """Not where the older exporter lacks an operator of the network, or the optimiser knows no such network."""
    if network in ("gpt2", "llama"):
        return "dynamo" in way
    return way != _TRANSFORMERS or network in (*_TEXTS, "vit_tiny_patch16_224")


def file_of(network: str, way: str) -> Path:
    """The file, made where it is not there. Raises NotMadeError."""
    path = _MADE / f"{network}, {way}.onnx".replace(" ", "_")
    if path.exists():
        return path
    if way.startswith("converted to opset "):
        make = _from_legacy(_opset(int(way.rpartition(" ")[2])))
    elif way.startswith("torch, legacy, opset "):
        number = int(way.rpartition(" ")[2])
        make = lambda network, path: _by_torch(network, path, dynamo=False, opset_version=number)  # noqa: E731
    else:
        make = WAYS[way][0]
    _MADE.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part.onnx")
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            make(network, part)
    except NotMadeError:
        raise
    except Exception as error:
        raise NotMadeError(f"not made: {type(error).__name__}: {error}") from error
    part.rename(path)
    return path


def read(model: str) -> Reading:
    """The file's graph beside the MACs and parameters of torch's trace of the network."""
    network, _, way = model.partition(": ")
    path = file_of(network, way)
    graph = perfpass.load(path, batch=1)
    macs, parameters = _known(network)
    explained = WAYS[way][1] if way in WAYS else _FOLDED
    same_macs = costs.count(graph).totals["macs"] == macs
    folds = way.startswith("ONNX Runtime")  # also products of constants alone
    return Reading(graph, macs, parameters, explained if same_macs or folds else "")


@cache
def _known(network: str) -> tuple[int, int]:
    """MACs and parameters of torch's trace."""
    module, inputs = module_of(network)
    totals = costs.count(trace(module, inputs if network in _TEXTS else inputs["x"][0])).totals
    return totals["macs"], totals["parameters"]
