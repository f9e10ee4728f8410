"""`perfpass calibrate`: measurements of a device -> its calibration, or a plan of what to measure."""

from __future__ import annotations

import json
import sys
from typing import Any

from perfpass.cli.session import Progress, need
from perfpass.errors import ArgumentError


def run(options: Any) -> int:
    """Learns the device and prints what came of it, or prints a plan."""
    from perfpass.devices import add_file, device

    for path in options.device_file:
        add_file(path)
    target = device(options.device)
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
    from perfpass.importers import torchvision_schemas

    torchvision_schemas.define()
    need("calibrate --plan", "timm")
    from perfpass.calibrate import plan

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
        json.dump([c.to_dict() for c in chosen], sys.stdout, indent=2)
        print()
        return 0
    print(f"# {len(chosen)} configurations for {target.name}, the most telling first: a file for")
    print("# `perfpass measure --campaign FILE`, whose records `perfpass calibrate --records` reads.")
    print('name = "calibration"')
    for c in chosen:
        print("\n[[sweep]]")
        fields = {name: value for name, value in c.to_dict().items() if name not in ("mode", "repeat")}
        print("\n".join(f"{name} = [{json.dumps(value)}]" for name, value in fields.items()))
    return 0
