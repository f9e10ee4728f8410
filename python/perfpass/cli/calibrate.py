"""`perfpass calibrate`: measurements of a device -> its calibration, or a plan of what to measure."""

from __future__ import annotations

import json
from typing import Any

from perfpass.cli.options import add_device_file, find_device, new_command, print_json, whole
from perfpass.cli.session import Progress, need
from perfpass.errors import ArgumentError

_EPILOG = """\
FILE is a journal of `perfpass measure` (records.jsonl) or of training loops (perfpass.torch), or a Parquet table of
vision records (docs/reference/records.md). Inference and training steps are learned apart; one training step is
enough for a scale. The calibration is stored beside your device files, `perfpass predict` uses it and says so,
and --no-calibration leaves it out. Ten measurements are enough for a scale, thirty-two bend it by kind of network.

examples:
  perfpass calibrate --device h100 --plan 10 --precision amp > plan.toml     what to measure
  perfpass measure --campaign plan.toml --device cuda -o records/h100
  perfpass calibrate --device h100 --records records/h100/records.jsonl"""


def add(commands: Any) -> None:
    """The command's options."""
    command = new_command(
        commands,
        "calibrate",
        run,
        "learn a device, or new software on it, from 10 to 32 measurements",
        _EPILOG,
    )
    command.add_argument("--device", required=True, metavar="NAME", help="device, or device:profile, or cpu")
    command.add_argument("--records", metavar="FILE", help="measurements of that device: JSONL or Parquet")
    command.add_argument("-o", "--output", metavar="DIR", help="where to write (default: the user's device folder)")
    command.add_argument("--plan", type=whole, metavar="N", help="print which N configurations to measure, and stop")
    command.add_argument("--precision", default="fp32", metavar="P", help="of the plan (default: fp32)")
    command.add_argument("--runtime", default="torch", metavar="R", help="of the plan (default: torch)")
    command.add_argument("--layout", default="nchw", metavar="L", help="of the plan (default: nchw)")
    command.add_argument("--json", action="store_true", help="the plan as JSON instead of a campaign file")
    add_device_file(command)


def run(options: Any) -> int:
    """Learns the device and prints what came of it, or prints a plan."""
    target = find_device(options)
    if (options.records is None) == (options.plan is None):
        raise ArgumentError("give either --records FILE to learn from or --plan N; see `perfpass calibrate --help`")
    if options.plan is not None:
        return _plan(options, target)
    from perfpass.calibrate import calibrate

    with Progress("measurement") as progress:
        outcome = calibrate(target, options.records, options.output, progress=progress)
    print(outcome)
    return 0


def _plan(options: Any, target: Any) -> int:
    need("calibrate --plan", "torch")
    from perfpass.calibrate import plan
    from perfpass.importers import torchvision_schemas

    torchvision_schemas.define()  # timm imports torchvision, which may stand beside another build of torch
    need("calibrate --plan", "timm")

    with Progress("network") as progress:
        chosen = plan(
            target,
            options.plan,
            precision=options.precision,
            runtime=options.runtime,
            layout=options.layout,
            progress=progress,
        )
    if options.json:
        print_json([c.to_dict() for c in chosen])
        return 0
    print(f"# {len(chosen)} configurations for {target.name}, the most telling first: a file for")
    print("# `perfpass measure --campaign FILE`, whose records `perfpass calibrate --records` reads.")
    print('name = "calibration"')
    for c in chosen:
        print("\n[[sweep]]")
        fields = {name: value for name, value in c.to_dict().items() if name not in ("mode", "repeat")}
        print("\n".join(f"{name} = [{json.dumps(value)}]" for name, value in fields.items()))
    return 0
