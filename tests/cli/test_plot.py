"""Promises of `perfpass plot`: every picture by one command, in words without a file, refusals that say what to do."""

from __future__ import annotations

import json
import os
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from perfpass.cli import main
from perfpass.cli.plot import KINDS

ROOT = Path(__file__).resolve().parents[2]
MODEL = str(ROOT / "examples" / "resnet50.onnx")
OF_RUN = ("roofline", "operators", "icicle", "flame", "memory", "mig", "intervals")


@pytest.mark.parametrize("what", OF_RUN)
def test_every_picture_of_a_run_is_drawn(what, tmp_path, capsys):
    path = tmp_path / f"{what}.svg"
    assert main(["plot", what, MODEL, "--device", "a100-sxm4-80gb", "--theme", "dark", "-o", str(path)]) == 0
    assert ElementTree.parse(path).getroot().tag.endswith("svg")
    assert capsys.readouterr().out == f"{path}: {what} of {MODEL}\n"


@pytest.mark.parametrize(("what", "name"), [("speedscope", "a.json"), ("trace", "b.json"), ("snapshot", "c.pickle")])
def test_every_profile_is_written(what, name, tmp_path):
    assert main(["plot", what, MODEL, "--device", "t4", "-o", str(tmp_path / name)]) == 0
    assert os.path.getsize(tmp_path / name) > 1000


def test_sweeps_and_fleets_are_drawn_by_argument_and_from_their_json(tmp_path, capsys):
    batch = ["plot", "batch", MODEL, "--device", "t4", "--batches", "1,8"]
    assert main(batch) == 0
    told = capsys.readouterr().out
    assert told.startswith("Latency against batch") and "90 % interval" in told
    stored = tmp_path / "sweep.json"
    assert main(["sweep", MODEL, "--device", "t4", "--batches", "1,8", "-o", str(stored)]) == 0
    capsys.readouterr()
    assert main(["plot", "batch", str(stored)]) == 0
    assert capsys.readouterr().out == told
    assert main(["plot", "pareto", str(stored), "--x", "latency_ms", "--y", "energy_j"]) == 0
    assert main(["plot", "load", "llama-3.1-8b", "--device", "h100-sxm", "--tp", "1", "--concurrency", "1,8"]) == 0
    assert "Time per output token by load" in capsys.readouterr().out
    for what in ("memory", "intervals"):
        assert main(["plot", what, "llama-3.1-8b", "--device", "h100-sxm", "--concurrency", "8"]) == 0
    assert "Time to the first token" in capsys.readouterr().out
    pytest.importorskip("ortools")
    assert main(["pack", str(ROOT / "examples" / "fleet.toml"), "--json"]) == 0
    layout = tmp_path / "layout.json"
    layout.write_text(capsys.readouterr().out)
    assert main(["plot", "fleet", str(layout), "-o", str(tmp_path / "fleet.svg")]) == 0


def test_a_stored_prediction_is_drawn_as_far_as_it_says(tmp_path, capsys):
    stored = tmp_path / "prediction.json"
    assert main(["predict", MODEL, "--device", "t4", "--json"]) == 0
    stored.write_text(capsys.readouterr().out)
    assert main(["plot", "operators", str(stored)]) == 0
    assert main(["plot", "intervals", str(stored)]) == 0
    assert "No record" not in capsys.readouterr().out
    assert main(["plot", "roofline", str(stored)]) == 8
    assert "no graph" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["roofline", MODEL], 2, "give --device NAME"),
        (["roofline", MODEL, "--device", "t4,l4"], 2, "one run on one device"),
        (["trace", MODEL, "--device", "t4"], 2, "give -o FILE"),
        (["roofl", MODEL, "--device", "t4"], 2, "did you mean roofline"),
        (["snapshot", MODEL, "--device", "t4", "--mode", "training", "-o", "x.pickle"], 8, "record a step"),
        (["mig", MODEL, "--device", "t4"], 8, "cannot be partitioned"),
        (["load", MODEL, "--device", "t4"], 8, "not of a served language model"),
        (["batch", MODEL, "--device", "t4", "--mode", "training"], 2, "no --mode;"),
        (["memory", MODEL, "--device", "t4", "--batches", "1,8"], 2, "no --batches;"),
        (["trace", MODEL, "--device", "t4", "-o", MODEL], 2, "is the model itself"),
    ],
)
def test_what_cannot_be_drawn_says_what_to_do(arguments, code, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["plot", *arguments]) == code
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d.pop("points") and d.update(points=[{}]),
        lambda d: d["points"][0].update(latency_ms="fast"),
        lambda d: d.update(schema_version=99),
        lambda d: d.update(settings=[7]),
    ],
)
def test_a_damaged_sweep_is_one_error(tmp_path, capsys, damage):
    stored = tmp_path / "sweep.json"
    assert main(["sweep", MODEL, "--device", "t4", "-o", str(stored)]) == 0
    document = json.loads(stored.read_text())
    damage(document)
    stored.write_text(json.dumps(document))
    capsys.readouterr()
    assert main(["plot", "pareto", str(stored)]) == 4
    assert capsys.readouterr().err.count("\n") == 1


def test_the_help_names_every_picture(capsys):
    with pytest.raises(SystemExit):
        main(["plot", "--help"])
    told = capsys.readouterr().out
    assert all(kind in told for kind in KINDS)
