"""`perfpass report`: predictions, a sweep, a difference or a fleet as one page."""

from __future__ import annotations

import os
import time
from typing import Any

from perfpass.cli.options import (
    OF_LIMITS,
    OF_RUN,
    OF_SIZES,
    OF_WORKLOAD,
    add_cost,
    add_device_files,
    add_limits,
    add_sizes,
    add_workload,
    cost,
    find_device,
    limits,
    model_sizes,
    new_command,
    numbers,
    refuse,
    refuse_to_replace,
    swept_dims,
    texts,
    whole,
    wholes,
    workload,
)
from perfpass.errors import ArgumentError

_FORMATS = ("html", "md")
# How files of a format end; a name without an ending is taken as it is.
_SUFFIXES = {"html": (".html", ".htm", ".xhtml"), "md": (".md", ".markdown", ".txt")}
_MOST_RUNS = 40
_OF_SERVED = ("input_length", "output_length", "concurrency", "tp")
_OF_CARBON = ("region", "carbon_intensity", "pue", "grid_table")
_OF_COST = ("price_table", *_OF_CARBON)
_OF_MODELS = ("device", "diff", "batches", *OF_SIZES, *OF_WORKLOAD, *OF_LIMITS, *_OF_SERVED, *_OF_COST)
_EPILOG = """\
MODEL is as for `perfpass predict`, or a language model that is served, as for `perfpass llm`. Each is predicted on each
device; several stand side by side. A FLEET.toml is packed. A JSON file that predict, sweep, diff, pack, fit, choose or
train-cost wrote is shown as it is. The page is one file that asks nothing of the network; --format md is for pull
requests.

examples:
  perfpass report resnet50.onnx --device a100-sxm4-80gb -o report.html
  perfpass report resnet50.onnx vit.onnx --device t4,l4 --batch 8 --precision fp16 -o report.html
  perfpass report resnet50.onnx --device t4 --latency 20 --region FR -o report.html    a decision, cost and carbon
  perfpass report old.onnx new.onnx --diff --device t4 --format md                     for a pull request
  perfpass report resnet50.onnx --device t4,l4 --batches 1,8,64 -o sweep.html          a sweep
  perfpass report llama-3.1-8b --device h100-sxm --concurrency 16 -o llama.html
  perfpass report fleet.toml -o fleet.html
  perfpass report run.json -o run.html          of `perfpass train-cost MODEL --device h100 --json > run.json`
  perfpass report layout.json diff.json --format md"""


def add(commands: Any) -> None:
    """The command's options."""
    command = new_command(commands, "report", run, "write a prediction, a sweep or a fleet as a page", _EPILOG)
    command.add_argument("models", nargs="+", metavar="MODEL", help="models, FLEET.toml, or JSON files of results")
    command.add_argument("--device", type=texts, action="extend", default=[], metavar="A,B", help="devices or slices")
    add_sizes(command)
    add_workload(command)
    add_limits(command)
    command.add_argument("--diff", action="store_true", help="compare two models: OLD NEW")
    command.add_argument("--batches", type=wholes, metavar="N,N", help="sweep these batch sizes instead of one run")
    command.add_argument("--input-length", type=whole, metavar="N", help="tokens of a prompt (served)")
    command.add_argument("--output-length", type=whole, metavar="N", help="tokens of an answer (served)")
    command.add_argument(
        "--concurrency", type=numbers, metavar="N,N", help="requests in flight; several: a sweep (served)"
    )
    command.add_argument("--tp", type=whole, metavar="N", help="tensor parallelism (served)")
    add_cost(command)
    command.add_argument("--format", default="html", choices=_FORMATS, metavar="F", help="html or md (default: html)")
    command.add_argument("-o", "--output", metavar="FILE", help="the page (html needs it; md goes to stdout without)")


def run(options: Any) -> int:
    """Writes the page, and says how large it is and how long it took."""
    from perfpass.report.page import html, markdown
    from perfpass.whole_file import write_whole

    if options.format == "html" and not options.output:
        raise ArgumentError("a page is written to a file: give -o FILE.html, or --format md for stdout")
    refuse_to_replace(options.output, options.models)
    suffix = os.path.splitext(options.output or "")[1].lower()
    if suffix and suffix not in _SUFFIXES[options.format]:
        raise ArgumentError(
            f"a page is HTML, or with --format md Markdown, and {os.path.basename(options.output)!r} says {suffix}: "
            "name it .html, or .md with --format md"
        )
    begun = time.perf_counter()
    pages = _pages(options)
    if options.format == "html" and len(pages) > 1:
        raise ArgumentError(f"{len(pages)} results of other kinds do not share a page: give one, or --format md")
    text = html(pages[0]) if options.format == "html" else "\n".join(map(markdown, pages))
    if not options.output:
        print(text, end="")
        return 0
    write_whole(options.output, text)
    print(f"{options.output}: {len(text.encode()) / 1e3:,.0f} kB in {time.perf_counter() - begun:.1f} s")
    return 0


def _pages(options: Any) -> list[Any]:
    from perfpass.report.stored import is_stored, read

    stored = [model for model in options.models if is_stored(model)]
    if stored and len(stored) < len(options.models):
        raise ArgumentError("give models, or JSON files of results, and not both")
    if stored:
        refuse(options, _OF_MODELS, "a page of JSON files of results")
        return _stored(stored)
    if options.diff:
        refuse(options, ("batches", *OF_LIMITS, *_OF_SERVED, *_OF_COST), "the page of a difference")
        return [_diff(options)]
    if any(model.endswith(".toml") for model in options.models):
        refuse(options, _OF_MODELS, "the page of a fleet")
        return [_fleet(options)]
    if options.batches is not None:
        unread = ("batch", "assume", *OF_RUN, *OF_LIMITS, *_OF_SERVED, *_OF_CARBON)
        refuse(options, unread, "the page of a sweep")
        add_device_files(options)
        return [_sweep(options, model, batches=options.batches) for model in options.models]
    if not options.device:
        for model in options.models:
            if model.endswith(".json"):
                read(model)
        raise ArgumentError("give --device NAME to predict for; see `perfpass report --help`")
    served = [_is_served(options, model) for model in options.models]
    if any(served):
        if not all(served) or len(options.models) > 1 or len(options.device) > 1:
            raise ArgumentError("a served language model has a page of its own: give one model and one device")
        of_networks = ("assume", "compiled", "layout", "cuda_graph", *OF_RUN, *OF_LIMITS)
        refuse(options, of_networks, "the page of a served language model")
        return [_served(options)]
    refuse(options, _OF_SERVED, "the page of a run")
    return [_runs(options)]


def _stored(paths: list[str]) -> list[Any]:
    from perfpass.deploy.sweep import Sweep
    from perfpass.report.page import compared_page, run_page, stored_page, sweep_page
    from perfpass.report.stored import read
    from perfpass.stored_prediction import prediction_of

    found = [one for path in paths for one in read(path)]
    predictions = [prediction_of(one.document, one.path) for one in found if one.kind == "prediction"]
    pages: list[Any] = []
    if len(predictions) == 1:
        pages.append(run_page(predictions[0]))
    elif predictions:
        pages.append(compared_page(predictions, [None] * len(predictions), [""] * len(predictions)))
    for one in found:
        if one.kind == "sweep":
            pages.append(sweep_page(Sweep.from_dict(one.document, one.path)))
        elif one.kind == "served":
            raise ArgumentError(
                f"{one.path}: a served model is shown by its name: `perfpass report MODEL --device NAME`"
            )
        elif one.kind != "prediction":
            pages.append(stored_page(one.kind, one.document, one.path))
    return pages


def _runs(options: Any) -> Any:
    from perfpass.predictors import predict
    from perfpass.report.page import USUAL, runs_page

    devices = [find_device(options, name) for name in dict.fromkeys(options.device)]
    if len(devices) * len(options.models) > _MOST_RUNS:
        raise ArgumentError(f"{len(options.models)} models on {len(devices)} devices; a page holds {_MOST_RUNS} runs")
    asked = cost(options) or USUAL
    how = {**model_sizes(options), **workload(options), "limits": _limits(options)}
    names = {model: os.path.basename(model.rstrip("/")) for model in options.models}
    found = [(names[model], predict(model, on, **how), on) for model in options.models for on in devices]
    return runs_page(found, asked)


def _limits(options: Any) -> Any:
    from perfpass.decision import Limits

    return limits(options) or Limits()


def _diff(options: Any) -> Any:
    from perfpass.deploy.difference import diff
    from perfpass.report.page import stored_page

    if len(options.models) != 2:
        raise ArgumentError(f"--diff compares two models, OLD and NEW, and got {len(options.models)}")
    how = workload(options)
    if how.pop("predictor") != "perfpass":
        raise ArgumentError("diff has the ratios of perfpass's own predictor alone; leave out --predictor")
    devices = [find_device(options, name) for name in dict.fromkeys(options.device)]
    found = diff(options.models[0], options.models[1], devices, **model_sizes(options), **how)
    return stored_page("diff", found.to_dict(), "the difference")


def _fleet(options: Any) -> Any:
    from perfpass.deploy.pack import pack
    from perfpass.report.page import stored_page

    if len(options.models) != 1:
        raise ArgumentError("a fleet has a page of its own: give one FLEET.toml")
    return stored_page("fleet", pack(options.models[0]).to_dict(), options.models[0])


def _is_served(options: Any, model: str) -> bool:
    if model.endswith(".onnx"):  # a run of a graph, for which nothing of serving is imported
        return False
    from perfpass.deploy.sweep import served_model

    given = {"batches"} if options.batch is not None or options.dim or options.input_shape else set()
    return options.mode == "inference" and served_model(model, given) is not None


def _sweep(options: Any, model: str, **varied: Any) -> Any:
    from perfpass.cli.options import once
    from perfpass.deploy.sweep import sweep
    from perfpass.report.page import sweep_page

    runtime = workload(options)["runtime"]
    sizes: dict[str, Any] = {
        "dims": swept_dims(options),
        "input_shape": once(options.input_shape, "--input-shape"),
    }
    how: dict[str, Any] = {
        "precisions": texts(options.precision),
        "runtimes": texts(runtime),
        "layouts": texts(options.layout),
        "cuda_graph": options.cuda_graph,
    }
    return sweep_page(sweep(model, options.device or None, **how, **sizes, **varied, price_table=options.price_table))


def _served(options: Any) -> Any:
    from perfpass.predictors.serving.predictor import predict_llm
    from perfpass.report.page import LOADS, USUAL, loads_page

    device, (model,) = find_device(options, options.device[0]), options.models
    loads = options.concurrency or LOADS
    stated: dict[str, Any] = {
        "precision": None if options.precision == "fp32" else options.precision,
        "runtime": options.runtime,
        "input_length": options.input_length,
        "output_length": options.output_length,
    }
    found = predict_llm(model, device, concurrency=loads[0], tp=options.tp, **stated)
    return loads_page(model, device, found, LOADS if len(loads) == 1 else loads, cost(options) or USUAL, **stated)
