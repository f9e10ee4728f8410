"""Graphs of search spaces, HELP's records, and the grading of calibrations on them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from perfpass.errors import ArgumentError
from perfpass.graph import OPERATORS, costs
from perfpass.records import nas_graphs
from perfpass.records.nas_graphs import FBNET_BLOCKS, connected, graph

CONVOLUTIONS = ("nor_conv_3x3",) * 6
SKIPS = ("skip_connect",) * 6


def counts(found) -> dict[str, int]:
    names, numbers = np.unique(found.op, return_counts=True)
    return {OPERATORS[int(n)]: int(c) for n, c in zip(names, numbers, strict=True)}


def test_the_largest_cell_has_the_published_macs_and_parameters():
    # NAS-Bench-201, table of architecture |nor_conv_3x3~0|+...: 1.531 M parameters, 220.1 MFLOPs (multiply-adds).
    totals = costs.count(graph("nasbench201", CONVOLUTIONS)).totals
    assert totals["macs"] == pytest.approx(220.1e6, rel=0.01)
    assert totals["parameters"] == pytest.approx(1.531e6, rel=0.01)


def test_batch_multiplies_the_work_and_every_operator_is_known():
    one, four = (costs.count(graph("nasbench201", CONVOLUTIONS, n)).totals["macs"] for n in (1, 4))
    assert four == 4 * one
    assert graph("fbnet", ("k5_e6",) * 22).unknown_operators == {}


def test_a_runtime_that_sees_the_graph_leaves_dead_edges_and_zeros_out():
    # Node 2 leads nowhere, so what feeds it has no effect.
    ops = ("nor_conv_1x1", "nor_conv_3x3", "nor_conv_3x3", "skip_connect", "nor_conv_1x1", "none")
    eager, optimised = (counts(graph("nasbench201", ops, optimised=flag)) for flag in (False, True))
    assert eager["conv"] - optimised["conv"] == 2 * 15
    assert eager["mul"] == 15 and "mul" not in optimised
    assert eager["add"] - optimised["add"] == 15 * (6 - 1)


@pytest.mark.parametrize(
    ("ops", "expected"),
    [
        (("none",) * 6, False),
        (("none", "none", "none", "skip_connect", "none", "none"), True),
        (("skip_connect", "none", "none", "none", "none", "none"), False),
        (("skip_connect", "none", "nor_conv_1x1", "none", "none", "avg_pool_3x3"), True),
    ],
)
def test_a_cell_is_connected_when_a_path_leads_from_input_to_output(ops, expected):
    assert connected(ops) is expected


def test_a_skip_that_changes_channels_is_a_convolution_and_others_cost_nothing():
    skips, wide = (counts(graph("fbnet", (block,) * 22)) for block in ("skip", "k3_e6"))
    # Stem, head, and the first layer of each stage but the one that keeps 16 channels.
    assert skips["conv"] == 2 + 6
    assert wide["conv"] == 2 + 3 * 22


@pytest.mark.parametrize(
    ("space", "ops"),
    [("darts", SKIPS), ("nasbench201", SKIPS[:5]), ("nasbench201", ("k3_e1",) * 6), ("fbnet", SKIPS)],
)
def test_what_is_no_network_of_the_space_is_refused(space, ops):
    with pytest.raises(ArgumentError, match=r"allowed are|has"):
        graph(space, ops)


def test_disconnected_cells_are_refused_for_every_device(tmp_path: Path):
    import pandas

    from perfpass.records.readers import help_nas

    row = {
        "space": "nasbench201",
        "arch_index": 1,
        "arch": "",
        "ops": ",".join(SKIPS),
        "device": "Google Pixel 2",
        "device_kind": "phone",
        "batch_size": 1,
        "source_device": "pixel2",
        "latency_ms": 3.0,
    }
    rows = [row, {**row, "arch_index": 2, "ops": ",".join(["none"] * 6)}]
    rows.append({**row, "space": "fbnet", "arch_index": 3, "ops": ",".join(FBNET_BLOCKS[:1] * 22)})
    (tmp_path / "help").mkdir()
    pandas.DataFrame(rows).to_parquet(tmp_path / "help" / "latency.parquet")
    reading = help_nas.read(tmp_path)
    assert reading.tables["nas"].model.tolist() == ["1", "3"]
    assert reading.refused == {"a cell without a path from its input to its output": 1}
    assert all("whole_milliseconds" in caveats for caveats in reading.tables["nas"].caveats)


def test_ten_records_scale_a_device_that_no_catalogue_has():
    from perfpass.training.calibration import nas

    phones = [t for t in _sampled(nas) if t.kind == "phones" and t.space == "fbnet"]
    assert phones
    for target in phones:
        errors = [
            np.abs(np.expm1(d.mean - target.log_ratio[d.asked])).mean() for d in nas._draws(target, size=10, seed=0)
        ]
        assert np.mean(errors) < 0.2
        assert np.abs(np.expm1(-target.log_ratio)).mean() > 0.5  # without them it says nothing


def _sampled(nas):
    """Targets of a tenth of the networks."""
    from perfpass.records import schema

    read = schema.read

    def tenth(path, kind):
        table = read(path, kind)
        names = sorted(set(table.model))[::6]
        return table[table.model.isin(names) & (table.space == "fbnet")]

    schema.read = tenth
    try:
        return nas.targets()
    finally:
        schema.read = read


def test_both_spaces_are_built_from_their_records():
    from perfpass.records import schema
    from perfpass.records.location import data_directory

    rows = schema.read(data_directory() / "records" / "nas.parquet", "nas")
    assert set(rows.space) == set(nas_graphs.SPACES)
    for row in rows.drop_duplicates(["space", "architecture"]).groupby("space").head(3).itertuples():
        assert graph(row.space, tuple(row.architecture.split(","))).node_count > 50
