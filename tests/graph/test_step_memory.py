"""The plan of a step's memory against PyTorch's own steps, recorded storage by storage."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from perfpass.graph import allocators
from perfpass.graph.saved import saved_activations
from perfpass.importers import load, torch_memory, torchvision_schemas
from perfpass.predictors.memory.step import planned
from perfpass.predictors.way import Way

FLOATS = {"fp32": "float32", "amp": "float16"}


def cross_entropy(logits):
    rows = logits.movedim(1, -1) if logits.dim() == 4 else logits
    rows = rows.reshape(-1, rows.shape[-1])
    return functional.cross_entropy(rows, torch.empty(rows.shape[0], dtype=torch.int64))


def convolutional():
    import torchvision

    with torch.device("meta"):
        return torchvision.models.resnet18(weights=None), (3, 96, 96), 16, cross_entropy


def of_tokens(kind, length, **sizes):
    import transformers

    def made():
        with torch.device("meta"):
            config = getattr(transformers, f"{kind[0]}Config")(vocab_size=30_000, use_cache=False, **sizes)
            model = getattr(transformers, f"{kind[0]}{kind[1]}")(config)
        return model, {"input_ids": ((length,), "int64")}, 8, lambda out: cross_entropy(out.logits)

    return made


class Denoiser(torch.nn.Module):
    """Two levels with a skip, a group normalization and a SiLU: a U-Net in small."""

    def __init__(self):
        super().__init__()
        self.enter = torch.nn.Conv2d(4, 64, 3, padding=1)
        self.down = torch.nn.Conv2d(64, 64, 3, stride=2, padding=1)
        self.norm = torch.nn.GroupNorm(8, 64)
        self.up = torch.nn.Conv2d(128, 64, 3, padding=1)
        self.leave = torch.nn.Conv2d(64, 4, 3, padding=1)

    def forward(self, x):
        x = self.enter(x)
        y = functional.interpolate(functional.silu(self.norm(self.down(x))), scale_factor=2.0)
        return self.leave(functional.silu(self.up(torch.cat([x, y], 1))))


def denoising():
    with torch.device("meta"):
        return Denoiser(), (4, 64, 64), 16, lambda out: functional.mse_loss(out, torch.empty_like(out))


NETWORKS = {
    "convolutional": convolutional,
    "masked words": of_tokens(("Bert", "ForMaskedLM"), 128, hidden_size=128, num_hidden_layers=3, num_attention_heads=4,
                              intermediate_size=512),
    "next word": of_tokens(("GPT2", "LMHeadModel"), 128, n_embd=128, n_layer=3, n_head=4),
    "denoising": denoising,
}  # fmt: skip


def columns(graph, model, float_as, autocast):
    found = saved_activations(graph, float_as, 512, autocast=autocast)
    parameters = float(sum(p.numel() for p in model.parameters()))
    sizes = {"parameters": parameters, "weight_bytes": parameters * (2 if float_as == "float16" else 4)}
    return sizes | {"backward_bytes": float(found.backward), "gradient_bytes": float(found.gradients)}


@pytest.mark.parametrize("precision", FLOATS)
@pytest.mark.parametrize("name", NETWORKS)
def test_live_tensors_of_a_planned_step_are_those_of_pytorch(name, precision):
    """With its loss: of a language model the logits, their logarithms and two gradients are half of all."""
    import perfpass

    torchvision_schemas.define()
    model, shape, batch, loss = NETWORKS[name]()
    graph = load(model.eval(), batch=batch, input_shape=shape)
    way = Way(perfpass.device("a100"), precision, optimizer="adamw")
    plan = planned(columns(graph, model, FLOATS[precision], precision == "amp"), way)

    def inputs():
        if isinstance(shape, dict):
            return {key: torch.empty(batch, *size, dtype=torch.int64) for key, (size, _) in shape.items()}
        return (torch.empty(batch, *shape),)

    recorded = torch_memory.record(model, inputs, precision=precision, optimizer="adamw", loss=loss, loop=False)
    report = allocators.caching(recorded.events)
    assert float(plan.alive) == pytest.approx(report.peak_allocated, rel=0.07)
    assert sum(plan.parts.values()) == pytest.approx(plan.alive)


def test_a_step_of_few_samples_is_largest_in_its_update():
    """Adam's list version holds the roots of all second moments for a moment: five times the weights."""
    import perfpass

    model, _, _, loss = NETWORKS["next word"]()
    graph = load(model.eval(), batch=1, input_shape={"input_ids": ((4,), "int64")})
    sizes = columns(graph, model, "float32", False)
    weights = 4 * sizes["parameters"]
    for optimizer, times in (("sgd", 2), ("momentum", 3), ("adamw", 5)):
        plan = planned(sizes, Way(perfpass.device("a100"), "fp32", optimizer=optimizer))
        recorded = torch_memory.record(
            model, lambda: {"input_ids": torch.empty(1, 4, dtype=torch.int64)}, loss=loss,
            optimizer={"momentum": "sgd_momentum"}.get(optimizer, optimizer),
        )  # fmt: skip
        assert float(plan.alive) >= times * weights
        if optimizer == "adamw":
            assert float(plan.alive) == pytest.approx(allocators.caching(recorded.events).peak_allocated, rel=0.05)


def test_a_view_of_a_weight_is_no_activation():
    class Expanded(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.empty(64, 64))

        def forward(self, x):
            return torch.bmm(x, self.weight.expand(512, 64, 64))

    graph = load(Expanded(), batch=512, input_shape=(4, 64))
    found = saved_activations(graph)
    activation = 512 * 4 * 64 * 4
    assert found.backward <= 8 * activation
