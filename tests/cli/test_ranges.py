"""Several sizes of a dimension: what the option takes, and what commands make of it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

import perfpass
from perfpass.cli import main
from perfpass.cli.options import sizes_of_dim
from perfpass.errors import ArgumentError

MODEL = str(Path(__file__).resolve().parents[2] / "examples" / "deberta_v3_large_dynamic.onnx")


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("s=8", [8]),
        ("s=128..4096", [128, 256, 512, 1024, 2048, 4096]),
        ("s=128..600", [128, 256, 512]),
        ("s=128..512:128", [128, 256, 384, 512]),
        ("s=1..100:x10", [1, 10, 100]),
        ("s=8,16..64,100", [8, 16, 32, 64, 100]),
        ("a=b=3", [3]),
    ],
)
def test_a_range_is_the_sizes_that_it_says(text, sizes):
    assert sizes_of_dim(text) == (text.rpartition("=")[0], sizes)


@pytest.mark.parametrize(
    "text", ["s", "=8", "s=", "s=8..4", "s=1..8:0", "s=1..8:x1", "s=a..b", "s=1..9999999", "s=1...8", "s=1..5000:1"]
)
def test_what_is_no_range_is_refused(text):
    if text == "s=1..9999999":
        assert len(sizes_of_dim(text)[1]) == 24
        return
    with pytest.raises(argparse.ArgumentTypeError):
        sizes_of_dim(text)


def test_a_sweep_has_a_column_of_a_dimension_and_the_figures_of_each_size():
    found = perfpass.sweep(MODEL, ["a100"], batches=[2], dims={"sequence": [128, 256]})
    assert found.settings[-1] == "sequence"
    assert found.columns["sequence"].tolist() == [128, 256]
    for i, sequence in enumerate((128, 256)):
        alone = perfpass.predict(MODEL, "a100", batch=2, dims={"sequence": sequence})
        assert found.columns["latency_ms"][i] == pytest.approx(alone.latency_ms.median)


def test_a_size_that_a_model_does_not_have_is_a_point_with_its_reason():
    found = perfpass.sweep(MODEL, ["a100"], dims={"sequence": [128, 9_000_000]})
    assert found.ok.tolist() == [True, False]
    with pytest.raises(ArgumentError, match="column"):
        perfpass.sweep(MODEL, ["a100"], dims={"device": [1, 2]})


def test_predict_sweeps_and_inspect_counts(capsys):
    assert main(["predict", MODEL, "--device", "a100", "--batch", "1", "--dim", "sequence=64..256", "--json"]) == 0
    points = json.loads(capsys.readouterr().out)["points"]
    assert [point["sequence"] for point in points] == [64, 128, 256]
    assert main(["inspect", MODEL, "--dim", "batch=1", "--dim", "sequence=64..128", "--json"]) == 0
    counted = json.loads(capsys.readouterr().out)["points"]
    assert counted[1]["macs"] == perfpass.symbolic(MODEL).at({"batch": 1, "sequence": 128})["macs"]
    assert main(["inspect", MODEL, "--dim", "batch=1", "--dim", "sequence=64..128"]) == 0


def test_a_command_of_one_size_refuses_several(capsys):
    assert main(["fit", MODEL, "--device", "a100", "--dim", "batch=1..4", "--dim", "sequence=64"]) == 2
    assert "several sizes" in capsys.readouterr().err
    assert main(["predict", MODEL, "--device", "a100", "--dim", "sequence=64..128", "--latency", "3"]) == 2


@pytest.mark.parametrize("command", ["sweep", "predict"])
@pytest.mark.parametrize(("sizes", "status"), [("128,9000000", 0), ("9000000,9000001", 1)])
def test_a_sweep_without_any_figure_does_not_end_as_if_it_had_one(command, sizes, status, capsys):
    assert main([command, MODEL, "--device", "a100", "--dim", f"sequence={sizes}", "--json"]) == status
    points = json.loads(capsys.readouterr().out)["points"]
    assert len(points) == 2 and all(point["problem"] for point in points[2 - status * 2 :])
