"""Promises of `perfpass llm` with requests that arrive: strict JSON, one line for what makes no sense."""

from __future__ import annotations

import json

import pytest

from perfpass import cli
from perfpass.errors import ArgumentError, FileError, FormatError

ASKED = ["llm", "llama-3.1-8b", "--device", "h100-sxm5-80gb"]
FEW = ["--requests", "40", "--input-length", "200", "--output-length", "10"]


def test_tails_at_a_rate_are_strict_json_with_their_cost(capsys):
    code = cli.main([*ASKED, *FEW, "--rate", "5", "--ttft", "100", "--region", "US", "--prefix-hit", "0.5", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert code == 0 and found["requests"] == 40 and found["ttft_ms"]["p99"]["median"] > 0
    assert found["goodput"]["ttft_target_ms"] == 100 and found["cost"]["usd"]["median"] > 0
    assert found["use"]["prefix_hit"] == pytest.approx(0.5)


def test_a_trace_and_a_closed_loop_print_tables(capsys, tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,input_length,output_length\n" + "".join(f"{i},300,8\n" for i in range(20)))
    assert cli.main([*ASKED, "--trace", str(trace)]) == 0
    assert "20 requests, of trace.csv" in capsys.readouterr().out
    assert cli.main([*ASKED, *FEW, "--p99", "--concurrency", "8"]) == 0
    assert "closed loop of 8" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        (["--burstiness", "2"], ArgumentError, "--burstiness is of requests that arrive: give --rate or --trace"),
        (["--rate", "1", "--concurrency", "4"], ArgumentError, "--concurrency is of a closed loop"),
        (["--rate", "1", "--p99"], ArgumentError, "--p99 asks for the tails of a closed loop"),
        (["--rate", "1", "--offline"], ArgumentError, "leave out --rate and --trace"),
        (["--rate", "1", "--decode-batch", "4"], ArgumentError, "decode_batch 4 is of decode workers"),
        (["--rate", "1", "--equal-answers"], ArgumentError, "--equal-answers is of a steady load"),
        (["--p99", "--equal-answers"], ArgumentError, "leave it out, or --p99\n"),
        (["--rate", "0"], ArgumentError, "a rate must be from"),
        (["--rate", "1", "--rates", "1,2"], ArgumentError, "--rates is of --autoscale"),
        (["--autoscale", "--rates", "1,2"], ArgumentError, "follows from targets"),
        (["--trace", "no-such-file.jsonl"], FileError, "cannot be opened as a trace of requests"),
    ],
)
def test_what_makes_no_sense_is_one_line(options, error, said, capsys):
    assert cli.main([*ASKED, *options]) == error.exit_code
    told = capsys.readouterr()
    assert said in told.err and told.err.count("\n") == 1 and not told.out


def test_a_hostile_trace_is_one_line(capsys, tmp_path):
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"timestamp": 5, "input_length": 3, "output_length": 3}\n{"timestamp": -1}\n')
    assert cli.main([*ASKED, "--trace", str(trace)]) == FormatError.exit_code
    assert "trace.jsonl, line 2: a time must be finite and at least 0" in capsys.readouterr().err
