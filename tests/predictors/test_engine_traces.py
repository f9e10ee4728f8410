"""Promises of traces: public formats are read, what is hostile is one clear error, memory stays flat."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfpass.errors import ArgumentError, FileError, FormatError, LimitError, PerfPassError
from perfpass.predictors.engine import traces
from perfpass.predictors.engine.requests import Requests
from perfpass.predictors.engine.traces import read_trace

MOONCAKE = (
    '{"timestamp": 0, "input_length": 1100, "output_length": 500, "hash_ids": [0, 1, 2]}\n'
    '{"timestamp": 2500, "input_length": 600, "output_length": 490, "hash_ids": [0, 14]}\n'
)
AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    "2023-11-16 18:17:03.9799600,4808,10\r\n"
    "2023-11-16 18:17:04.0319600,3180,8\r\n"
)


def written(tmp_path: Path, text: str, name: str = "trace.jsonl") -> Path:
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


@pytest.mark.parametrize("name", ["trace.jsonl", "trace.jsonl.gz"])
def test_mooncakes_traces_are_read_with_their_prefixes(tmp_path, name):
    found = read_trace(written(tmp_path, MOONCAKE, name))
    assert found.arrival_s.tolist() == [0.0, 2.5]
    assert found.prompt_tokens.tolist() == [1100, 600] and found.output_tokens.tolist() == [500, 490]
    assert found.prefix(0) == [0, 1] and found.prefix(1) == [0]  # a block that is not full is nobody else's


@pytest.mark.parametrize("name", ["trace.csv", "trace.csv.gz"])
def test_azures_traces_are_read(tmp_path, name):
    found = read_trace(written(tmp_path, AZURE, name))
    assert np.allclose(found.arrival_s, [0.0, 0.052])
    assert found.prompt_tokens.tolist() == [4808, 3180] and found.output_tokens.tolist() == [10, 8]


def test_our_own_columns_are_read(tmp_path):
    found = read_trace(written(tmp_path, "arrival_s,input_length,output_length\n3.5,10,2\n4,20,1\n", "trace.csv"))
    assert found.arrival_s.tolist() == [0.0, 0.5] and found.priority is None
    line = '{"arrival_s": 1, "input_length": 5, "output_length": 2, "priority": -1, "who": "x"}\n'
    assert read_trace(written(tmp_path, line)).priority.tolist() == [-1.0]
    assert len(read_trace(written(tmp_path, line * 9), most=4)) == 4


def line(**change: Any) -> str:
    return json.dumps({"timestamp": 0, "input_length": 10, "output_length": 10, **change}) + "\n"


HOSTILE = {
    "negative time": (line(timestamp=-5), "line 1: a time must be finite and at least 0"),
    "NaN time": (line(timestamp=float("nan")), "line 1 is not JSON"),
    "huge time": (line(timestamp=10**30), "line 1: "),
    "no time": ('{"input_length": 10, "output_length": 10}', "no time"),
    "true time": (line(timestamp=True), "no time"),
    "out of order": (line(timestamp=9) + line(timestamp=8), "line 2: its time is before that of the line above; sort"),
    "no length": (line(input_length=0), "line 1: input_length must be a whole number from 1 to 10,000,000, got 0"),
    "negative length": (line(output_length=-3), "output_length must be a whole number"),
    "huge length": (line(output_length=10**8), "output_length must be a whole number"),
    "NaN length": (line(input_length=float("nan")), "line 1 is not JSON"),
    "half a length": (line(input_length=1.5), "input_length must be a whole number"),
    "a text": (line(input_length="12"), "input_length must be a whole number"),
    "ids of nothing": (line(hash_ids=[1, 2, 3]), "hash_ids must be at most 1 whole numbers"),
    "ids that are none": (line(input_length=2000, hash_ids=["a"]), "hash_ids must be"),
    "huge ids": (line(input_length=2000, hash_ids=[10**30]), "line 1"),
    "no object": ("[1, 2]\n", "a request is a JSON object"),
    "no JSON": (line() + "hello\n", "line 2 is not JSON"),
    "nothing": ("\n\n", "no request in it"),
    "nested": ("[" * 100_000 + "\n", "line 1"),
    "no text": ("\x00\x01", "line 1 is not JSON"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_trace_is_one_error_that_names_the_line(tmp_path, what):
    text, said = HOSTILE[what]
    with pytest.raises(PerfPassError) as raised:
        read_trace(written(tmp_path, text))
    assert isinstance(raised.value, FormatError) and said in str(raised.value) and "trace.jsonl" in str(raised.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n1,2\n", "no column arrival_s"),
        ("arrival_s,input_length,output_length\n1,x,3\n", "line 2"),
        ("arrival_s,input_length,output_length\nnan,1,3\n", "must be finite"),
        ("arrival_s,input_length,output_length\n1,2\n", "line 2"),
        (AZURE.replace("2023-11-16 18:17:04.0319600", "soon"), "line 3"),
        (AZURE.replace("2023-11-16 18:17:04.0319600", "NaT"), "line 3"),
    ],
)
def test_a_hostile_table_is_one_error(tmp_path, text, said):
    with pytest.raises(FormatError, match=said):
        read_trace(written(tmp_path, text, "trace.csv"))


def test_a_trace_without_end_is_refused_with_flat_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(traces, "MOST_REQUESTS", 5_000)
    peaks = []
    for blocks in (7, 70):
        path = tmp_path / "long.csv.gz"
        with gzip.open(path, "wb", compresslevel=1) as file:
            file.write(b"arrival_s,input_length,output_length\n" + b"1,2,3\n" * 1000 * blocks)
        tracemalloc.start()
        with pytest.raises(LimitError, match="more than 5,000 requests; take a part of it"):
            read_trace(path)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 100_000 < 5_000 * 200


def test_a_line_without_end_is_refused(tmp_path):
    with pytest.raises(LimitError, match="line 1: longer than"):
        read_trace(written(tmp_path, "[" + "1," * 3_000_000, "trace.jsonl.gz"))


def test_what_is_no_file_is_refused(tmp_path):
    with pytest.raises(FileError, match="a folder"):
        read_trace(tmp_path)
    broken = written(tmp_path, MOONCAKE * 500, "trace.jsonl.gz")
    broken.write_bytes(broken.read_bytes()[:60])
    with pytest.raises(FileError, match="cannot be read as a trace of requests"):
        read_trace(broken)


@pytest.mark.parametrize(
    ("times", "said"), [([1.0, 0.5], "in the order"), ([0.0, np.nan], "request 2 arrives"), ([-1.0, 0.0], "request 1")]
)
def test_requests_made_by_hand_are_checked_as_well(times, said):
    with pytest.raises(ArgumentError, match=said):
        Requests(np.array(times), np.array([5, 5]), np.array([5, 5]))
