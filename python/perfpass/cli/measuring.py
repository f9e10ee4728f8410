"""`perfpass measure`: models or a campaign file -> records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from perfpass.cli.session import Progress, need
from perfpass.errors import ArgumentError
from perfpass.measure.campaign_file import Campaign, campaign, read_campaign
from perfpass.measure.configuration import Configuration
from perfpass.measure.order import informative_order

_AXES = (
    "mode",
    "batch",
    "precision",
    "layout",
    "runtime",
    "image_size",
    "sequence_length",
    "optimizer",
    "threads",
    "repeats",
)


def run(options: Any) -> int:
    """Measures, prints the summary, and returns 0; what failed is in the records and the summary."""
    wanted = _campaign(options)
    if options.list:
        for configuration in informative_order(wanted.configurations):
            print(_line(configuration))
        return 0
    need("measure", "torch", "psutil")
    from perfpass.measure.campaign import run as run_campaign

    output = Path(options.output or Path("records") / wanted.name)
    with Progress("configuration") as progress:
        outcome = run_campaign(
            wanted,
            output,
            lambda log: _pool(options, wanted, log),
            budget_s=options.budget,
            retry_failed=options.retry_failed,
            progress=progress,
        )
    print(outcome)
    return 0


def _campaign(options: Any) -> Campaign:
    given = {name: value for name in _AXES if (value := getattr(options, name)) is not None}
    if (options.campaign is None) == (not options.models):
        raise ArgumentError("give either models to measure or --campaign FILE; see `perfpass measure --help`")
    fixed = {} if options.device is None else {"device": options.device}
    if options.campaign is not None:
        if given:
            names = ", ".join("--" + name.replace("_", "-") for name in given)
            raise ArgumentError(f"{names}: these are set in the campaign file; leave them out or give models instead")
        return read_campaign(options.campaign, **fixed)
    return campaign({"sweep": [{"model": options.models} | given]}, default_name="measured", **fixed)


def _pool(options: Any, wanted: Campaign, log: Path) -> Any:
    devices = sorted({configuration.device for configuration in wanted.configurations})
    if options.ray is not None:
        from perfpass.measure.cluster import RayPool

        return RayPool(options.ray, devices, workers=options.ray_workers)
    if len(devices) > 1:
        raise ArgumentError(f"the campaign names the devices {', '.join(devices)}; choose one with --device")
    from perfpass.measure.local import LocalPool

    return LocalPool(devices, log)


def _line(configuration: Configuration) -> str:
    fields = configuration.to_dict()
    model = fields.pop("model")
    return f"{model} " + " ".join(f"{name}={value}" for name, value in fields.items() if name != "repeat" or value)
