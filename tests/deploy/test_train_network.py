"""`perfpass train-cost` of networks that are no language models: replicas on several devices."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import perfpass
from perfpass.cli import main
from perfpass.deploy.train_answer import train_answer
from perfpass.devices import device
from perfpass.errors import ArgumentError
from perfpass.interval import Interval
from perfpass.predictors.training_step import replicas
from perfpass.training.memory.dataset import load

RUN = {"micro_batch": 32, "precision": "amp"}
ASKED = "resnet18"


@pytest.fixture(scope="module")
def eight():
    return perfpass.train_network_cost(ASKED, "a100", gpus=8, samples=1e6, region="FR", **RUN)


def test_one_device_is_the_step(eight):
    one = perfpass.train_network_cost(ASKED, "a100", **RUN)
    step = perfpass.predict(ASKED, "a100", batch=32, precision="amp", mode="training")
    assert one.step_s == step.latency_ms.scaled(1e-3, "s") and one.memory_in_use_bytes == step.memory.in_use
    assert one.parts_s["all-reduces"] == one.parts_s["waiting for the slowest"] == 0
    assert one.samples is None and one.cost.hours is None and eight.step.latency_ms == step.latency_ms


def test_a_run_adds_up(eight):
    assert sum(eight.parts_s.values()) == pytest.approx(eight.step_s.median)
    assert eight.global_batch == 256 and eight.samples_per_s.median == pytest.approx(256 / eight.step_s.median)
    steps = -(-1_000_000 // 256)
    assert eight.cost.hours.median == pytest.approx(steps * eight.step_s.median / 3600)
    assert eight.cost.energy_j.median == pytest.approx(8 * eight.power_w.median * eight.cost.hours.median * 3600)
    assert eight.cost.usd.median > 0 and eight.cost.carbon_g.median > 0
    parameters = 11_689_512  # torchvision's documentation of resnet18
    assert eight.gradient_bytes == 4 * parameters
    assert eight.step_s.low < eight.step_s.median < eight.step_s.high


def test_replicas_hold_buckets_and_buffers(eight):
    alone = eight.step.memory.in_use
    more = eight.memory_in_use_bytes.median - alone.median
    _, middle, most = replicas.communicator_bytes(device("a100"), 8)
    assert more == pytest.approx(eight.gradient_bytes + middle)
    highest = eight.gradient_bytes + most
    assert eight.memory_in_use_bytes.high - alone.high == pytest.approx(highest)


@pytest.mark.parametrize(("board", "network"), [(board, "resnet152-ddp-gpus") for board in ("h100", "h200", "l40s")])
def test_what_nccl_holds_is_within_its_bounds_on_every_measured_board(board, network):
    """A program on several boards, less the same network's on one at the same batch (milabench).

    Of batches that leave room: on a full board the allocator gives back what workspaces left.
    """
    rows, _ = load()
    own = rows.take(np.flatnonzero((rows.device == device(board).id) & (rows.batch <= 600)))
    beside = own.measured - own.reserved
    low, middle, high = replicas.communicator_bytes(device(board), 8)
    more = [
        float(np.median(beside[(own.bench == network) & (own.batch == n)]))
        - float(np.median(beside[(own.bench == "lightning") & (own.batch == n)]))
        for n in sorted(set(own.batch[own.bench == network]) & set(own.batch[own.bench == "lightning"]))
    ]
    assert more and all(low <= one <= high for one in more)
    assert np.median(more) == pytest.approx(middle, rel=0.2)


def test_more_devices_never_make_a_step_quicker():
    steps = [perfpass.train_network_cost(ASKED, "a100", gpus=n, **RUN).step_s for n in (1, 2, 4, 8, 16, 64)]
    assert [s.median for s in steps] == sorted(s.median for s in steps)
    assert [s.high for s in steps] == sorted(s.high for s in steps)


def test_a_slow_link_costs_more_and_widens():
    board = device("a100")
    linked = replicas.exchange(board, 4, 1e9)
    alone = replicas.exchange(replace(board, nvlink_bandwidth_bytes_s=0.0), 4, 1e9)
    assert alone.seconds > 3 * linked.seconds
    step = Interval(0.1, 0.09, 0.12, "s")
    near, far = (replicas.replicated(step, step, 4, m).step_s for m in (linked, alone))
    assert far.median > near.median and far.high / far.low > near.high / near.low
    assert far.low < step.median * (1 + replicas.SHIPPED.exposed * alone.seconds / step.median)


def test_a_network_between_hosts_is_the_users():
    slow, quick = (replicas.exchange(device("a100"), 16, 1e9, rate).seconds for rate in (1e9, 50e9))
    assert slow > 10 * quick


def test_micro_batches_are_summed_before_the_exchange(eight):
    four = perfpass.train_network_cost(ASKED, "a100", gpus=8, global_batch=1024, **RUN)
    assert four.micro_batches == 4 and four.parts_s["all-reduces"] == eight.parts_s["all-reduces"]
    assert 3.8 < four.parts_s["one device's step"] / eight.parts_s["one device's step"] < 4
    assert four.samples_per_s.median > eight.samples_per_s.median


def test_frozen_parameters_have_no_gradient(eight):
    head = perfpass.train_network_cost(ASKED, "a100", gpus=8, frozen=["conv1", "layer1", "layer2", "bn1"], **RUN)
    assert head.gradient_bytes < eight.gradient_bytes and head.step_s.median < eight.step_s.median


def test_the_result_is_strict_json(eight):
    facts = json.loads(json.dumps(eight.to_dict(), allow_nan=False))
    assert facts["devices"] == 8 and facts["global_batch"] == 256 and facts["step_of_a_device"]["workload"]
    assert "waiting for the slowest" in str(eight) and "gradients" in str(eight)


@pytest.mark.parametrize(
    ("where", "asked", "said"),
    [
        ("a100:1g.5gb", {"gpus": 2}, "a slice"),
        ("cpu", {"gpus": 2}, "no GPU"),
        ("a100", {"gpus": 12}, "whole nodes"),
        ("a100", {"gpus": 0}, "gpus 0"),
        ("a100", {"gpus": 8, "micro_batch": 32, "global_batch": 100}, "no multiple"),
        ("a100", {"samples": float("nan")}, "samples nan"),
    ],
)
def test_what_cannot_be_laid_out_is_refused(where, asked, said):
    with pytest.raises(ArgumentError, match=said):
        perfpass.train_network_cost(ASKED, where, **asked)


def test_the_command_takes_any_network(capsys):
    asked = ["train-cost", ASKED, "--device", "a100", "--gpus", "8", "--micro-batch", "32", "--precision", "amp"]
    assert main([*asked, "--samples", "500K", "--epochs", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["samples"] == 1e6
    for more, said in (
        (["--tp", "2"], "--tp has no meaning"),
        (["--search"], "needs a global batch"),
        (["--epochs", "2"], "--epochs are of --samples"),
        (["--samples", "9", "--tokens", "9"], "--tokens and --samples"),
        (["--samples", "M"], "'M' is no number; give one as 10B"),
    ):
        assert main([*asked, *more]) > 1
        assert said in capsys.readouterr().err
    assert main(["train-cost", "gpt2", "--device", "a100", "--layout", "nhwc"]) > 1
    assert "--layout has no meaning" in capsys.readouterr().err


def test_epochs_of_a_language_model_are_tokens(capsys):
    asked = ["train-cost", "gpt2", "--device", "a100", "--sequence", "1024", "--json"]
    assert main([*asked, "--samples", "1000", "--epochs", "3"]) == 0
    assert json.loads(capsys.readouterr().out)["tokens"] == 3 * 1000 * 1024


PLAIN = [
    *(("resnet18", where, how) for where in ("a100", "rtx-4090", "v100-16gb", "mi300x") for how in ("amp", "fp32")),
    *(("mobilenet_v2", where, "amp") for where in ("h100", "t4")),
    ("mobilenet_v2", "cpu", "fp32"),
    *(("gpt2", where, how) for where, how in (("h100", "amp_bf16"), ("rtx-3090", "fp32"))),
]


@pytest.mark.parametrize(("model", "where", "how"), PLAIN)
def test_both_commands_answer_the_same_plain_question_alike(model, where, how):
    """Seconds, watts, bytes and joules, their bounds too; of a language model, where the framework is eager PyTorch."""
    of_words = {"framework": "eager", "sequence": 128} if model == "gpt2" else {}
    dims = {"sequence": 128} if of_words else None
    step = perfpass.predict(
        model, where, batch=4, precision=how, optimizer="adamw", mode="training", dims=dims, calibration=False
    )
    found = train_answer(
        model, where, micro_batch=4, precision=how, optimizer="adamw", samples=400, calibration=False, **of_words
    ).found
    same = [
        (found.step_s.scaled(1e3, "ms"), step.latency_ms),
        (found.power_w, step.power_w),
        (found.memory_in_use_bytes, step.peak_memory_bytes),
        (found.step_energy_j, step.energy_j),
        (found.cost.energy_j.scaled(1 / 100, "J"), step.energy_j),
    ]
    for ours, theirs in same:
        for bound in ("median", "low", "high"):
            assert getattr(ours, bound) == pytest.approx(getattr(theirs, bound), rel=1e-9)


def test_a_framework_says_that_eager_pytorch_takes_longer(capsys):
    asked = ["train-cost", "gpt2", "--device", "a100", "--sequence", "1024", "--micro-batch", "8", "--precision", "amp"]
    asked += ["--json"]
    main(asked)
    fused = json.loads(capsys.readouterr().out)
    assert any("--framework eager" in note for note in fused["notes"])
    main([*asked, "--framework", "eager", "--tokens", "1M"])
    eager = json.loads(capsys.readouterr().out)
    assert eager["step_s"]["median"] > fused["step_s"]["median"] and eager["samples"] == 1e6 / 1024
    for more, said in (
        (["--tp", "2"], "--tp has no meaning here: gpt2 in eager PyTorch has no layouts"),
        (["--lora-rank", "8"], "--lora-rank has no meaning"),
        (["--sequence", "0", "--tokens", "1M"], "sequence 0; it is a whole number from 1"),
        (["--tokens", "-5"], "tokens -5"),
    ):
        assert main([*asked, "--framework", "eager", *more]) == 2
        assert said in capsys.readouterr().err
    main([*asked, "--framework", "eager", "--tokens", "1M", "--equal-lengths"])
    assert json.loads(capsys.readouterr().out) == eager  # a graph has one length


def test_a_language_model_in_eager_pytorch_reads_as_many_tokens_as_in_a_framework():
    asked = {"framework": "eager", "precision": "amp", "optimizer": "adamw"}
    unstated, stated, short = (
        train_answer("smollm2-135m", "a100", **asked, **more).found.step_s
        for more in ({}, {"sequence": 4096}, {"dims": {"sequence_length": 128}})
    )
    assert unstated == stated and short.median < stated.median


def test_a_language_model_trains_as_usual_where_nobody_says_how():
    """Eager PyTorch and a training framework take the same length, width and optimizer, and say what is not obvious."""
    unstated = train_answer("gpt2", "a100", framework="eager").found
    stated = train_answer(
        "gpt2", "a100", framework="eager", sequence=1024, precision="amp_bf16", optimizer="adamw"
    ).found
    assert unstated.step_s == stated.step_s and not stated.notes
    assert unstated.notes == (
        "sequences of 1,024 tokens: gpt2 has no more positions",
        "amp_bf16 and adamw, as language models are trained where nobody says otherwise",
    )
    for board, precision in (("v100", "amp"), ("m40", "fp32")):  # a Tesla M40 has no halves
        assert train_answer("gpt2", board, framework="eager").found.step.workload["precision"] == precision
    framework = train_answer("gpt2", "a100", samples=10).found
    assert framework.recipe.sequence == 1024 and framework.tokens == 10 * 1024
    assert unstated.notes[0] in framework.notes
    longer = train_answer("gpt2", "a100", sequence=2048).found
    assert longer.recipe.sequence == 2048
    assert "gpt2 has 1,024 positions: it does not train on 2,048 tokens as it is" in longer.notes


def test_the_length_of_another_network_is_a_size_of_its_input():
    with pytest.raises(ArgumentError, match="give the length of its input, if it has one, as dims sequence=512"):
        train_answer("t5-small", "a100", sequence=512)


def test_an_encoder_decoder_trains_as_the_network_that_predict_reads():
    asked = {"precision": "amp", "optimizer": "adamw"}
    found = train_answer("whisper-tiny", "rtx-3090", micro_batch=2, **asked).found
    step = perfpass.predict("whisper-tiny", "rtx-3090", batch=2, mode="training", **asked)
    assert found.step == step and found.step_s == step.latency_ms.scaled(1e-3, "s")


def test_adapters_of_a_network_are_sent_to_its_module():
    with pytest.raises(ArgumentError, match=r"lora_rank has no meaning here: resnet18 .*perfpass\.torch\.estimate"):
        train_answer("resnet18", "h100", lora_rank=16)
