"""Kernel records and what is fitted to them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pandas
import pytest

from perfpass.errors import FileError
from perfpass.predictors.kernels.efficiency import Efficiencies, curve, fit_group, level_keys
from perfpass.records.build.sampling import rounded, row_hash
from perfpass.records.readers import aiconfigurator_kernels as reader
from perfpass.records.schema import Reading
from perfpass.training.kernels import data, experiments


def attention_table(**changes):
    rows = {
        "device": "NVIDIA H200",
        "system": "h200_sxm",
        "framework": "VLLM",
        "version": "0.24.0",
        "stack": "vllm",
        "stack_version": "0.24.0",
        "kernel_source": "vllm_flash_attn",
        "attn_dtype": "bfloat16",
        "kv_cache_dtype": "fp8",
        "head_dim": 128,
        "window_size": np.nan,
        "num_heads": 32,
        "num_key_value_heads": 8,
        "isl": np.arange(16, 116),
        "batch_size": 1,
        "step": 0,
        "latency_ms": 0.01,
        "power_w": 300.0,
        "power_limit_w": 700.0,
        "above_physical_bound": False,
    }
    return pandas.DataFrame({**rows, **changes})


def read_attention(tmp_path: Path, *tables) -> tuple[pandas.DataFrame, Counter]:
    folder = tmp_path / "aiconfigurator"
    folder.mkdir()
    pandas.concat(tables, ignore_index=True).to_parquet(folder / "context_attention.parquet")
    reading = Reading("test")
    return reader.trusted(tmp_path, reader.TABLES[1], reading), reading.refused


def test_a_collection_that_breaks_physics_is_refused_whole_and_single_rows_alone(tmp_path):
    doubtful = attention_table(version="0.19.0", stack_version="0.19.0", above_physical_bound=np.arange(100) < 6)
    sound = attention_table(above_physical_bound=np.arange(100) < 2)
    rows, refused = read_attention(tmp_path, doubtful, sound)
    assert set(rows["runtime_version"]) == {"0.24.0"} and len(rows) == 98
    assert refused == {
        "collection with over 5% of its rows above a physical bound": 100,
        "above a physical bound": 2,
    }


def test_repeats_become_their_median_and_caveats_are_kept(tmp_path):
    again = attention_table(latency_ms=0.03, power_w=710.0)
    elsewhere = attention_table(version="0.19.1", stack_version="0.19.0")
    rows, refused = read_attention(tmp_path, attention_table(), again, elsewhere)
    assert refused == {"repeats a measurement, whose median is kept": 100}
    newest = rows[rows["runtime_version"] == "0.24.0"]
    assert newest["latency_ms"].to_numpy() == pytest.approx(0.02, rel=1e-3)
    assert set(rows[rows["runtime_version"] == "0.19.1"]["caveats"]) == {"version differs from its folder"}
    assert set(rows["kv_precision"]) == {"fp8"} and set(rows["precision"]) == {"bf16"}


def test_the_sample_does_not_depend_on_the_order_of_rows(tmp_path):
    rows, _ = read_attention(tmp_path, attention_table(isl=np.arange(16, 4016, 40)), attention_table(batch_size=8))
    table = reader.Table("x", "attention", reader.TABLES[1].shape, 50)
    shuffled = rows.sample(frac=1.0, random_state=3)
    chosen, again = reader.sample(rows, table), reader.sample(shuffled, table)
    key = ["batch", "query_tokens"]
    assert sorted(map(tuple, chosen[key].to_numpy())) == sorted(map(tuple, again[key].to_numpy()))
    assert 40 <= len(chosen) <= 60 and set(chosen["batch"]) == {1, 8}


def test_a_missing_table_is_a_file_error(tmp_path):
    with pytest.raises(FileError, match="gemm"):
        reader.read(tmp_path)


def test_hashes_and_rounding_are_the_same_everywhere():
    rows = pandas.DataFrame({"a": ["x", "y"], "n": [1, 2]})
    assert row_hash(rows, ("a", "n")).tolist() == row_hash(rows.iloc[::-1], ("a", "n")).tolist()[::-1]
    assert len(set(row_hash(rows, ("a", "n")).tolist())) == 2
    values = np.array([0.0123456, 7.0, 1234.5])
    assert np.abs(rounded(values) / values - 1).max() < 5e-4


def test_the_slopes_of_the_curve_are_its_derivatives():
    rng = np.random.default_rng(0)
    values, ramp, work = rng.normal(-1, 0.5, (40, 5)), rng.uniform(0.5, 2, 40), rng.uniform(0.1, 2, (40, 4))
    log_s, slopes = curve(values, ramp, work)
    for i in range(5):
        moved = values.copy()
        moved[:, i] += 1e-6
        assert (curve(moved, ramp, work)[0] - log_s) / 1e-6 == pytest.approx(slopes[:, i], abs=1e-5)
    assert np.abs(slopes).sum(axis=1) == pytest.approx(1.0)


def test_efficiencies_are_recovered_from_rows_that_follow_them():
    rng = np.random.default_rng(1)
    true = np.log([4e-6, 0.6, 0.8, 0.9, 0.7])
    ramp, work = np.ones(3000), 10 ** rng.uniform(-7, -3, (3000, 4))
    found = fit_group(curve(true, ramp, work)[0], ramp, work, np.log([3e-6, 0.7, 0.8, 1.0, 1.0]), 0.8)
    assert np.abs(found - true).max() < 0.02


def test_what_was_not_measured_has_its_parents_efficiencies():
    ramp, work = np.ones(60), np.full((60, 4), 1e-9)
    names = (["bf16"] * 60, ["vllm"] * 60, ["fa3"] * 60, ["9.0"] * 60, ["h100"] * 60, ["0.24.0"] * 60)
    found = Efficiencies.fit(level_keys(*names), np.full(60, 9e-6), ramp, work)
    other = level_keys(["bf16"], ["vllm"], ["fa3"], ["10.0"], ["b200"], ["0.24.0"])[0]
    assert found.depth(other) == 1
    assert np.exp(found.at(other)[0]) == pytest.approx(9e-6, rel=0.2)
    again = Efficiencies.from_dict(found.to_dict())
    assert again.at(other) == pytest.approx(found.at(other), abs=1e-4)


def test_repeats_of_a_measurement_stay_on_one_side():
    rows = data.load("collective")
    fold = experiments.row_folds(rows, 0)
    groups = experiments.row_groups(rows)
    assert all(len(set(fold[groups == g])) == 1 for g in np.unique(groups)[:50])


def test_records_after_correction_are_not_judged():
    rows = experiments.subsample(data.load("collective"), 1500)
    found = experiments.devices(rows, 0)
    predicted, judged = experiments.adapted(found, found.fold, 10, 0)
    assert (~judged).sum() == 10 * len(np.unique(found.fold))
    assert not np.array_equal(predicted, found.predicted)
