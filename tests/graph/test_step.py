"""Training steps: what is traced from autograd, and what is derived from a forward graph, agree with each other."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import perfpass
from graph_strategies import graphs, written_out
from perfpass import features
from perfpass.errors import ArgumentError, UnsupportedError
from perfpass.graph import costs
from perfpass.graph import liveness as memory
from perfpass.graph import step as backward
from perfpass.graph.optimizers import OPTIMIZERS
from perfpass.graph.saved import saved_activations
from perfpass.graph.step import StepOptions
from perfpass.importers.torch import trace, trace_owned
from perfpass.importers.torch_training import trace_training, trace_training_owned
from twins import saved as saved_twin


class Small(torch.nn.Module):
    """Every kind of product with a weight, a norm, a pooling and a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
        self.norm = torch.nn.BatchNorm2d(8)
        self.grouped = torch.nn.Conv2d(8, 8, 3, padding=1, groups=4)
        self.up = torch.nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.head = torch.nn.Linear(4, 10)

    def forward(self, x):
        x = torch.relu(self.norm(self.stem(x)))
        x = x + self.grouped(x)
        return self.head(self.up(x).mean((2, 3)))


def phase_sum(graph, column) -> list[int]:
    return [int(np.asarray(column)[graph.phase == i].sum()) for i in range(3)]


def test_products_of_a_traced_step_are_those_that_torch_itself_counts():
    from torch.utils.flop_counter import FlopCounterMode

    # Without groups, which torch's counter leaves out of the gradient of a weight.
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, stride=2, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(8, 8, 5, dilation=2),
        torch.nn.Flatten(), torch.nn.LazyLinear(10),
    )  # fmt: skip
    model(torch.randn(1, 3, 32, 32))
    with FlopCounterMode(display=False) as counter:
        torch.nn.functional.cross_entropy(model(torch.randn(4, 3, 32, 32)), torch.zeros(4, dtype=torch.long)).backward()
    graph = trace_training(model, (3, 32, 32), batch=4)
    assert 2 * sum(phase_sum(graph, costs.count(graph).macs)) == counter.get_total_flops()


def test_every_product_has_two_gradients_but_the_first_which_has_one():
    """Grouped and transposed convolutions among them: all of equal size."""
    graph = trace_training(Small(), (3, 16, 16), batch=4)
    forward, back, optimizer = phase_sum(graph, costs.count(graph).macs)
    stem = 4 * 8 * 8 * 8 * 3 * 9
    assert (back, optimizer) == (2 * forward - stem, 0)


def test_the_forward_phase_is_the_forward_graph():
    model = Small()
    step, forward = trace_training(model, (3, 16, 16), batch=4), trace(model, (3, 16, 16), batch=4)
    assert phase_sum(step, costs.count(step).macs)[0] == costs.count(forward).totals["macs"]


def test_tracing_leaves_the_module_as_it_was():
    model = Small().eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    trace_training(model, (3, 16, 16), batch=2, optimizer="adamw")
    assert not model.training
    assert all(p.grad is None and p.device.type == "cpu" for p in model.parameters())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


@pytest.mark.parametrize(("optimizer", "states"), [("none", 0), ("sgd", 0), ("momentum", 1), ("adam", 2), ("adamw", 2)])
@pytest.mark.parametrize("foreach", [False, True])
def test_the_optimizer_reads_every_gradient_and_keeps_its_states(optimizer, states, foreach):
    model = Small()
    elements = sum(p.numel() for p in model.parameters())
    graph = trace_training(model, (3, 16, 16), batch=2, optimizer=optimizer, foreach=foreach)
    state_elements = sum(int(np.prod(graph.shape(int(t)))) for t in graph.states)
    assert state_elements == states * elements
    assert len(graph.gradients) == len(list(model.parameters()))
    counted = costs.count(graph)
    read, written = phase_sum(graph, counted.bytes_read)[2], phase_sum(graph, counted.bytes_written)[2]
    table = OPTIMIZERS[optimizer]
    assert (read, written) == (4 * elements * table.read, 4 * elements * table.written)


def test_an_optimizer_of_records_alone_moves_what_torch_moves_and_cannot_be_asked_for():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counted(TorchDispatchMode):
        kernels = read = written = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            operands = {id(a): a.numel() for a in args if isinstance(a, torch.Tensor)}
            found = func(*args, **(kwargs or {}))
            if max(operands.values(), default=0) > 1:  # not the count of steps
                self.kernels, self.read = self.kernels + 1, self.read + sum(operands.values())
                self.written += found.numel()
            return found

    weight = torch.nn.Parameter(torch.ones(100))
    optimizer = torch.optim.Adadelta([weight], foreach=False)
    weight.grad = torch.ones(100)
    optimizer.step()
    with torch.no_grad(), Counted() as counted:
        optimizer.step()
    recorded = backward.RECORDED["adadelta"]
    assert (counted.kernels, counted.read, counted.written) == (
        recorded.kernels, 100 * recorded.read, 100 * recorded.written,
    )  # fmt: skip
    with pytest.raises(ArgumentError, match="allowed are none, sgd, momentum, adam, adamw"):
        trace_training(Small(), (3, 16, 16), batch=2, optimizer="adadelta")


@settings(max_examples=120)
@given(
    st.one_of(graphs(), written_out()), st.sampled_from([None, "float16", "float64"]), st.sampled_from([1, 512]),
    st.booleans(),
)  # fmt: skip
def test_saved_activations_are_those_of_the_plain_twin(graph, float_as, alignment, autocast):
    found = saved_activations(graph, float_as, alignment, autocast=autocast)
    plain = saved_twin.saved_activations(graph, float_as, alignment, autocast)
    assert (found.saved, found.backward, found.gradients, found.tensors.tolist()) == plain


def test_saved_activations_live_until_their_gradient():
    """A chain of n tanh keeps n outputs for backward; one forward pass keeps two."""
    layers = 10
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), *(torch.nn.Tanh() for _ in range(layers)))
    one = 256 * 64 * 4
    step = memory.plan(trace_training(model, (64,), batch=256, optimizer="none"))
    forward = memory.plan(trace(model, (64,), batch=256))
    assert forward.peak_activation_bytes <= 4 * one
    assert (layers + 1) * one <= step.peak_activation_bytes <= (layers + 5) * one


def test_a_shared_weight_has_one_gradient():
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(50, 16)

        def forward(self, ids):
            return self.embedding(ids) @ self.embedding.weight.t()

    graph = trace_training(Tied(), ((7,), "int64"), batch=2)
    assert [graph.shape(int(t)) for t in graph.gradients] == [(50, 16)]


def test_attention_and_recurrent_layers_have_twice_their_products_backward():
    class Both(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = torch.nn.LSTM(16, 16, batch_first=True)

        def forward(self, x):
            x, _ = self.lstm(x)
            q = x.view(*x.shape[:2], 2, 8).transpose(1, 2)
            return torch.nn.functional.scaled_dot_product_attention(q, q, q).flatten(1)

    graph = trace_training(Both(), (12, 16), batch=3, optimizer="none")
    forward, back, _ = phase_sum(graph, costs.count(graph).macs)
    assert forward > 0
    assert back == 2 * forward


def test_a_language_model_trains_on_every_next_token(tmp_path):
    import json

    config = {
        "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 100,
        "num_attention_heads": 4, "num_key_value_heads": 2, "architectures": ["LlamaForCausalLM"],
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    graph = perfpass.load(tmp_path, mode="training", optimizer="adamw", batch=2, dims={"sequence_length": 16})
    forward, back, _ = phase_sum(graph, costs.count(graph).macs)
    assert forward > 2 * 16 * 100 * 64
    assert back == pytest.approx(2 * forward, rel=0.02)


def test_what_cannot_be_trained_says_so():
    with pytest.raises(UnsupportedError, match="nothing to train"):
        trace_training(torch.nn.ReLU(), (4,), batch=2)
    with pytest.raises(ArgumentError, match="unknown optimizer 'lion'; allowed are none, sgd"):
        trace_training(Small(), (3, 16, 16), optimizer="lion")
    with pytest.raises(UnsupportedError, match=r"mode='training'\) derives"):
        perfpass.load(b"", mode="training")
    with pytest.raises(ArgumentError, match="unknown mode 'dream'"):
        perfpass.load(Small(), mode="dream")


# Largest deviations of the derived step from the traced one that docs/predictors/training_step.md states.
MODELS = [
    "resnet18", "vit_tiny_patch16_224", "efficientnet_b0", "densenet121", "mobilenetv3_small_100", "regnety_002",
    "swin_tiny_patch4_window7_224", "mixer_s32_224",
]  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_the_derived_step_agrees_with_the_traced_one(name):
    from perfpass.importers import torchvision_schemas

    torchvision_schemas.define()
    import timm

    with torch.device("meta"):
        model = timm.create_model(name)
    forward = trace_owned(model, (3, 224, 224), batch=4)
    options = StepOptions("momentum", foreach=False)
    step = backward.derive(features.operator_table(forward), options, input_elements=4 * 3 * 224 * 224, width=4.0)
    saved = saved_activations(forward)
    graph = trace_training_owned(model, (3, 224, 224), batch=4, optimizer="momentum")
    counted, plan = costs.count(graph), memory.plan(graph)
    moved = np.asarray(counted.bytes_read) + counted.bytes_written

    def derived(values, phase):
        return float((values * step.count * (step.view == 0))[step.phase == phase].sum())

    assert derived(step.macs, 1) == pytest.approx(phase_sum(graph, counted.macs)[1], rel=0.01)
    assert derived(step.flops, 1) == pytest.approx(phase_sum(graph, counted.flops)[1], rel=0.03)
    assert derived(step.bytes_read + step.bytes_written, 1) == pytest.approx(phase_sum(graph, moved)[1], rel=0.13)
    assert derived(step.bytes_read + step.bytes_written, 2) == pytest.approx(phase_sum(graph, moved)[2], rel=0.02)
    parameters = sum(p.numel() for p in model.parameters())
    assert step.parameters == pytest.approx(parameters, rel=0.01)
    assert saved.backward + saved.gradients == pytest.approx(plan.peak_activation_bytes, rel=0.05)
