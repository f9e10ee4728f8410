"""ml-energy/zeus (NSDI 2023): power and time of training epochs by network, batch size and GPU power limit."""

from __future__ import annotations

from pathlib import Path

from perfpass.records.schema import Reading
from perfpass.records.sources import add_caveat, table_of


def read(shared: Path) -> Reading:
    """Records of kind ``training``; ``latency_ms`` and ``energy_j`` are those of an epoch."""
    import pandas

    reading = Reading("zeus")
    table = table_of(shared, "zeus_nsdi23", "training_power.csv")
    rows = pandas.DataFrame(
        {
            "licence": "Apache-2.0",
            "run": "training_power",
            "device": table.device,
            "n_devices": 1,
            "runtime": "torch",
            "precision": "fp32",
            "mode": "training",
            "batch": table.batch_size,
            "timing": "one epoch, measured once",
            "model": table.network,
            "family": table.network.str.split("_").str[0],
            "dataset": table.dataset,
            "optimizer": table.optimizer,
            "power_limit_w": table.power_limit_w,
            "latency_ms": table.time_per_epoch_s * 1e3,
            "power_w": table.average_power_w,
            "energy_j": table.energy_per_epoch_j,
            "caveats": "precision_not_stated",
        }
    )
    # Z1: the A40 does not hold a limit of 100 W.
    above = (table.average_power_w > 1.02 * table.power_limit_w).to_numpy()
    rows["caveats"] = add_caveat(rows.caveats, above, "power_above_the_limit")
    reading.add("training", rows)
    return reading
