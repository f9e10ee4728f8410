"""Callbacks inside training loops: predictions before the first step, records that survive, a comparison at the end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from types import SimpleNamespace

from perfpass.importers import torchvision_schemas

torchvision_schemas.define()  # torchvision may stand beside another build of torch

import lightning.pytorch
import pytest
import torch
import transformers
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

from perfpass.measure.journal import Journal, read
from perfpass.torch import Watch, estimate
from perfpass.torch import lightning as lightning_callback
from perfpass.torch import trainer as trainer_callback
from perfpass.torch.accelerator import estimate_prepared
from perfpass.torch.watch import DoesNotFitWarning

QUIET = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}


class Module(lightning.pytorch.LightningModule):
    """A network inside, which `training_step` calls itself; it may fail at a batch."""

    def __init__(self, fails_at=None) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
        self.fails_at = fails_at

    def training_step(self, batch, index):
        if index == self.fails_at:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


def fit(callback, module=None, passes=1):
    data = TensorDataset(torch.randn(120, 32), torch.zeros(120, dtype=torch.long))
    loop = lightning.pytorch.Trainer(
        max_epochs=1, accelerator="cpu", callbacks=[callback], accumulate_grad_batches=passes, **QUIET
    )
    loop.fit(module or Module(), DataLoader(data, batch_size=4))


def tiny_llama():
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "num_key_value_heads": 2}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(num_hidden_layers=1, vocab_size=64, **shape))


def train(callback, tmp_path, model=None, **more):
    rows = [{name: torch.zeros(12, dtype=torch.long) for name in ("input_ids", "labels")} for _ in range(32)]
    asked = {
        "per_device_train_batch_size": 2,
        "max_steps": 12,
        "report_to": [],
        "save_strategy": "no",
        "use_cpu": True,
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        "seed": 3,
    }
    arguments = transformers.TrainingArguments(str(tmp_path / "out"), **(asked | more))
    loop = transformers.Trainer(model or tiny_llama(), arguments, train_dataset=rows, callbacks=[callback])
    return loop.train()


def test_lightning_says_before_the_first_step_and_compares_at_the_end(tmp_path):
    said = []
    fit(lightning_callback.StepCost(tmp_path / "runs.jsonl", say=said.append))
    assert "fits" in said[0] and said[1].startswith("perfpass: 30 steps:")
    assert said[-1].startswith("perfpass: 27 steps measured") and "memory, the process's" in said[-1]
    contents = read(tmp_path / "runs.jsonl")
    assert [r["iterations"] for r in contents.records] == [8, 27]
    record = contents.records[-1]
    assert record["status"] == "ok" and record["configuration"]["batch"] == 4
    assert record["predicted"]["step_s"]["median"] > 0 and record["latency_ms"]["median"] > 0
    assert record["memory"]["host_peak_rss_bytes"] > 0 and record["environment"] in contents.facts


def test_lightning_counts_passes_before_an_update_as_one_step(tmp_path):
    said = []
    callback = lightning_callback.StepCost(tmp_path / "runs.jsonl", say=said.append)
    fit(callback, passes=3)
    assert callback.watch.estimate.accumulation == 3 and callback.watch.estimate.samples == 12
    assert read(tmp_path / "runs.jsonl").records[-1]["iterations"] == 7


def test_a_run_that_ends_in_an_error_keeps_its_record(tmp_path):
    with pytest.raises(torch.OutOfMemoryError):
        fit(lightning_callback.StepCost(tmp_path / "runs.jsonl", say=lambda _: None), Module(fails_at=6))
    record = read(tmp_path / "runs.jsonl").records[-1]
    assert record["status"] == "out_of_memory" and record["iterations"] == 3 and record["predicted"]


def test_the_trainer_is_told_of_its_first_batch(tmp_path):
    said = []
    callback = trainer_callback.StepCost(tmp_path / "runs.jsonl", say=said.append)
    train(callback, tmp_path, gradient_accumulation_steps=2)
    found = callback.watch.estimate
    assert found.samples == 4 and found.accumulation == 2 and found.optimizer == "adamw"
    assert "LlamaForCausalLM" in said[0] and "9 steps measured" in said[-1]


@pytest.mark.parametrize(("packing", "given", "told"), [(None, None, False), (True, None, True), (True, False, False)])
def test_the_trainer_says_whether_it_packs_unless_the_user_does(tmp_path, monkeypatch, packing, given, told):
    asked = {}
    monkeypatch.setattr(trainer_callback, "estimate", lambda *_, **how: asked.update(how))
    callback = trainer_callback.StepCost(equal_lengths=given, say=lambda _: None)
    arguments = transformers.TrainingArguments(str(tmp_path / "out"), use_cpu=True, report_to=[])
    if packing is not None:
        arguments.packing = packing  # as TRL's SFTConfig has it
    state = transformers.TrainerState(max_steps=1, is_world_process_zero=True)
    callback.on_train_begin(arguments, state, None, model=(model := tiny_llama()))
    with contextlib.suppress(Exception):  # of the watch, which is given nothing to compare
        model(input_ids=torch.zeros(1, 4, dtype=torch.long))
    assert asked["equal_lengths"] is told


def test_a_callback_changes_nothing_of_the_run(tmp_path):
    losses = []
    for callback in (trainer_callback.StepCost(say=lambda _: None), transformers.TrainerCallback()):
        torch.manual_seed(5)
        losses.append(train(callback, tmp_path, model=tiny_llama()).training_loss)
    assert losses[0] == losses[1]


def test_a_step_that_cannot_be_predicted_runs_all_the_same(tmp_path):
    class Values(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(32, 4)

        def forward(self, x):
            return self.inner(x) if float(x.detach().abs().sum()) >= 0 else self.inner(-x)

    module, said = Module(), []
    module.net = Values()
    fit(lightning_callback.StepCost(tmp_path / "runs.jsonl", say=said.append), module)
    assert said[0].startswith("perfpass: no prediction:")
    record = read(tmp_path / "runs.jsonl").records[-1]
    assert "predicted" not in record and record["iterations"] == 27


def test_a_compiled_model_is_asked_by_its_shapes(tmp_path):
    said = []
    callback = trainer_callback.StepCost(input_shape={"input_ids": ((12,), "int64")}, batch=2, say=said.append)
    model = tiny_llama()
    arguments = transformers.TrainingArguments(str(tmp_path / "out"), use_cpu=True, report_to=[], torch_compile=False)
    state = transformers.TrainerState(max_steps=5)
    callback.on_train_begin(arguments, state, None, model=torch.compile(model))
    assert "fits" in said[0] and callback.watch.estimate.samples == 2
    silent = trainer_callback.StepCost(say=said.append)
    silent.on_train_begin(arguments, state, None, model=torch.compile(model))
    assert "give input_shape to the callback" in said[-1]


def test_accelerate_prepared_objects_are_read(tmp_path):
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    module = torch.nn.Linear(64, 64)
    batches = DataLoader(torch.randn(48, 64), batch_size=4)
    model, optimizer, batches = accelerator.prepare(module, torch.optim.SGD(module.parameters(), lr=0.1), batches)
    with Watch(tmp_path / "runs.jsonl", warmup=1, say=lambda _: None) as watch:
        for batch in batches:
            if watch.estimate is None:
                watch.predict(estimate_prepared(accelerator, model, optimizer, batch))
            with watch.step():
                accelerator.backward(model(batch).square().mean())
                optimizer.step()
    assert watch.estimate.optimizer == "sgd" and watch.estimate.accumulation == 2 and watch.estimate.precision == "fp32"
    assert read(tmp_path / "runs.jsonl").records[-1]["iterations"] == 11


def test_what_will_not_fit_is_warned_of():
    module = torch.nn.Linear(60_000, 60_000, device="meta")
    with pytest.warns(DoesNotFitWarning, match="WILL NOT FIT"):
        Watch(say=lambda _: None).predict(estimate(module, torch.empty(8, 60_000, device="meta"), device="l4"))


def test_a_journal_that_another_run_holds_stops_nothing(tmp_path):
    said = []
    with Journal(tmp_path / "runs.jsonl"), Watch(tmp_path / "runs.jsonl", warmup=0, say=said.append) as watch:
        for _ in range(70):
            with watch.step():
                pass
    assert [s for s in said if "no record was written" in s and "another campaign writes here" in s] and len(said) == 1


def test_a_killed_run_leaves_what_it_had_measured(tmp_path):
    program = textwrap.dedent(
        """
        import os, signal, sys
        from perfpass.torch import Watch

        watch = Watch(sys.argv[1], warmup=1)
        for step in range(20):
            with watch.step():
                pass
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    found = subprocess.run([sys.executable, "-c", program, str(tmp_path / "runs.jsonl")], env=os.environ, check=False)
    assert found.returncode == -signal.SIGKILL
    assert [r["iterations"] for r in read(tmp_path / "runs.jsonl").records] == [8]
    assert json.loads((tmp_path / "runs.jsonl").read_text().splitlines()[0])["kind"] == "facts"


def test_power_is_by_the_clock_whatever_lies_between_the_steps(monkeypatch):
    """A counter of 100 W stands in for the board's: the pauses are in its joules, so they are in the seconds, too."""

    class Counter:
        def sample(self):
            return SimpleNamespace(energy_j=100.0 * time.perf_counter())

    watch = Watch(warmup=1, say=lambda line: None)
    monkeypatch.setattr(watch, "_gpu", Counter())
    monkeypatch.setattr("perfpass.torch.watch._MOST_KEPT", 4)
    for _ in range(8):  # four are counted, and joules end with them
        with watch.step():
            time.sleep(0.002)
        time.sleep(0.01)
    energy, ms = watch.record()["energy"], watch.record()["latency_ms"]["mean"]
    assert energy["power_w"] == pytest.approx(100.0, rel=0.01)
    assert energy["energy_j"] == pytest.approx(100.0 * ms / 1e3, rel=0.02)
