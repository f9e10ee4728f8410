"""`perfpass devices`: the catalogue, or one device with the source of every figure."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from perfpass.cli.options import add_device_file, add_device_files, add_json, new_command, print_json

if TYPE_CHECKING:
    from perfpass.devices import Device


def add(commands: Any) -> None:
    """The command's options."""
    command = new_command(
        commands,
        "devices",
        run,
        "list the devices, or show one with its MIG profiles and the source of every figure",
        "examples:\n  perfpass devices\n  perfpass devices h100\n  perfpass devices a100-80gb:2g.20gb\n"
        "  perfpass devices --device-file my_gpu.toml --json",
    )
    command.add_argument("name", nargs="?", metavar="NAME", help="one device; all if not given")
    add_json(command, "a table")
    add_device_file(command)


def run(options: Any) -> int:
    """Prints the list, or the sheet of one device with what was calibrated of it."""
    from perfpass.devices import catalogue, device
    from perfpass.devices.sheet import device_list, device_sheet

    add_device_files(options)
    if options.name is not None:
        one = device(options.name)
        if one.read_as:
            print(f"perfpass: {one.read_as}", file=sys.stderr)
        learned = _calibration(one)
        if options.json:
            print_json({**one.to_dict(), "calibration": learned, "steps": _steps(one)})
        else:
            print(device_sheet(one))
            if learned:
                print("\n" + _calibration_lines(learned))
            if steps := _steps(one):
                print("\n" + _steps_lines(steps))
        return 0
    known = catalogue()
    if options.json:
        print_json([d.to_dict() for d in known])
        return 0
    print(device_list(known))
    print(
        f"\n{len(known)} devices, and cpu for this machine. Dense peaks in TFLOP/s, power limit in W.\n"
        "`perfpass devices NAME` shows the rest, MIG profiles and sources."
    )
    return 0


def _calibration(device: Device) -> dict[str, Any] | None:
    """What `perfpass calibrate` has stored of a device, as JSON types; None without. Raises as `calibration.find`."""
    from perfpass.predictors.calibration import posterior as calibration
    from perfpass.predictors.calibration.correction import digest_of

    found = calibration.find(device)
    if found is None:
        return None
    software = sorted(set(found.software))
    return {
        **found.provenance,
        "points": len(found.log_ratio),
        "software": {name: found.software.count(name) for name in software},
        "predictors": {
            name: "current" if digest == digest_of(name) else "of another version, not used"
            for name, digest in found.predictors.items()
        },
    }


def _calibration_lines(facts: dict[str, Any]) -> str:
    """The calibration of a device in words."""
    from perfpass.text import paragraph, printable

    software = ", ".join(f"{printable(name)} ({number})" for name, number in facts["software"].items())
    predictors = ", ".join(f"{printable(name)} ({state})" for name, state in facts["predictors"].items())
    return paragraph(
        "calibrated",
        f"by {facts['points']} measurements ({printable(str(facts.get('records', 'no file stated')))}, "
        f"{printable(str(facts.get('made_at', 'no date stated')))}): {software}; predictors: {predictors}",
    )


def _steps(device: Device) -> dict[str, Any] | None:
    """What is stored of own training steps on a device, as JSON types; None without. Raises as `steps.find`."""
    from perfpass.predictors.calibration import steps

    found = steps.find(device)
    if found is None:
        return None
    return {
        **found.provenance,
        "figures": {metric: sum(p.metric == metric for p in found.points) for metric in steps.METRICS},
        "predictors": {
            name: "current" if digest == steps.digest_of(name) else "of another version, not used"
            for name, digest in found.predictors.items()
        },
    }


def _steps_lines(facts: dict[str, Any]) -> str:
    """The same in words."""
    from perfpass.text import paragraph, printable

    figures = ", ".join(f"{metric.rpartition('_')[0]} ({number})" for metric, number in facts["figures"].items())
    predictors = ", ".join(f"{printable(name)} ({state})" for name, state in facts["predictors"].items())
    return paragraph("own steps", f"{figures}; predictors: {predictors}")
