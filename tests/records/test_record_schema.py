"""The schema of records: types, refusals and files that say what they are."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas
import pytest

from perfpass.errors import ArgumentError, FileError, FormatError
from perfpass.records import schema


def table(**changes):
    columns = {
        "source": ["test"] * 3,
        "device": ["NVIDIA A100-SXM4-40GB", "H100", "Fridge 3000"],
        "precision": ["fp16", None, "fp32"],
        "batch": [1, 2, np.nan],
        "model": ["resnet50", "resnet50", "vit"],
        "latency_ms": [1.0, 2.0, 3.0],
    }
    return pandas.DataFrame({**columns, **changes})


def test_an_admitted_table_has_the_types_and_the_order_of_the_schema():
    refused = Counter()
    found = schema.admit("vision", table(), refused)
    assert not refused
    assert list(found.columns) == [c.name for c in schema.columns_of("vision") if c.name in found.columns]
    assert found.device.tolist() == ["a100-sxm4-40gb", "h100-sxm5-80gb", "Fridge 3000"]
    assert found.listed.tolist() == [True, True, False]
    assert found.precision.tolist() == ["fp16", "", "fp32"]
    assert found.batch.tolist() == [1, 2, -1]
    assert "power_w" not in found.columns
    assert "img_size" in found.columns


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"latency_ms": [1.0, -2.0, 3.0]}, "a metric that is not finite and above 0"),
        ({"latency_ms": [1.0, np.inf, 3.0]}, "a metric that is not finite and above 0"),
        ({"latency_ms": [1.0, np.nan, 3.0]}, "no metric"),
        ({"device": ["H100", None, "H200"]}, "no device stated"),
        (
            {"device": ["H100"] * 3, "batch": [1, 1, 2], "precision": ["", "", ""], "latency_ms": [1.0, 1.0, 1.0]},
            "repeats another row exactly",
        ),
    ],
)
def test_a_row_that_breaks_a_rule_is_refused_and_counted(changes, reason):
    refused = Counter()
    found = schema.admit("vision", table(**changes), refused)
    assert len(found) == 2
    assert refused == {reason: 1}


def test_a_slice_that_a_job_did_not_fit_is_a_record_without_metric():
    refused = Counter()
    rows = pandas.DataFrame({"device": ["a100", "a100"], "model": ["a", "b"], "fits": [False, True]})
    found = schema.admit("mig", rows.assign(latency_ms=[np.nan, np.nan]), refused)
    assert found.model.tolist() == ["a"]
    assert refused == {"no metric": 1}


def test_what_is_written_is_read_back(tmp_path):
    found = schema.admit("vision", table(), Counter())
    schema.write(tmp_path / "x.parquet", "vision", found)
    pandas.testing.assert_frame_equal(schema.read(tmp_path / "x.parquet", "vision"), found)
    assert [p.name for p in tmp_path.iterdir()] == ["x.parquet"]


def test_files_that_are_no_records_say_so(tmp_path):
    with pytest.raises(FileError, match="no such table"):
        schema.read(tmp_path / "none.parquet")
    (tmp_path / "text.parquet").write_text("hello")
    with pytest.raises(FormatError, match="not a Parquet table"):
        schema.read(tmp_path / "text.parquet")
    table().drop(columns="precision").to_parquet(tmp_path / "plain.parquet")
    with pytest.raises(FormatError, match="record schema None"):
        schema.read(tmp_path / "plain.parquet")
    schema.write(tmp_path / "vision.parquet", "vision", schema.admit("vision", table(), Counter()))
    with pytest.raises(FormatError, match="kind 'vision', not 'gemm'"):
        schema.read(tmp_path / "vision.parquet", "gemm")


def test_columns_of_another_kind_and_wrong_types_are_refused():
    with pytest.raises(FormatError, match="no column heads"):
        schema.admit("vision", table(heads=[1, 2, 3]), Counter())
    with pytest.raises(FormatError, match="'batch'"):
        schema.admit("vision", table(batch=["one", "two", "three"]), Counter())
    with pytest.raises(ArgumentError, match="unknown kind of record 'weather'"):
        schema.columns_of("weather")


def test_a_reading_joins_what_it_is_given():
    reading = schema.Reading("test")
    rows = table().drop(columns="source")
    reading.add("vision", rows)
    reading.add("vision", reading.keep(rows.assign(power_w=100.0), rows.model == "vit", "not a transformer"))
    assert len(reading.tables["vision"]) == 4
    assert reading.tables["vision"].power_w.notna().sum() == 1
    assert reading.refused == {"not a transformer": 2}


def test_the_documentation_shows_the_schema():
    from pathlib import Path

    from perfpass.records import corpus

    text = (Path(__file__).parents[2] / "docs" / "reference" / "records.md").read_text()
    assert corpus.described() in text


def test_a_reading_is_summed_up_with_its_caveats_and_refusals():
    from perfpass.records import corpus

    reading = schema.Reading("test")
    rows = table().drop(columns="source")
    reading.add("vision", reading.keep(rows, rows.batch != 2, "batch 2").assign(caveats=["noisy", "noisy, old"]))
    found = corpus.summary(reading)
    assert found["kinds"]["vision"]["caveats"] == {"noisy": 2, "old": 1}
    assert found["kinds"]["vision"]["metrics"] == {"latency_ms": 2}
    assert found["refused"] == {"batch 2": 1}
    assert "caveat          2  noisy" in corpus.text("test", found)


def test_readers_that_do_not_exist_are_named(tmp_path):
    from perfpass.records import corpus

    with pytest.raises(FileError, match="no such folder"):
        list(corpus.read(tmp_path / "none"))
    with pytest.raises(ArgumentError, match="no reader weather"):
        list(corpus.read(tmp_path, ["weather"]))
