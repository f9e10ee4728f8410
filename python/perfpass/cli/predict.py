"""`perfpass predict`: what a model costs on a device."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfpass.cli.options import (
    OF_LIMITS,
    OF_RUN,
    add_cost,
    add_json,
    add_limits,
    add_model,
    add_quantize,
    add_workload,
    cost,
    find_device,
    limits,
    model_sizes,
    new_command,
    once,
    print_json,
    ranged_dims,
    refuse,
    swept_dims,
    workload,
)
from perfpass.errors import ArgumentError

if TYPE_CHECKING:
    from perfpass.deploy.difference.ratio import Ratio
    from perfpass.devices import Device

_EPILOG = """\
MODEL is an ONNX file (weights are neither needed nor read), a Hugging Face config.json or its folder, or the name
of a network: a repository's (bert-base-uncased), timm's or torchvision's (vit_base_patch16_224), or one that is
defined here (yolov8n, dlrm-small, stable-diffusion-xl-unet). A file of that name comes first; nothing is downloaded.
A symbolic dimension of the file needs a value: --dim NAME=N, or --batch for the batch; `perfpass inspect`
lists them. The interval of peak memory is one-sided: plan for its upper end.

examples:
  perfpass predict resnet50.onnx --device a100
  perfpass predict yolov8n --device t4 --precision fp16 --runtime tensorrt --dim image_size=416
  perfpass predict encoder.onnx --device t4 --dim batch=8 --dim sequence=128 --precision fp16
  perfpass predict model.onnx --device rtx-4090 --batch 64 --precision amp --layout nhwc --compiled
  perfpass predict model.onnx --device a100 --latency 20 --confidence 0.95   and whether it keeps that, in which slices
  perfpass predict encoder.onnx --device t4 --batch 8 --dim sequence=128..4096      128, 256, ... 4096: a sweep
  perfpass predict model.onnx --device h100:1g.10gb --json | jq .latency_ms.median
  perfpass predict llama.onnx --device a100 --precision fp16 --quantize w4a16     and the change against fp16
  perfpass predict model.onnx --device a100 --region FR --pue 1.2      also energy, carbon and money of 1,000 runs"""


def add(commands: Any) -> None:
    """The command's options."""
    command = new_command(commands, "predict", run, "predict what a model costs on a device", _EPILOG)
    add_model(command)
    command.add_argument(
        "--device", required=True, metavar="NAME", help="device, or device:profile for a MIG slice, or cpu for this one"
    )
    add_workload(command)
    command.add_argument(
        "--frozen",
        action="append",
        default=[],
        metavar="NAME",
        help="parameters that are not trained: a name, the module that holds them, or a pattern (training; repeatable)",
    )
    command.add_argument(
        "--sparsity", metavar="S", help="2:4 where the weights are structured so (inference in tensorrt and torch)"
    )
    add_quantize(command)
    add_limits(command)
    add_json(command)
    command.add_argument("--explain", action="store_true", help="also show what the time and memory are made of")
    add_cost(command)


def run(options: Any) -> int:
    """Prints the prediction as a table or JSON."""
    from perfpass.prediction import explanation, prediction_table
    from perfpass.predictors import predict
    from perfpass.text import paragraph, printable

    if any(len(sizes) > 1 for sizes in ranged_dims(options).values()):
        return _swept(options)
    # Before the model is read: a wrong table should not cost the time of a large one.
    asked, device = cost(options), find_device(options)
    plain, options.precision = options.precision, options.quantize or options.precision
    beside = {name: getattr(options, name) for name in ("frozen", "sparsity")}
    beside["limits"] = limits(options)
    prediction = predict(options.model, device, **model_sizes(options), **workload(options), **beside)
    quantized = None if options.quantize is None else _against(options, device, plain)
    found = None
    if asked is not None:
        from perfpass.deploy.cost import cost as cost_of
        from perfpass.deploy.cost import table

        found = cost_of(prediction.latency_ms, prediction.energy_j, device, asked)
    if options.json:
        more = {"cost": found.to_dict()} if found else {}
        if quantized is not None:
            ratios = {ratio.metric: ratio.to_dict() for ratio in quantized}
            more["quantized"] = {"from": plain, "to": options.quantize, "ratios": ratios}
        print_json({**prediction.to_dict(), **more})
        return 0
    print(f"{printable(Path(options.model).name)} on {prediction_table(prediction)}")
    if quantized is not None:
        print(paragraph("quantized", f"{options.quantize} over {plain}: {', '.join(map(_shown, quantized))}"))
    if found:
        print(f"\n{table(found)}")
    if options.explain:
        print(f"\n{explanation(prediction)}")
    return 0


def _against(options: Any, device: Device, plain: str) -> Sequence[Ratio]:
    """The figures over those of the model as it is."""
    from perfpass.deploy.difference import diff

    how = workload(options)
    if how.pop("predictor") != "perfpass":
        raise ArgumentError("--quantize compares perfpass's own predictions; leave out --predictor")
    change = {"precision": options.quantize}
    asked = {**model_sizes(options), **how, "precision": plain, "change": change}
    return diff(options.model, options.model, device, **asked).devices[0].ratios


def _shown(ratio: Ratio) -> str:
    found = ratio.interval
    return f"{ratio.metric} x {found.median:.2f} ({found.low:.2f} to {found.high:.2f})" if found else ratio.metric


def _swept(options: Any) -> int:
    """Prints a sweep over the sizes of --dim."""
    from perfpass.cli.sweep import answered
    from perfpass.deploy.sweep import sweep

    refuse(options, (*OF_RUN, *OF_LIMITS, "assume", "frozen", "sparsity", "quantize", "explain"), "a range of --dim")
    how = workload(options)
    found = sweep(
        options.model,
        [find_device(options)],
        precisions=[how["precision"]],
        runtimes=[how["runtime"]],
        layouts=[how["layout"]],
        cuda_graph=how["cuda_graph"],
        batches=None if options.batch is None else [options.batch],
        dims=swept_dims(options),
        input_shape=once(options.input_shape, "--input-shape"),
    )
    if options.json:
        print_json(found.to_dict())
    else:
        print(found)
    return answered(found)
