"""Promises of `perfpass report`: one page for whatever is asked, by argument or from JSON."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfpass.cli import main

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
RESNET, VIT = str(EXAMPLES / "resnet50.onnx"), str(EXAMPLES / "vit_base_patch16_224.onnx")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            [RESNET, "--device", "t4", "--latency", "50", "--region", "FR"],
            ["keeps latency", "Cost and carbon", "Roofline"],
        ),
        ([RESNET, VIT, "--device", "t4,l4"], ["Fastest by the median", "Side by side"]),
        ([RESNET, VIT, "--diff", "--device", "t4"], ["What changed", "Ratios on"]),
        ([RESNET, "--device", "t4,l4", "--batches", "1,8"], ["Pareto front", "Latency against batch"]),
        (["llama-3.1-8b", "--device", "h100-sxm", "--concurrency", "8"], ["first token", "By load"]),
    ],
)
def test_a_page_is_written_in_both_forms(arguments, said, tmp_path, capsys):
    path = tmp_path / "report.html"
    assert main(["report", *arguments, "-o", str(path)]) == 0
    assert capsys.readouterr().out.startswith(f"{path}: ")
    assert all(words in path.read_text() for words in said)
    assert main(["report", *arguments, "--format", "md"]) == 0
    told = capsys.readouterr().out
    assert all(words in told for words in said if words not in ("Latency against batch", "Ratios on"))


@pytest.mark.parametrize(
    "command",
    [
        ["predict", RESNET, "--device", "t4"],
        ["sweep", RESNET, "--device", "t4", "--batches", "1,4"],
        ["diff", RESNET, VIT, "--device", "t4"],
        ["fit", "llama-3.1-8b", "--device", "l4"],
        ["choose", "llama-3.1-8b", "--device", "l4,h100-sxm", "--rate", "2", "--ttft", "500", "--tpot", "50"],
    ],
    ids=lambda words: words[0],
)
def test_what_a_command_wrote_as_json_is_shown(command, tmp_path, capsys):
    main([*command, "--json"])
    stored = tmp_path / "result.json"
    stored.write_text(capsys.readouterr().out)
    assert main(["report", str(stored), "-o", str(tmp_path / "report.html")]) == 0
    assert "<h1" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([RESNET, "--device", "t4"], 2, "give -o FILE.html"),
        ([RESNET, "--format", "md"], 2, "give --device NAME"),
        ([RESNET, "--device", "t4", "--diff", "--format", "md"], 2, "OLD and NEW"),
        ([RESNET, "llama-3.1-8b", "--device", "t4", "--format", "md"], 2, "page of its own"),
        ([RESNET, "--device", "nothing", "--format", "md"], 9, "unknown device"),
        (["none.onnx", "--device", "t4", "--format", "md"], 3, "none.onnx"),
        ([RESNET, "--device", "t4", "--batches", "1,8", "--mode", "training", "--format", "md"], 2, "no --mode;"),
        ([RESNET, "--device", "t4", "--batches", "1,8", "--latency", "5", "--format", "md"], 2, "no --latency;"),
        ([RESNET, VIT, "--diff", "--device", "t4", "--latency", "5", "--format", "md"], 2, "no --latency;"),
        ([RESNET, "--device", "t4", "--concurrency", "4", "--format", "md"], 2, "no --concurrency;"),
        (["llama-3.1-8b", "--device", "t4", "--latency", "5", "--format", "md"], 2, "no --latency;"),
        ([str(EXAMPLES / "fleet.toml"), "--device", "t4", "--format", "md"], 2, "no --device;"),
        ([RESNET, "--device", "t4", "-o", RESNET], 2, "is the model itself"),
        ([RESNET, "--device", "t4", "-o", "page.pdf"], 2, "'page.pdf' says .pdf: name it .html"),
        ([RESNET, "--device", "t4", "-o", "page.md"], 2, "with --format md"),
        ([RESNET, "--device", "t4", "-o", "page.html", "--format", "md"], 2, "'page.html' says .html"),
    ],
)
def test_what_makes_no_page_says_what_to_do(arguments, code, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["report", *arguments]) == code
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_result_is_told_as_one(tmp_path, capsys):
    path = tmp_path / "result.json"
    for content, code, said in (('{"a":', 4, "not JSON"), ("[1]", 4, "no result that can be shown")):
        path.write_text(content)
        assert main(["report", str(path), "--format", "md"]) == code
        assert said in capsys.readouterr().err


def test_a_sweep_knows_the_devices_of_a_file(capsys):
    given = ["--device", "edge-gpu", "--device-file", str(EXAMPLES / "custom_device.toml")]
    assert main(["report", RESNET, *given, "--batches", "1,8", "--format", "md"]) == 0
    assert "edge-gpu has the least of both" in capsys.readouterr().out
