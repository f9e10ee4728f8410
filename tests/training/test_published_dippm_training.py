"""DIPPM's variants learn from a few real records, also where they are interrupted, and from nothing held out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from traced_records import by_rows, training_steps
from traced_records import graphs as graphs_of_records


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dippm", "dippm-gat", "dippm-gcn", "dippm-gin", "dippm-mlp"])
def test_every_variant_beats_a_constant_on_real_records(name):
    from perfpass.training.tasks.methods import method

    task, graphs = training_steps(), graphs_of_records()
    split = by_rows(task)
    quick = method(name).with_options(
        shared=False,
        shape=replace(method(name).shape, hidden=24),
        epochs=40,
        graphs_per_step=2,
        learning_rate=5e-3,
        half=False,
    )
    fitted = quick.fit(task, graphs, split)
    measured = task.value[split.test]
    error = np.abs(np.log(fitted.predict(split.test) / measured)).mean()
    constant = np.abs(np.log(np.exp(np.log(task.value[split.train]).mean()) / measured)).mean()
    assert error < 0.75 * constant
    assert fitted.parameters == sum(values.size for values in fitted.weights.values())


@pytest.mark.gpu
def test_a_gpu_learns_where_there_is_one():
    import torch

    from perfpass.training.tasks.methods import method

    task, graphs = training_steps(), graphs_of_records()
    split = next(iter(task.splits()))
    torch.cuda.reset_peak_memory_stats()
    fitted = method("dippm").with_options(shared=False, epochs=3, graphs_per_step=2).fit(task, graphs, split)
    assert torch.cuda.max_memory_allocated() > 0
    assert fitted.history[-1]["loss"] < fitted.history[0]["loss"]


@pytest.mark.slow
def test_an_interrupted_fit_goes_on_and_ends_as_if_it_had_not_been(tmp_path, monkeypatch):
    from perfpass.training.graph_networks import fit
    from perfpass.training.tasks.methods import method

    task, graphs = training_steps(), graphs_of_records()
    split = next(iter(task.splits()))
    quick = method("dippm").with_options(shared=False, epochs=4, half=False)
    quick = replace(quick, shape=replace(quick.shape, hidden=8))
    whole = quick.fit(task, graphs, split)
    journal = replace(quick, journal=tmp_path / "journal.safetensors")
    judge, calls = fit.validation_error, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return judge(*arguments)

    monkeypatch.setattr(fit, "validation_error", interrupted)
    with pytest.raises(KeyboardInterrupt):
        journal.fit(task, graphs, split)
    monkeypatch.setattr(fit, "validation_error", judge)
    resumed = journal.fit(task, graphs, split)
    assert [entry["valid"] for entry in resumed.history] == [entry["valid"] for entry in whole.history]
    for key, values in whole.weights.items():
        np.testing.assert_array_equal(resumed.weights[key], values)


def test_other_tasks_tell_nothing_of_what_a_split_holds_out():
    from perfpass.training.published.dippm import network as dippm
    from perfpass.training.tasks import tasks

    task = tasks.load("training_step")
    found = {}
    for split in task.splits():
        # `others` reads the tasks through `_traced`; which networks can be traced does not matter here.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(dippm, "_traced", lambda name, graphs: tasks.load(name))
            found[split.name] = split, dippm.others(task, None, split)
    for column in ("architecture", "family"):
        split, others = found[column]
        held = set(task.rows[column].iloc[split.test]) | set(task.rows[column].iloc[split.valid])
        assert others and all(held.isdisjoint(other.rows[column]) for other in others)
    split, others = found["device rtx-3090"]
    assert others and all("rtx-3090" not in set(other.rows.device) for other in others)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dippm, "_traced", lambda name, graphs: tasks.load(name))
        others = dippm.others(task, None, task.adaptation("rtx-3090", 32))
    assert others and all("rtx-3090" not in set(other.rows.device) for other in others)
