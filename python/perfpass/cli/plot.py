"""`perfpass plot`: a prediction, a sweep or a fleet as a picture, or as a profile for other tools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perfpass.cli.options import (
    OF_LIMITS,
    OF_RUN,
    add_device_files,
    add_limits,
    add_model,
    add_workload,
    find_device,
    limits,
    model_sizes,
    new_command,
    numbers,
    refuse,
    refuse_to_replace,
    swept_dims,
    texts,
    wholes,
    workload,
)
from perfpass.errors import ArgumentError

_OF_RUN = ("roofline", "operators", "icicle", "flame", "memory", "mig", "intervals")
_OF_SERVED = ("memory", "intervals")
_PROFILES = ("speedscope", "trace", "snapshot")
_OF_SWEEP = ("batch", "pareto", "load")
KINDS = (*_OF_RUN, *_PROFILES, *_OF_SWEEP, "fleet")
_OF_MANY = ("batches", "concurrency", "input_length", "output_length", "tp", "x", "y")
_BATCHES = [1, 2, 4, 8, 16, 32, 64]
_LOADS = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]

_EPILOG = """\
WHAT is one of
  roofline    the operators under the roofs of the device      operators   time by class of operator
  icicle      time by module of the model, flame: upside down  memory      over time, at its peak, by what holds it
  mig         the slices of the device, and what is kept       intervals   each figure beside the nearest records
  batch       latency against batch                            load        first token and token by requests in flight
  pareto      a sweep's points and their front                 fleet       GPUs and what stands on their slices
  speedscope  JSON for speedscope.app                          trace       JSON for Perfetto and chrome://tracing
  snapshot    a pickle for PyTorch's memory_viz
MODEL is as for `perfpass predict`; for memory and intervals also a language model that is served (without --batch);
for batch, pareto and load also as for `perfpass sweep`, or a sweep that --json wrote; for fleet a FLEET.toml, or a
layout that `perfpass pack --json` wrote. operators and intervals also take a prediction that --json wrote. Without -o
the picture is told in words and figures.

examples:
  perfpass plot roofline resnet50.onnx --device a100-sxm4-80gb -o roofline.svg
  perfpass plot memory resnet50.onnx --device t4 --mode training --batch 32 --theme dark -o memory.png
  perfpass plot batch resnet50.onnx --device t4,l4 --batches 1,8,64 -o batch.pdf
  perfpass plot load llama-3.1-8b --device h100-sxm --tp 1 -o load.svg
  perfpass plot trace model.onnx --device a10 -o trace.json     opens in ui.perfetto.dev
  perfpass plot fleet fleet.toml -o fleet.svg"""


def add(commands: Any) -> None:
    """The command's options."""
    command = new_command(commands, "plot", run, "draw a prediction, a sweep or a fleet", _EPILOG)
    command.add_argument("what", metavar="WHAT", choices=KINDS, help="which picture (below)")
    add_model(command)
    command.add_argument("--device", type=texts, metavar="A,B", help="device; several for batch, pareto and load")
    add_workload(command)
    add_limits(command)
    command.add_argument("--batches", type=wholes, metavar="N,N", help="batch, pareto: sizes (default: 1 to 64)")
    command.add_argument("--concurrency", type=numbers, metavar="N,N", help="load, pareto: requests (default: 1 to 64)")
    command.add_argument("--input-length", type=wholes, metavar="N", help="load, pareto: tokens of a prompt")
    command.add_argument("--output-length", type=wholes, metavar="N", help="load, pareto: tokens of an answer")
    command.add_argument("--tp", type=wholes, metavar="N,N", help="load, pareto: tensor parallelism")
    command.add_argument("--x", default="", metavar="FIGURE", help="pareto: the figure across (default: time)")
    command.add_argument("--y", default="", metavar="FIGURE", help="pareto: the figure upwards (default: money)")
    command.add_argument("--theme", default="light", metavar="T", help="light or dark (default: light)")
    command.add_argument("-o", "--output", metavar="FILE", help=".svg, .pdf or .png (the last two need matplotlib)")


def run(options: Any) -> int:
    """Draws, and says what was written; in words without -o."""
    refuse_to_replace(options.output, [options.model])
    if options.what in _PROFILES:
        if not options.output:
            raise ArgumentError(f"plot {options.what} writes a file: give -o FILE")
        getattr(_run_plots(options), options.what)(options.output)
    else:
        picture = _picture(options)
        if not options.output:
            print(picture)
            return 0
        picture.save(options.output, options.theme)
    print(f"{options.output}: {options.what} of {options.model}")
    return 0


def _picture(options: Any) -> Any:
    if options.what == "fleet":
        return _fleet(options).fleet()
    if options.what not in _OF_SWEEP:
        return getattr(_run_plots(options), options.what)()
    plots = _sweep(options).plot
    drawn: dict[str, Callable[[], Any]] = {
        "batch": plots.batch,
        "load": plots.load,
        "pareto": lambda: plots.pareto(options.x, options.y),
    }
    return drawn[options.what]()


def _run_plots(options: Any) -> Any:
    from perfpass.decision import Limits
    from perfpass.predictors import predict
    from perfpass.report import RunPlots
    from perfpass.report.stored import is_stored
    from perfpass.stored_prediction import prediction_of

    if is_stored(options.model):
        return RunPlots(prediction_of(_one(options.model, "prediction"), options.model))
    devices = options.device or []
    if len(devices) != 1:
        raise ArgumentError(f"plot {options.what} is of one run on one device: give --device NAME")
    asked = limits(options) or (Limits() if options.what == "mig" else None)
    device = find_device(options, devices[0])
    if options.what in _OF_SERVED and options.batch is None and options.mode == "inference" and not options.cuda_graph:
        from perfpass.deploy.sweep import served_model

        if served_model(options.model, {"dims"} if options.dim or options.input_shape else ()) is not None:
            return _served(options, device)
    refuse(options, _OF_MANY, f"plot {options.what} of one run")
    return predict(options.model, device, **model_sizes(options), **workload(options), limits=asked).plot


def _served(options: Any, device: Any) -> Any:
    from perfpass.predictors.serving.predictor import predict_llm

    given = {
        "concurrency": options.concurrency,
        "input_length": options.input_length,
        "output_length": options.output_length,
        "tp": options.tp,
    }
    for name, values in given.items():
        if values is not None and len(values) != 1:
            raise ArgumentError(f"plot {options.what} is of one load: give one value of --{name.replace('_', '-')}")
    one = {name: values[0] for name, values in given.items() if values is not None}
    precision = None if options.precision == "fp32" else options.precision
    return predict_llm(options.model, device, runtime=options.runtime, precision=precision, **one).plot


def _sweep(options: Any) -> Any:
    from perfpass.cli.options import once
    from perfpass.deploy.sweep import Sweep, served_model, sweep
    from perfpass.report.stored import is_stored

    if is_stored(options.model):
        return Sweep.from_dict(_one(options.model, "sweep"), options.model)
    refuse(options, ("assume", *OF_RUN, *OF_LIMITS), f"plot {options.what}, a sweep,")
    add_device_files(options)
    network = options.what == "batch" or options.batches is not None or served_model(options.model, set()) is None
    stated = options.precision != "fp32"
    how: dict[str, Any] = {"precisions": texts(options.precision) if network or stated else None}
    if network:
        batches = options.batches or ([options.batch] if options.batch else _BATCHES)
        runtime = "torch.compile" if options.compiled else options.runtime
        how |= {"batches": batches, "layouts": texts(options.layout), "runtimes": texts(runtime) if runtime else None}
        how |= {"dims": swept_dims(options), "input_shape": once(options.input_shape, "--input-shape")}
        how["cuda_graph"] = options.cuda_graph
    else:
        refuse(options, ("cuda_graph",), f"plot {options.what} of a served language model")
        how |= {"concurrencies": options.concurrency or _LOADS, "tensor_parallel": options.tp}
        how |= {"input_lengths": options.input_length, "output_lengths": options.output_length}
        how |= {"runtimes": texts(options.runtime) if options.runtime else None}
    return sweep(options.model, options.device, **how)


def _fleet(options: Any) -> Any:
    from perfpass.report import FleetPlots
    from perfpass.report.stored import is_stored

    if is_stored(options.model):
        return FleetPlots(_one(options.model, "fleet"))
    from perfpass.deploy.pack import pack

    return pack(options.model).plot


def _one(path: str, kind: str) -> dict[str, Any]:
    from perfpass.report.stored import read

    found = read(path)
    if len(found) != 1 or found[0].kind != kind:
        raise ArgumentError(f"{path} holds {' and '.join(one.kind for one in found)}; this picture is of a {kind}")
    return found[0].document
