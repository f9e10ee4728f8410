"""What the commands share: the frame of a command, the types of values, and options that several commands have."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from perfpass.errors import ArgumentError

if TYPE_CHECKING:
    from perfpass.decision import Limits
    from perfpass.deploy.cost import Options
    from perfpass.devices import Device

_PRECISIONS = (
    *("fp64", "fp32", "tf32", "fp16", "bf16", "amp", "amp_bf16"),
    *("int8", "fp8", "w8a8", "w8a16", "w4a16", "nf4"),
)
MODEL_FORMS = (
    "ONNX file or one of another framework, Hugging Face config.json or folder, name of a network (bert-base, resnet50,"
    " yolov8n), timm:NAME"
)
RUNTIMES = ("torch", "torch.compile", "onnxruntime", "tensorrt", "tvm", "relax")
_FOR_CPUS = ("openvino", "litert")


def new_command(commands: Any, name: str, run: Callable[[Any], int], summary: str, epilog: str | None = None) -> Any:
    """One more command with its help; ``run(options)`` executes it."""
    command = commands.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.set_defaults(run=run)
    return command


def add_model(command: Any, *, assumes: bool = True) -> None:
    """MODEL, --batch, --dim, --input-shape, and --assume where the command takes a load that it is read with."""
    command.add_argument("model", metavar="MODEL", help=MODEL_FORMS)
    add_sizes(command, assumes=assumes)


def add_sizes(command: Any, *, assumes: bool = True) -> None:
    """--batch, --dim, --input-shape and --assume, which `model_sizes` reads."""
    command.add_argument("--batch", type=whole, metavar="N", help="batch size (default: the model's own)")
    add_shapes(command)
    if assumes:
        command.add_argument(
            "--assume",
            action="append",
            default=[],
            type=dim,
            metavar="NAME=N",
            help="what the model's own values decide: experts=N that tokens are shared over, detections=N of an image, "
            "frames=N that a token is spoken for",
        )


def add_shapes(command: Any) -> None:
    """--dim, --input-shape and --operators, of which `shapes` reads the first two."""
    command.add_argument(
        "--dim",
        action="append",
        default=[],
        type=sizes_of_dim,
        metavar="NAME=N",
        help="value of a symbolic dimension; may be given more than once; predict, inspect and sweep also take "
        "NAME=A..B (doubling), A..B:STEP, A..B:xFACTOR and N,N",
    )
    command.add_argument(
        "--input-shape",
        action="append",
        default=[],
        type=shape,
        metavar="NAME=1x3x224x224",
        help="whole shape of one input; may be given more than once",
    )
    add_operators(command)


def add_operators(command: Any) -> None:
    """--operators, which is read before a command runs."""
    command.add_argument(
        "--operators", action="append", default=[], metavar="FILE", help="TOML of operators that no reader knows"
    )


def onnx_file(options: Any, what: str, instead: str) -> str:
    """The ONNX file of MODEL, for a command that needs one. Raises UnsupportedError for another kind."""
    from perfpass.importers.model_argument import understood

    return understood(options.model).file(what, instead)


def ranged_dims(options: Any) -> dict[str, list[int]]:
    """The sizes of every --dim, one or several. Raises ArgumentError on a name given twice."""
    return once(options.dim, "--dim") or {}


def swept_dims(options: Any) -> dict[str, int | list[int]] | None:
    """The same as `perfpass.sweep` takes them."""
    return {name: sizes if len(sizes) > 1 else sizes[0] for name, sizes in ranged_dims(options).items()} or None


def model_sizes(options: Any) -> dict[str, Any]:
    """The values of `add_model` as `perfpass.load` takes them. Raises ArgumentError on a name given twice."""
    found = {"batch": options.batch, **shapes(options)}
    return found | ({"assume": once(options.assume, "--assume")} if "assume" in options else {})


def shapes(options: Any) -> dict[str, Any]:
    """The values of `add_shapes`, one size for each name. Raises ArgumentError on a name given twice."""
    dims = ranged_dims(options)
    if ranged := [name for name, sizes in dims.items() if len(sizes) > 1]:
        raise ArgumentError(
            f"--dim {ranged[0]} has several sizes, which predict, inspect and sweep take; give one size here"
        )
    return {
        "input_shape": once(options.input_shape, "--input-shape"),
        "dims": {name: sizes[0] for name, sizes in dims.items()} or None,
    }


SCHEMES = ("int8", "fp8", "w8a8", "w8a16", "w4a16", "nf4")


def add_quantize(command: Any) -> None:
    """--quantize: what quantisation of the model as it is would change."""
    command.add_argument(
        "--quantize",
        choices=SCHEMES,
        metavar="S",
        help="what if: int8 or fp8 (an engine in 8 bits), w8a8 (products in 8 bits), w8a16, w4a16, nf4 (weights alone)",
    )


def add_workload(command: Any) -> None:
    """How the model runs, and on what devices beyond the catalogue."""
    command.add_argument("--precision", default="fp32", metavar="P", help=f"{', '.join(_PRECISIONS)} (default: fp32)")
    runtimes = ", ".join((*RUNTIMES, *_FOR_CPUS))
    command.add_argument("--runtime", default=None, metavar="R", help=f"{runtimes} (default: torch)")
    command.add_argument("--compiled", action="store_true", help="short for --runtime torch.compile")
    command.add_argument("--layout", default="nchw", metavar="L", help="nchw or nhwc (default: nchw)")
    command.add_argument("--mode", default="inference", metavar="M", help="inference, or training: one whole step")
    command.add_argument(
        "--optimizer", metavar="O", help="none, sgd, momentum, adam, adamw (training; default: momentum)"
    )
    add_cuda_graph(command)
    add_device_file(command)
    command.add_argument(
        "--processes", type=whole, metavar="N", help="MPS processes that share the device or slice (default: one)"
    )
    command.add_argument(
        "--predictor",
        default="perfpass",
        metavar="NAME",
        help="perfpass (default), or a published one: dippm, trappm, graph-language (docs/predictors/published.md)",
    )
    command.add_argument(
        "--no-calibration", action="store_true", help="ignore what `perfpass calibrate` has learned of the device"
    )


def add_cuda_graph(command: Any) -> None:
    """--cuda-graph."""
    command.add_argument(
        "--cuda-graph",
        action="store_true",
        help="kernels captured once and replayed (inference in tensorrt, onnxruntime and torch.compile)",
    )


def workload(options: Any) -> dict[str, Any]:
    """The values of `add_workload` as `perfpass.predict` and `perfpass.annotate` take them."""
    return {
        "precision": options.precision,
        "mode": options.mode,
        "runtime": _runtime(options),
        "layout": options.layout,
        "optimizer": options.optimizer,
        "cuda_graph": options.cuda_graph,
        "calibration": not options.no_calibration,
        "processes": options.processes,
        "predictor": options.predictor,
    }


def add_limits(command: Any) -> None:
    """What a run is to keep, and how surely."""
    command.add_argument("--latency", type=float, metavar="MS", help="the most that a run may take")
    command.add_argument("--memory", type=float, metavar="GIB", help="the most memory in use (default: the device's)")
    command.add_argument("--energy", type=float, metavar="J", help="the most that a run may draw")
    command.add_argument(
        "--confidence",
        type=float,
        metavar="P",
        help="probability with which all of these are to be kept (default: 0.9)",
    )


def stated_limits(options: Any) -> dict[str, float]:
    """Those of `add_limits` that are stated, as `perfpass.Limits` takes them."""
    bytes_of = None if options.memory is None else options.memory * 2**30
    given = {"latency_ms": options.latency, "memory_bytes": bytes_of, "energy_j": options.energy}
    given["confidence"] = options.confidence
    return {name: value for name, value in given.items() if value is not None}


def limits(options: Any) -> Limits | None:
    """The same as one; None where none is stated. Raises ArgumentError."""
    from perfpass.decision import Limits

    stated = stated_limits(options)
    return Limits(**stated) if stated else None


def _runtime(options: Any) -> str:
    if not options.compiled:
        return options.runtime or "torch"
    if options.runtime not in (None, "torch", "torch.compile"):
        raise ArgumentError(f"--compiled means torch.compile, but --runtime is {options.runtime!r}; give one of them")
    return "torch.compile"


# What the options of `add_workload` are where nobody gives them.
_USUAL = {"precision": "fp32", "layout": "nchw", "mode": "inference", "predictor": "perfpass"}
OF_SIZES = ("batch", "dim", "input_shape", "assume")
OF_LIMITS = ("latency", "memory", "energy", "confidence")
OF_RUN = ("mode", "optimizer", "processes", "predictor", "no_calibration")
OF_WORKLOAD = ("precision", "runtime", "compiled", "layout", "cuda_graph", "device_file", *OF_RUN)


def refuse(options: Any, names: Sequence[str], what: str) -> None:
    """Raises ArgumentError where one of the options is given that ``what`` would pass over in silence."""
    values = {name: getattr(options, name) for name in names}
    given = [
        f"--{name.replace('_', '-')}"
        for name, value in values.items()
        if value is not False and value not in (None, [], "", _USUAL.get(name))
    ]
    if given:
        raise ArgumentError(f"{what} has no {', '.join(given)}; leave {'it' if len(given) == 1 else 'them'} out")


def refuse_to_replace(output: str | None, models: Sequence[str]) -> None:
    """Raises ArgumentError where what is written would take the place of a model that is read."""
    if output and os.path.isfile(output):
        for model in models:
            if os.path.isfile(model) and os.path.samefile(model, output):
                raise ArgumentError(f"-o {output} is the model itself; give the name of another file")


def add_device_file(command: Any, what: str = "TOML file of more devices") -> None:
    """--device-file, which `find_device` and `add_device_files` read."""
    command.add_argument("--device-file", action="append", default=[], metavar="FILE", help=what)


def add_device_files(options: Any) -> None:
    """Makes the devices of every --device-file known. Raises FileError, FormatError, LimitError."""
    from perfpass.devices import add_file

    for path in options.device_file:
        add_file(path)


def find_device(options: Any, name: str | None = None) -> Device:
    """The device of --device, or of ``name``; a --device-file may bring it. Raises DeviceError for an unknown one.

    How a cloud's instance type was read is said on stderr, so that stdout stays what it is for any device.
    """
    from perfpass.devices import device

    add_device_files(options)
    found = device(options.device if name is None else name)
    if found.read_as:
        print(f"perfpass: {found.read_as}", file=sys.stderr)
    return found


def add_json(command: Any, instead_of: str = "the table") -> None:
    """--json."""
    command.add_argument("--json", action="store_true", help=f"JSON on stdout instead of {instead_of}")


def print_json(value: Any) -> None:
    """Strict JSON: ASCII only, and an error rather than NaN or infinity."""
    print(json.dumps(value, indent=2, allow_nan=False))  # at once: dump would write a thousand pieces


def add_cost(command: Any) -> None:
    """--region, --carbon-intensity, --pue, --price-table, --grid-table: a prediction as carbon and money."""
    group = command.add_argument_group(
        "cost", "energy, carbon and money of many runs; shown where one of these is given"
    )
    add_cost_options(group)
    group.add_argument("--price-table", metavar="FILE", help="TOML price table instead of the shipped one")


def add_cost_options(group: Any) -> None:
    """What `add_cost` has beside prices."""
    group.add_argument("--region", metavar="CODE", help="grid whose carbon counts: ISO country code, or WORLD")
    group.add_argument("--carbon-intensity", type=float, metavar="G", help="your own gCO2e/kWh instead of a region's")
    group.add_argument("--pue", type=float, default=None, metavar="X", help="total over IT power (default: 1)")
    group.add_argument(
        "--grid-table", metavar="FILE", help="TOML table of carbon intensities instead of the shipped one"
    )


def cost(options: Any) -> Options | None:
    """What was asked for by `add_cost`; None where no such option was given."""
    given = (options.region, options.carbon_intensity, options.pue, options.price_table, options.grid_table)
    if all(value is None for value in given):
        return None
    from perfpass.deploy.cost import Options

    found = Options(
        region=options.region,
        g_per_kwh=options.carbon_intensity,
        pue=1.0 if options.pue is None else options.pue,
        price_table=options.price_table,
        grid_table=options.grid_table,
    )
    found.check()
    return found


def whole(text: str) -> int:
    """A whole number."""
    try:
        return int(text, 10)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def wholes(text: str) -> list[int]:
    """Whole numbers with commas between them."""
    return [whole(part.strip()) for part in text.split(",")]


def numbers(text: str) -> list[float]:
    """Numbers with commas between them."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not numbers with commas between them") from None


def texts(text: str) -> list[str]:
    """Words with commas between them."""
    return [part.strip() for part in text.split(",")]


def seconds(text: str) -> float:
    """A time, as 90s, 25m or 2h."""
    unit = {"s": 1.0, "m": 60.0, "h": 3600.0}.get(text[-1:])
    try:
        value = float(text[:-1]) if unit else float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time (for example 90s, 25m or 2h)")
    return value * (unit or 1.0)


def dim(text: str) -> tuple[str, int]:
    """NAME=N."""
    name, equals, value = text.rpartition("=")
    if not equals or not name or not value.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=N (for example batch=8)")
    return name, int(value)


_RANGE = r"(\d{1,15})\.\.(\d{1,15})(?::(x?)(\d{1,15}))?"
_MOST_SIZES = 1000


def sizes_of_dim(text: str) -> tuple[str, list[int]]:
    """NAME=N, or several sizes: N,N; A..B, which doubles; A..B:STEP; A..B:xFACTOR. B is among them where it is met."""
    name, equals, value = text.rpartition("=")
    found = [size for part in value.split(",") for size in _sizes(part)] if equals and name else []
    if not found or len(found) > _MOST_SIZES:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not NAME=N, NAME=N,N, NAME=A..B, NAME=A..B:STEP or NAME=A..B:xFACTOR of up to {_MOST_SIZES} "
            "sizes (for example batch=8, sequence=128..4096, sequence=128..1024:128)"
        )
    return name, list(dict.fromkeys(found))


def _sizes(text: str) -> list[int]:
    """The sizes of one part, none where it is no part."""
    if text.isdecimal():
        return [int(text)]
    found = re.fullmatch(_RANGE, text.strip())
    if found is None:
        return []
    first, last, by = int(found[1]), int(found[2]), int(found[4] or 2)
    times = found[3] == "x" or found[4] is None
    if not 1 <= first <= last or by < (2 if times else 1):
        return []
    sizes = [first]
    while len(sizes) <= _MOST_SIZES and (after := sizes[-1] * by if times else sizes[-1] + by) <= last:
        sizes.append(after)
    return sizes


def shape(text: str) -> tuple[str, tuple[int, ...]]:
    """NAME=SIZExSIZE."""
    name, equals, value = text.rpartition("=")
    parts = value.lower().split("x")
    if not equals or not name or not all(part.isdecimal() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=SIZExSIZE (for example input=1x3x224x224)")
    return name, tuple(int(part) for part in parts)


def once(pairs: Sequence[tuple[str, Any]], option: str) -> dict[str, Any] | None:
    """Repeated NAME=VALUE options as a mapping, None if there are none. Raises ArgumentError on a name given twice."""
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ArgumentError(f"{option} gives {twice!r} more than once; give each name once")
    return mapping or None


def deployed(options: Any) -> dict[str, Any]:
    """The lengths of a served language model's load, and how it is deployed, as every prediction of it takes them."""
    names = ("input_length", "output_length", "runtime_version", "precision", "kv_precision")
    return {name: getattr(options, name) for name in (*names, "tp", "pp", "dp", "ep", "workers")}
