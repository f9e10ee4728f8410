"""`perfpass.torch.estimate`: what is read of a module and an optimizer, and what follows from it."""

from __future__ import annotations

import json

from perfpass.importers import torchvision_schemas

torchvision_schemas.define()  # torchvision may stand beside another build of torch

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model

from perfpass.devices import device
from perfpass.errors import ArgumentError, UnsupportedError
from perfpass.llm.training import adapter_parameters
from perfpass.torch import estimate
from perfpass.torch.inspected import inspected, optimizer_name, precision_of, shapes_of


class Network(torch.nn.Module):
    """A convolution and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Conv2d(3, 64, 3, padding=1), torch.nn.BatchNorm2d(64), torch.nn.ReLU())
        self.head = torch.nn.Linear(64, 10)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


def llama(layers=2):
    shape = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = transformers.LlamaConfig(num_hidden_layers=layers, vocab_size=500, **shape)
    return transformers.LlamaForCausalLM(config)


def wide_llama():
    """As 8 billion parameters, without a weight."""
    shape = {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8}
    with torch.device("meta"):
        config = transformers.LlamaConfig(num_hidden_layers=32, vocab_size=128256, **shape)
        return transformers.LlamaForCausalLM(config)


TOKENS = {"input_ids": torch.zeros(2, 512, dtype=torch.long, device="meta")}


@pytest.fixture(scope="module")
def whole():
    module = Network()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    return estimate(module, torch.empty(16, 3, 64, 64), device="a100-80gb", optimizer=optimizer)


def test_an_estimate_adds_up_and_is_strict_json(whole):
    assert whole.optimizer == "momentum" and whole.precision == "fp32" and whole.samples == 16
    assert whole.step_s.low < whole.step_s.median < whole.step_s.high
    assert whole.energy_j.median == pytest.approx(whole.step_s.median * whole.power_w.median)
    assert sum(whole.step_shares.values()) == pytest.approx(1, abs=0.01)
    assert whole.fits and 0 < whole.mfu < 1
    assert json.loads(json.dumps(whole.to_dict(), allow_nan=False))["samples"] == 16
    assert "P = 1.00" in str(whole) and "fits" in whole.headline()


def test_a_step_has_of_a_board_what_check_bits_leave_it():
    module = Network()
    found = estimate(module, torch.empty(16, 3, 64, 64), device="t4")
    assert found.device_memory_bytes == device("t4").usable_bytes == 15 * 2**30


def test_a_run_costs_its_steps(whole):
    run = whole.run(1000)
    assert run.hours.median == pytest.approx(1000 * whole.step_s.median / 3600)
    assert run.usd.median > 0 and run.energy_j.median == pytest.approx(1000 * whole.energy_j.median)
    with pytest.raises(ArgumentError, match="at least 1, got 0"):
        whole.run(0)


def test_the_module_is_left_as_it_was_and_its_weights_are_not_read():
    class Poisoned(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.full((8, 8), float("nan")))
            self.seen = []

        def forward(self, x):
            self.seen.append(x.device.type)
            return x @ self.weight

    module = Poisoned().eval()
    estimate(module, torch.ones(4, 8), device="a100-80gb")
    assert module.seen == [] and not module.training and module.weight.grad is None
    assert module.weight.isnan().all() and module.weight.requires_grad


def test_what_is_frozen_takes_no_gradient_and_no_state(whole):
    module = Network()
    module.body.requires_grad_(False)
    found = estimate(module, torch.empty(16, 3, 64, 64), device="a100-80gb", optimizer="momentum")
    assert found.step_s.median < whole.step_s.median
    assert found.alive_bytes["optimizer"] < whole.alive_bytes["optimizer"]
    assert "650 of 2,570 parameters are trained" in found.read[0]
    module.requires_grad_(False)
    with pytest.raises(UnsupportedError, match="nothing is trained"):
        estimate(module, torch.empty(16, 3, 64, 64), device="a100-80gb")


def test_passes_before_an_update_take_their_time(whole):
    module = Network()
    found = estimate(module, torch.empty(16, 3, 64, 64), device="a100-80gb", optimizer="momentum", accumulation=4)
    assert found.samples == 64
    assert 2 * whole.step_s.median < found.step_s.median <= 4 * whole.step_s.median * (1 + 1e-9)


def test_wrappers_are_looked_through():
    module = Network()
    compiled = torch.compile(module)
    assert inspected(compiled).module is module and inspected(compiled).compiled
    assert inspected(torch.nn.DataParallel(module)).module is module
    in_place = Network()
    in_place.compile()
    assert inspected(in_place).compiled and not inspected(module).compiled


def test_a_decoder_is_asked_of_training_of_language_models():
    module = wide_llama()
    kept = estimate(module, TOKENS, device="h200", precision="bf16-mixed")
    assert kept.predictor == "llm_training" and kept.precision == "amp_bf16"
    module.gradient_checkpointing_enable()
    anew = estimate(module, TOKENS, device="h200", precision="bf16-mixed")
    assert anew.alive_bytes["activations"] < kept.alive_bytes["activations"]
    assert anew.step_shares["recomputation"] > 0 and "checkpointing" in " ".join(anew.read)


def test_sequences_of_one_length_leave_nothing_in_the_allocator():
    asked = {"example_inputs": {"input_ids": torch.zeros(2, 4096, dtype=torch.long, device="meta")}, "device": "b300"}
    packed, unequal = (estimate(wide_llama(), **asked, equal_lengths=equal) for equal in (True, False))
    assert packed.predictor == "llm_training" and packed.step_s == unequal.step_s
    assert packed.memory_bytes.median == unequal.memory_bytes.median
    assert packed.memory_bytes.high < unequal.memory_bytes.high


def test_attention_is_that_of_the_module():
    eager, fused = wide_llama(), wide_llama()
    eager.config._attn_implementation = "eager"
    kept, free = (estimate(module, TOKENS, device="b300") for module in (eager, fused))
    assert kept.alive_bytes["activations"] > free.alive_bytes["activations"]
    assert "attention is computed eagerly" in kept.read and "attention is computed eagerly" not in free.read
    assert estimate(eager, TOKENS, device="b300", attention="flash").alive_bytes == free.alive_bytes


def test_adapters_are_those_of_peft():
    module = get_peft_model(wide_llama(), LoraConfig(r=8, target_modules=["q_proj", "v_proj", "down_proj"]))
    found = inspected(module)
    assert found.adapter.rank == 8 and found.adapter.targets == ("query", "value", "down")
    layers = [layer for count, layer in found.language.layers for _ in range(count)]
    assert found.trained == sum(adapter_parameters(layer, found.language.hidden, found.adapter) for layer in layers)
    magnitudes = get_peft_model(wide_llama(), LoraConfig(r=8, target_modules=["q_proj"], use_dora=True))
    assert inspected(magnitudes).adapter.decomposed and not found.adapter.decomposed
    answer = estimate(module, TOKENS, device="l40s", precision="bf16")
    assert answer.predictor == "llm_training" and "LoRA of rank 8" in " ".join(answer.read)


def test_a_decoder_that_the_host_paces_is_asked_of_its_operators():
    assert estimate(llama(), TOKENS, device="h100").predictor == "training_step"


def test_an_encoder_and_a_frozen_decoder_are_traced():
    found = estimate(llama(), {"input_ids": torch.zeros(2, 16, dtype=torch.long)}, device="cpu")
    assert found.predictor == "training_step" and found.device == "host-cpu"
    half = llama()
    half.model.requires_grad_(False)
    assert inspected(half).language is None


@pytest.mark.parametrize(
    ("made", "name"),
    [
        (lambda p: torch.optim.SGD(p, lr=1), "sgd"),
        (lambda p: torch.optim.SGD(p, lr=1, momentum=0.9), "momentum"),
        (lambda p: torch.optim.AdamW(p), "adamw"),
        (lambda p: torch.optim.Adam(p), "adam"),
        (lambda p: torch.optim.RMSprop(p), "momentum"),
        (lambda p: torch.optim.Adafactor(p), "adafactor"),
    ],
)
def test_an_optimizer_is_known_by_its_class(made, name):
    assert optimizer_name(made([torch.nn.Parameter(torch.zeros(3))])) == name


def test_an_optimizer_that_is_not_known_is_refused_with_a_way_out():
    class Odd(torch.optim.Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, {})

    with pytest.raises(ArgumentError, match="Odd is not known; give by name one with the same states"):
        optimizer_name(Odd([torch.nn.Parameter(torch.zeros(3))]))
    with pytest.raises(ArgumentError, match="optimizer"):
        optimizer_name("adm")
    with pytest.raises(ArgumentError, match=r"torch\.optim\.Optimizer or a name"):
        optimizer_name(3)


@settings(max_examples=30, deadline=None)
@given(batch=st.integers(1, 64), sizes=st.lists(st.integers(1, 9), min_size=1, max_size=3), named=st.booleans())
def test_shapes_are_those_of_the_example_without_its_batch(batch, sizes, named):
    one, other = torch.empty(batch, *sizes, device="meta"), torch.empty(batch, 4, dtype=torch.long, device="meta")
    example = {"x": one, "ids": other, "labels": other} if named else (one, other, None, 3)
    shapes, found = shapes_of(example)
    assert found == batch
    assert list(shapes.values() if named else shapes) == [tuple(sizes), ((4,), "int64")]


@pytest.mark.parametrize(
    ("example", "words"),
    [
        ((torch.empty(2, 3), torch.empty(4, 3)), r"share their first dimension.*\(2, 3\), \(4, 3\)"),
        (torch.empty(0, 3), "empty batch"),
        ({"a": 3}, "no tensor"),
        (5, "got int"),
    ],
)
def test_examples_that_say_no_batch_are_refused(example, words):
    with pytest.raises(ArgumentError, match=words):
        shapes_of(example)


def test_precision_is_that_of_the_parameters_or_what_is_asked():
    module = Network()
    assert precision_of(inspected(module), None) == "fp32"
    assert precision_of(inspected(module.bfloat16()), None) == "bf16"
    assert precision_of(inspected(module), "16-mixed") == "amp"
    with pytest.raises(ArgumentError, match="precision"):
        precision_of(inspected(module), "int3")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({}, "needs example_inputs or input_shape"),
        ({"example_inputs": torch.empty(2, 3, 8, 8), "batch": 3}, "not both"),
        ({"input_shape": (3, 8, 8), "accumulation": 0}, "accumulation must be a whole number"),
    ],
)
def test_what_is_missing_or_contradicts_is_said(asked, words):
    with pytest.raises(ArgumentError, match=words):
        estimate(Network(), device="cpu", **asked)
