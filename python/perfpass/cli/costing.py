"""Options that turn a prediction into carbon and money, for every command that predicts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfpass.deploy.cost import Options


def add_cost_options(command: Any) -> None:
    """--region, --carbon-intensity, --pue, --price-table, --grid-table."""
    group = command.add_argument_group(
        "cost", "energy, carbon and money of many runs; shown where one of these is given"
    )
    group.add_argument("--region", metavar="CODE", help="grid whose carbon counts: ISO country code, or WORLD")
    group.add_argument("--carbon-intensity", type=float, metavar="G", help="your own gCO2e/kWh instead of a region's")
    group.add_argument("--pue", type=float, default=None, metavar="X", help="total over IT power (default: 1)")
    group.add_argument("--price-table", metavar="FILE", help="TOML price table instead of the shipped one")
    group.add_argument(
        "--grid-table", metavar="FILE", help="TOML table of carbon intensities instead of the shipped one"
    )


def cost_options(options: Any) -> Options | None:
    """What was asked for; None where no cost option was given."""
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
