"""`perfpass evidence`: the measured records nearest to a question."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfpass.cli import llm
from perfpass.cli.options import (
    add_json,
    add_model,
    add_workload,
    find_device,
    model_sizes,
    new_command,
    print_json,
    whole,
    workload,
)
from perfpass.errors import ArgumentError, FileError, PerfPassError, UnsupportedError

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.evidence import Evidence

_EPILOG = """\
The question is that of `perfpass predict` or of `perfpass llm`, by the same arguments: a language model's load
(--input-length, --concurrency, --tp, a serving runtime, ...) asks the second, --batch, --mode and a runtime of graphs
the first; where nothing says which, a model that `perfpass llm` reads is served, but for encoder-decoders. Beside each
record: what it says when it is copied and scaled by physics, and how far it is; 0.10 is about ten per cent. A model
that cannot be read is looked up by its name. docs/reference/evidence.md has the table's columns, and how to open it in
DuckDB.

examples:
  perfpass evidence model.onnx --device t4 --batch 8
  perfpass evidence bert-base --device t4 --runtime tensorrt --precision fp16 --batch 1 --dim sequence=128
  perfpass evidence llama-3.1-8b --device l40s --concurrency 16
  perfpass evidence llama-3.1-8b --device rtx-4090 --offline --runtime llama.cpp --precision q4_k_m
  perfpass evidence resnet50.onnx --device a100 --leave-out source=timm --json"""
# Options that only a load of a language model has, and those that only a run of a graph has, as they are not given.
_SERVED: dict[str, Any] = {
    "input_length": None, "output_length": None, "concurrency": None, "offline": False, "runtime_version": "",
    "kv_precision": None, "tp": None, "pp": 1, "dp": 1, "ep": 1, "workers": 1, "prefill_workers": None,
    "prefill_tp": 1, "prefill_pp": 1, "prefill_dp": 1, "decode_batch": None, "equal_answers": False,
}  # fmt: skip
_RUN: dict[str, Any] = {
    "batch": None, "dim": [], "input_shape": [], "assume": [], "compiled": False, "layout": "nchw", "mode": "inference",
    "optimizer": None, "processes": None, "cuda_graph": False,
}  # fmt: skip
_LEAVE_OUT = ("source", "device", "model")


def add(commands: Any) -> None:
    """The command's options."""
    command = new_command(
        commands, "evidence", run, "list the measured records nearest to a question, copied and scaled", _EPILOG
    )
    add_model(command)
    command.add_argument(
        "--device", required=True, metavar="NAME", help="device, or device:profile for a MIG slice, or cpu for this one"
    )
    add_workload(command)
    command.set_defaults(precision=None)
    llm.add_load(command.add_argument_group("load of a language model"))
    llm.add_split(command.add_argument_group("deployment of a language model"))
    command.add_argument("--limit", type=whole, default=3, metavar="N", help="records of each quantity (default: 3)")
    command.add_argument(
        "--leave-out",
        action="append",
        default=[],
        metavar="WHAT=NAME",
        help="records of a source, device or model that do not count; may be given more than once",
    )
    add_json(command)


def run(options: Any) -> int:
    """Prints the records as a table or JSON."""
    if options.limit < 1:
        raise ArgumentError(f"--limit must be at least 1, got {options.limit}")
    found = _looked_up(options, find_device(options), _left_out(options.leave_out))
    if options.json:
        print_json(found.to_dict())
    else:
        print(found)
    return 0


def _looked_up(options: Any, target: Device, leave_out: dict[str, set[str]]) -> Evidence:
    """The evidence of a prediction, of a refusal to predict, or of a model's name alone."""
    from perfpass import evidence

    served = _is_served(options)
    try:
        asked: Any = _served(options, target) if served else _run(options, target)
    except (FileError, UnsupportedError) as refusal:
        if refusal.asked is not None:
            asked = refusal
        else:
            named = evidence.by_name(
                options.model,
                target,
                batch=float(options.batch or options.concurrency or 1),
                runtime=options.runtime or "",
                precision=options.precision or "",
                limit=options.limit,
                said=str(refusal),
            )
            if named is None:
                raise
            return named
    return evidence.of(asked, limit=options.limit, leave_out=leave_out)


def _is_served(options: Any) -> bool:
    """Whether the question is one of `perfpass llm`. Raises ArgumentError for options of both."""
    given = vars(options)
    load = [name for name, absent in _SERVED.items() if given[name] != absent]
    graph = [name for name, absent in _RUN.items() if given[name] != absent]
    if options.runtime is not None:
        (load if options.runtime in llm.RUNTIMES else graph).append("runtime")
    if load and graph:
        first, second = (f"--{names[0].replace('_', '-')}" for names in (load, graph))
        raise ArgumentError(f"{first} asks of a language model's load and {second} of a graph's run; leave out one")
    if load or graph:
        return bool(load)
    from perfpass.llm import language_model

    try:
        # An encoder-decoder is a graph to `perfpass.predict`, whose engines ran such; those of servers did not.
        return not language_model(options.model).is_encoder_decoder
    except PerfPassError:
        return False


def _served(options: Any, target: Device) -> Any:
    return llm.alone(options) if options.offline or llm.runs_alone(options) else llm.served(options, target)


def _run(options: Any, target: Device) -> Any:
    from perfpass.predictors import predict

    how = {**workload(options), "precision": options.precision or "fp32"}
    return predict(options.model, target, **model_sizes(options), **how)


def _left_out(given: list[str]) -> dict[str, set[str]]:
    """What is not to count. Raises ArgumentError."""
    found: dict[str, set[str]] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not value or name not in _LEAVE_OUT:
            raise ArgumentError(f"--leave-out {text!r} is not WHAT=NAME, where WHAT is {', '.join(_LEAVE_OUT)}")
        found.setdefault(name, set()).add(value)
    return found
