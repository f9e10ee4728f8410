"""What ran must fit: the verdicts on records."""

from __future__ import annotations

import pytest

from perfpass.devices import device
from perfpass.predictors.way import Way
from perfpass.records import tables
from perfpass.records.location import data_directory
from perfpass.training.memory import ran, ran_steps


@pytest.fixture(scope="module")
def steps():
    return ran_steps.load(data_directory())


@pytest.fixture(scope="module")
def known():
    return tables.load(data_directory() / "graphs")


def verdict(way, steps, known, batch, **more):
    found = ran._Graphs("x", steps)
    found.run(way, ("torchvision", "resnet50", 224), batch, known, "", **more)
    return found.settled()


def test_what_ran_in_a_slice_fits(steps):
    found = ran._slices(data_directory(), steps).settled().to_dict()
    assert found["rows"] > 1000
    assert found["no"] == 0 and found["refused"] == []


def test_a_batch_that_no_memory_holds_is_refused_and_named(steps, known):
    found = verdict(Way(device("t4")), steps, known, 1 << 14).to_dict()
    assert (found["rows"], found["no"], found["refused_pct"]) == (1, 1, 100.0)
    assert found["refused"] == ["resnet50 at 224, batch 16384, fp32, torch, t4"]


def test_processes_share_the_memory(steps, known):
    slice_ = Way(device("a100-sxm4-40gb:1g.5gb"))
    one, many = (verdict(slice_, steps, known, 8, processes=n).answers for n in (1, 40))
    assert one["yes"] == 1 and many["no"] == 1


def test_a_step_that_might_be_refused_is_asked_only_where_it_is_planned(steps, known):
    way = Way(device("t4"), optimizer="sgd")
    found = verdict(way, {}, known, 1 << 12)
    assert not found.answers and found.not_asked["the step was not planned"] == 1
    planned = {("torchvision", "resnet50", 224, 1 << 12, "float32"): (1e12, 1e9)}
    assert verdict(way, planned, known, 1 << 12).answers["no"] == 1


def test_a_step_that_writes_less_than_the_memory_fits(steps, known):
    assert verdict(Way(device("t4"), optimizer="sgd"), {}, known, 2).answers["no"] == 0
