"""`perfpass pack`: models with rates and targets onto GPUs and MIG slices, and the files that deploy them."""

from __future__ import annotations

from typing import Any

from perfpass.cli.options import (
    add_device_file,
    add_device_files,
    add_json,
    add_limits,
    new_command,
    print_json,
    stated_limits,
    texts,
    whole,
)
from perfpass.errors import ArgumentError

_EPILOG = """\
FLEET.toml names the GPUs that there may be, and the models with their rates, targets and copies; its format is in
docs/reference/fleet-format.md. Each model gets instances in which it meets its targets and fits with the
probabilities asked for. Exit status: 0 packed, 1 cannot be packed, 2 cannot say (the time ran out, or the
arguments are wrong); other codes are those of errors.

examples:
  perfpass pack fleet.toml                                          fewest GPUs, with a picture of each
  perfpass pack fleet.toml --objective price --confidence 0.95      cheapest
  perfpass pack fleet.toml --format mig-parted,k8s -o deploy        and the files that make it so
  perfpass pack fleet.toml --json > layout.json                     and later, from that layout:
  perfpass pack fleet.toml --today layout.json                      with the steps of the change
  perfpass pack --from model.onnx lib.so --format k8s -o deploy     by the predictions that the files carry"""


def add(commands: Any) -> None:
    """The command's options."""
    from perfpass.deploy.outputs.formats import FORMATS

    command = new_command(commands, "pack", run, "pack models onto GPUs and MIG slices", _EPILOG)
    command.add_argument("fleet", nargs="?", metavar="FLEET.toml", help="GPUs, models, rates and targets")
    command.add_argument(
        "--from",
        dest="carriers",
        nargs="+",
        metavar="FILE",
        help="instead of a fleet: ONNX files and TVM libraries that carry a prediction (annotate, tvm_perfpass.build)",
    )
    command.add_argument("--copies", type=whole, default=1, metavar="N", help="of each model, with --from (default: 1)")
    command.add_argument("--objective", metavar="O", help="gpus: the fewest, or price: the cheapest (default: gpus)")
    add_limits(command.add_argument_group("what each model is to keep (--confidence also of a fleet)"))
    command.add_argument(
        "--time-limit", type=float, default=60.0, metavar="S", help="seconds for all of it (default: 60)"
    )
    command.add_argument("--today", metavar="FILE", help="the layout of today, as --json printed it")
    command.add_argument("--price-table", metavar="FILE", help="TOML price table instead of the shipped one")
    command.add_argument(
        "--format", type=texts, default=[], metavar="F,F", help=f"files to write: {', '.join(FORMATS)} (needs -o)"
    )
    command.add_argument("-o", "--output", metavar="DIR", help="folder that the files are written to")
    add_device_file(command)
    add_json(command)


def run(options: Any) -> int:
    """Prints the layout and writes the files that were asked for."""
    from perfpass.deploy.outputs import check_formats, files, write_files

    if bool(options.fleet) == bool(options.carriers):
        raise ArgumentError("give FLEET.toml, or --from FILE..., and not both; see `perfpass pack --help`")
    if options.fleet and any(v is not None for v in (options.latency, options.memory, options.energy)):
        raise ArgumentError(
            "--latency, --memory and --energy go with --from; a fleet file states targets of each model"
        )
    if bool(options.format) != bool(options.output):
        raise ArgumentError("--format and -o go together: what to write, and where")
    check_formats(options.format)
    add_device_files(options)
    layout = _layout(options)
    written = write_files(files(layout, options.format), options.output) if layout.found and options.format else []
    if options.json:
        print_json({**layout.to_dict(), "files": written})
    else:
        print(layout)
        for path in written:
            print(f"  wrote        {path}")
    return {"unsatisfiable": 1, "unknown": 2}.get(layout.status, 0)


def _layout(options: Any) -> Any:
    from perfpass.deploy import pack as packing

    if options.carriers:
        from perfpass.cli.carried import carried

        predictions = [(path, carried(path)) for path in options.carriers]
        return packing.hinted(
            predictions, copies=options.copies, time_limit_s=options.time_limit, limits=stated_limits(options)
        )
    today = packing.standing(options.today) if options.today else None
    return packing.pack(
        options.fleet,
        objective=options.objective,
        confidence=options.confidence,
        time_limit_s=options.time_limit,
        price_table=options.price_table,
        today=today,
    )
