"""Options of `perfpass llm` that hand its figures to others: files of simulators, metrics of Prometheus."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from perfpass.cli.llm_switches import switches
from perfpass.cli.options import print_json
from perfpass.errors import ArgumentError

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.predictors.serving.prediction import LlmPrediction

SIMULATORS = ("sglang", "vidur", "dynamo", "llm-d", "blis")
ENGINES = ("vllm", "sglang", "trtllm", "llama.cpp")
_LOOPBACK = "127.0.0.1"


def add_seams(command: Any) -> None:
    """--tune and its targets, --simulator, --out, --metrics and --engine."""
    command.add_argument(
        "--tune",
        choices=ENGINES,
        help="propose the engine's flags for the load and the targets, with what each is expected to bring",
    )
    for name, text in (("ttft", "the first token"), ("tpot", "a token after it")):
        command.add_argument(
            f"--{name}", type=float, metavar="MS", help=f"target of --tune (mean) and of --rate: ms to {text}"
        )
    command.add_argument(
        "--confidence", type=float, metavar="P", help="of --tune: with which targets are kept (default: 0.9)"
    )
    command.add_argument(
        "--simulator",
        choices=SIMULATORS,
        help="write the step times that a simulator reads into the folder --out (docs/guides/simulators.md)",
    )
    command.add_argument("--out", metavar="DIR", help="of --simulator (default: the simulator's name)")
    command.add_argument(
        "--metrics",
        type=_place,
        metavar="[HOST:]PORT",
        help=f"serve Prometheus metrics of the predicted times at the present load (HOST default: {_LOOPBACK})",
    )
    command.add_argument(
        "--engine",
        action="append",
        default=[],
        metavar="URL",
        help="of --metrics: where vLLM or SGLang tells its load, as http://127.0.0.1:8000/metrics (default: the load "
        "that the options state)",
    )


def _place(text: str) -> tuple[str, int]:
    """The host and port of [HOST:]PORT."""
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdecimal() and 0 < int(port) < 65_536):
        raise argparse.ArgumentTypeError(f"{text!r} is no port; give one as 9400 or 0.0.0.0:9400")
    return host.strip("[]") or _LOOPBACK, int(port)


def asked_for(options: Any, *, targets: bool = True) -> str:
    """The first of the options of `add_seams` that is given, "" where none is; ``targets``: --ttft and --tpot too."""
    names = ("tune", "confidence", "simulator", "out", "metrics", "engine", *(("ttft", "tpot") if targets else ()))
    return next((f"--{name}" for name in names if getattr(options, name) not in (None, [])), "")


def handed_over(options: Any, found: LlmPrediction) -> bool:
    """Does what the options of `add_seams` ask; False where they ask for nothing."""
    if options.engine and not options.metrics:
        raise ArgumentError("--engine says where --metrics finds the load; give --metrics too")
    if options.out and not options.simulator:
        raise ArgumentError("--out is the folder of --simulator; give --simulator too")
    if asked_for(options) and switches(options):
        raise ArgumentError(f"{asked_for(options)} is of a plain engine; leave out --draft and --prefix-hit")
    targets = {name: getattr(options, name) for name in ("ttft", "tpot", "confidence")}
    if given := [name for name, value in targets.items() if value is not None and not options.tune]:
        raise ArgumentError(f"--{given[0]} is of --tune; give --tune too")
    if options.tune:
        _tune(options, found)
    if options.simulator:
        _write(options, found)
    if options.metrics:
        _serve(options, found)
    return bool(options.tune or options.simulator or options.metrics)


def slots(options: Any, target: Device) -> None:
    """`--tune llama.cpp`, whose server has no records. Raises ArgumentError for what has no meaning there."""
    from perfpass.deploy.tune import tune_slots

    wrong = (
        *("ttft", "tpot", "simulator", "out", "metrics", "engine"),
        *("prefill_workers", "decode_batch", "equal_answers"),
    )
    asked = ((name, getattr(options, name)) for name in wrong)
    if given := [name for name, value in asked if value is not False and value not in (None, [])]:
        raise ArgumentError(f"--tune llama.cpp proposes slots of one device; leave out --{given[0].replace('_', '-')}")
    if options.runtime not in (None, "llama.cpp") or switches(options):
        raise ArgumentError("--tune llama.cpp is of llama.cpp alone; leave out --runtime, --draft and --prefix-hit")
    proposed = tune_slots(
        options.model,
        target,
        input_length=options.input_length,
        output_length=options.output_length,
        concurrency=options.concurrency,
        precision=options.precision,
        confidence=0.9 if options.confidence is None else options.confidence,
    )
    if options.json:
        print_json(proposed.to_dict())
    else:
        print(proposed)


def _tune(options: Any, found: LlmPrediction) -> None:
    from perfpass.deploy.tune import tune

    proposed = tune(
        found,
        options.tune,
        ttft_ms=options.ttft,
        tpot_ms=options.tpot,
        confidence=0.9 if options.confidence is None else options.confidence,
        kv_precision=options.kv_precision,
    )
    if options.json:
        print_json(proposed.to_dict())
    else:
        print(proposed)


def _write(options: Any, found: LlmPrediction) -> None:
    from perfpass.deploy.outputs import write_files
    from perfpass.simulators import Deployed, files

    asked = found.asked
    folder = options.out or options.simulator
    content = files(Deployed(asked.model, asked.device, asked.serving), options.simulator)
    written = write_files(content, folder)
    if options.json:
        print_json({"simulator": options.simulator, "files": written})
    else:
        print("\n".join(f"wrote {path}" for path in written))


def _serve(options: Any, found: LlmPrediction) -> None:
    from perfpass.exporter import EngineLoad, Exporter, Load, at_load, fetched, serve

    host, port = options.metrics
    serving = found.asked.serving
    stated = Load(serving.concurrency, 0.0, serving.input_length, serving.output_length)
    load = EngineLoad(stated, [fetched(url) for url in options.engine]) if options.engine else lambda: stated
    exporter = Exporter(load, at_load(found))
    _, thread = serve(exporter, port, host)
    print(f"http://{host}:{port}/metrics; stop with Ctrl-C", file=sys.stderr)
    try:
        thread.join()
    except KeyboardInterrupt:
        return
