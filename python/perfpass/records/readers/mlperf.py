"""mlcommons/cm4mlperf-results: closed division of MLPerf Inference v2.0 to v4.1, whole systems."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from perfpass.records.schema import Reading
from perfpass.records.sources import add_caveat, table_of


def read(shared: Path) -> Reading:
    """Records of kind ``system``: throughput (Offline, Server) or latency (streams), wall power or energy per query."""
    import pandas

    reading = Reading("mlperf")
    table = table_of(shared, "mlperf_inference", "closed.parquet")
    known = table.Result_Units.isin(["Samples/s", "Queries/s", "Latency (ms)"]) & table.Result_Power_Units.isin(
        ["Watts", "millijoules", None]
    )
    table = reading.keep(table, known | table.Result_Power_Units.isna(), "a unit that is not known")
    # R2: Result mixes three units, and so does power: watts, or millijoules of a query stream.
    latency = table.Result_Units == "Latency (ms)"
    watts, millijoules = table.Result_Power_Units == "Watts", table.Result_Power_Units == "millijoules"
    nodes = table.number_of_nodes.fillna(1)
    accelerators = table.accelerators_per_node.fillna(0) * pandas.to_numeric(nodes, errors="coerce").fillna(1)
    rows = pandas.DataFrame(
        {
            "licence": "Apache-2.0",
            "run": table.Location,
            "device": table.device,
            "n_devices": accelerators.where(accelerators > 0, -1).astype(int),
            "runtime": table.framework.fillna(""),
            "runtime_version": table.version,
            "mode": "inference",
            "batch": -1,
            "timing": "LoadGen; power at the wall, whole system",
            "model": table.Model,
            "scenario": table.Scenario,
            "system": table.SystemName,
            "organization": table.Organization,
            "host": table.host_processor_model_name.fillna(""),
            "inferred": table.inferred.fillna(False).astype(bool),
            "latency_ms": table.Result.where(latency),
            "throughput_per_s": table.Result.where(~latency),
            "power_w": table.Result_Power.where(watts),
            "energy_j": table.Result_Power.where(millijoules) / 1e3,
            "caveats": "",
        }
    )
    rows["caveats"] = add_caveat(rows.caveats, rows.inferred.to_numpy(), "derived_from_another_scenario")
    virtual = table.device.str.contains(r"virtuali|GRID|-\d+[CQ]$|Virtualized", case=False, regex=True).to_numpy()
    rows["caveats"] = add_caveat(rows.caveats, virtual, "virtual_gpu")
    rows["caveats"] = add_caveat(rows.caveats, (table.Division == "network").to_numpy(), "network_division")
    rows["caveats"] = add_caveat(rows.caveats, np.asarray(watts | millijoules), "whole_system_power")
    reading.add("system", rows)
    return reading
