"""What does not fit is the headline of a result, with what would help; figures behind it are called hypothetical."""

from __future__ import annotations

import contextlib
import io
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import perfpass
from perfpass.cli import main

ROOT = Path(__file__).resolve().parents[2]
VIT = str(ROOT / "examples" / "vit_base_patch16_224.onnx")
CASES = {
    "inference": ["predict", VIT, "--device", "p4", "--batch", "4096"],
    "training": [
        "predict",
        "timm:resnet18",
        "--device",
        "rtx-3060",
        "--batch",
        "2048",
        "--mode",
        "training",
    ],
    "slice": ["predict", VIT, "--device", "a100-80gb:1g.10gb", "--batch", "2048"],
    "processes": ["predict", VIT, "--device", "a100:1g.5gb", "--processes", "16"],
    "serving": ["llm", "llama-3.1-70b", "--device", "h100", "--tp", "1"],
    "serving on a slice": ["llm", "llama-3.1-8b", "--device", "a100-80gb:1g.10gb"],
}


@cache
def verdict(case: str) -> dict[str, Any]:
    """What the command says as JSON of the memory of a case: asked once, since to record a step takes seconds."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main([*CASES[case], "--json"]) == 0
    return json.loads(out.getvalue())["memory_verdict"]


@pytest.mark.parametrize("case", CASES)
def test_it_is_said_before_any_figure_and_what_would_help_does(case, capsys):
    assert main(CASES[case]) == 0
    text = capsys.readouterr().out
    assert text.index("DOES NOT FIT: it needs ") < text.index("would help") < text.index("hypothetical")
    assert text.index("hypothetical") < re.search(r"\n  (latency|time to first)", text).start()
    found = verdict(case)
    assert found["fits"] == "no" and found["headline"] in text and found["remedies"]
    assert found["available_bytes"] < found["needed_bytes"] <= found["needed_high_bytes"]


@pytest.mark.parametrize("case", CASES)
def test_every_remedy_makes_it_fit(case, capsys):
    said = "; ".join(verdict(case)["remedies"])
    tried = []
    for pattern, change in (
        (r"batch ([\d,]+)", ["--batch", "{}"]),
        (r"precision (\S+)", ["--precision", "{}"]),
        (r"device (\S+)", ["--device", "{}"]),
        (r"the MIG profile (\S+)", ["--device", "{}"]),
        (r"--tp (\d+)", ["--tp", "{}"]),
        (r"(\d+) process", ["--processes", "{}"]),
    ):
        if found := re.search(pattern, said):
            value = found[1].replace(",", "")
            if "MIG" in pattern:
                value = CASES[case][3].split(":")[0] + ":" + value
            main([*CASES[case], *(part.format(value) for part in change), "--json"])
            assert json.loads(capsys.readouterr().out)["memory_verdict"]["fits"] == "yes", (said, value)
            tried.append(pattern)
    assert len(tried) >= 2


def test_what_fits_has_no_headline_and_what_may_not_is_told():
    fits = perfpass.predict(VIT, "a100-80gb")
    assert fits.memory_verdict.fits == "yes" and fits.memory_verdict.headline == "" and "FIT" not in str(fits)
    memory = perfpass.predict(VIT, "a100-80gb", batch=64).peak_memory_bytes
    near = next(
        found
        for batch in range(64, 4096, 64)
        if (found := perfpass.predict(VIT, "rtx-3060", batch=batch)).memory_verdict.fits != "yes"
    )
    assert memory.median < memory.high and near.memory_verdict.fits == "perhaps"
    assert "MAY NOT FIT: " in str(near) and "hypothetical" not in str(near)
    assert 0.5 < near.memory_verdict.probability < 0.98 <= fits.memory_verdict.probability <= 1.0
    assert f"P(fits) {100 * near.memory_verdict.probability:.0f} %" in near.memory_verdict.headline


def test_a_batch_without_a_server_that_does_not_fit_is_refused_with_what_it_needs(capsys):
    assert main(["llm", "llama-2-70b", "--device", "a100", "--offline", "--tp", "1"]) == 2
    said = capsys.readouterr().err
    assert "DOES NOT FIT: it needs 130 GiB of memory; there are 36.8 GiB usable" in said and "--tp 4" in said
    assert main(["llm", "llama-2-70b", "--device", "a100", "--offline", "--tp", "4"]) == 0


def test_a_step_is_recorded_once_for_each_batch_that_is_asked(monkeypatch):
    """The run itself and the batch that would do were recorded twice, at seconds each."""
    from torch import nn

    from perfpass.predictors.memory import recorded

    asked, events = [], recorded._events
    monkeypatch.setattr(recorded, "_events", lambda *how: asked.append(how[2:4]) or events(*how))
    network = nn.Sequential(nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 14 * 14, 10))
    found = perfpass.predict(network, "t4", input_shape=(3, 16, 16), batch=2**20, mode="training")
    assert found.memory_verdict.fits == "no" and found.memory_verdict.remedies[0].startswith("batch ")
    assert len(asked) == len(set(asked)) > 2
