"""Networks whose shapes depend on values: mixtures of experts and detectors, read at a stated load."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import perfpass
from perfpass.errors import ArgumentError, UnsupportedError
from perfpass.graph import costs
from perfpass.importers import torchvision_schemas
from perfpass.importers.torch import trace
from perfpass.importers.torch_recorder import Recorder

torchvision_schemas.define()  # before transformers' models, some of which import torchvision
WIDTH, INNER, EXPERTS, CHOSEN = 32, 48, 8, 2


def _macs(graph: perfpass.OpGraph) -> int:
    return int(costs.count(graph).totals["macs"])


def _nodes(graph: perfpass.OpGraph, operator: str) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """First input's and output's shape of every node of an operator."""
    found = [n for n in range(graph.node_count) if graph.op_name(n) == operator]
    return [(graph.shape(int(graph.node_inputs(n)[0])), graph.shape(int(graph.node_outputs(n)[0]))) for n in found]


def _mixtral(how: str) -> torch.nn.Module:
    configuration = transformers.MixtralConfig(
        hidden_size=WIDTH, intermediate_size=INNER, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=64, num_local_experts=EXPERTS, num_experts_per_tok=CHOSEN, experts_implementation=how,
    )  # fmt: skip
    with torch.device("meta"):
        return transformers.MixtralForCausalLM(configuration)


def _read(module: torch.nn.Module, tokens: int, **assume: int) -> perfpass.OpGraph:
    return trace(module, {"input_ids": ((tokens,), "int64")}, assume=assume)


def test_a_mixture_costs_what_its_chosen_experts_cost_however_it_is_written() -> None:
    tokens = 24
    attention = 2 * WIDTH * WIDTH + 2 * WIDTH * WIDTH // 2 + 2 * tokens * WIDTH
    by_hand = tokens * (attention + EXPERTS * WIDTH + CHOSEN * 3 * WIDTH * INNER + WIDTH * 64)
    for how in ("eager", "grouped_mm"):
        found = _read(_mixtral(how), tokens)
        assert _macs(found) == pytest.approx(by_hand, rel=0.01), how
        (assumed,) = found.assumed
        assert (assumed.name, assumed.value, assumed.of, assumed.stated) == ("experts", EXPERTS, EXPERTS, False)


def test_few_tokens_read_few_experts() -> None:
    for tokens, read in ((1, 2), (3, 6), (4, 8), (24, 8)):
        found = _read(_mixtral("grouped_mm"), tokens)
        products = [n for n in range(found.node_count) if found.source_op_name(n) == "aten._grouped_mm"]
        assert [found.shape(int(found.node_inputs(n)[1]))[0] for n in products] == [read, read]
        assert costs.count(found).totals["parameters"] == costs.count(_read(_mixtral("eager"), 1)).totals["parameters"]
    assert _read(_mixtral("eager"), 1).assumed[0].exact


def test_a_stated_load_is_the_graph_s() -> None:
    module = _mixtral("eager")
    few, all_of_them = _read(module, 24, experts=2), _read(module, 24)
    assert _macs(few) == pytest.approx(_macs(all_of_them), rel=0.01)
    assert [out for _, out in _nodes(few, "non_zero")] == [(2, 1), (24, 2), (24, 2)]
    assert [out for _, out in _nodes(all_of_them, "non_zero")] == [(8, 1), *[(6, 2)] * 8]


def test_switch_calls_its_experts_by_name() -> None:
    configuration = transformers.SwitchTransformersConfig(
        d_model=WIDTH, d_kv=8, d_ff=INNER, num_layers=1, num_decoder_layers=1, num_heads=4, num_experts=EXPERTS,
        num_sparse_encoder_layers=1, num_sparse_decoder_layers=1, vocab_size=64,
    )  # fmt: skip
    with torch.device("meta"):
        module = transformers.SwitchTransformersForConditionalGeneration(configuration)
    shapes = {"input_ids": ((24,), "int64"), "decoder_input_ids": ((24,), "int64")}
    found = trace(module, shapes)
    labels = " ".join(found.label(n) for n in range(found.node_count))
    assert all(f"encoder.block.0.layer.1.mlp.experts.expert_{i}." in labels for i in range(EXPERTS))
    products = [out for name, out in _nodes(found, "dense") if out[-1] == INNER]
    assert products == [(3, INNER)] * 2 * EXPERTS


class _Loop(torch.nn.Module):
    """A mixture as it is written by hand: a mask for every expert."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = torch.nn.Linear(WIDTH, EXPERTS)
        self.experts = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(EXPERTS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chosen = self.gate(x).argmax(-1)
        out = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            mask = chosen == index
            if mask.any():
                out[mask] = expert(x[mask])
        return out


def test_masks_of_a_choice_are_as_long_as_their_share() -> None:
    found = trace(_Loop(), (WIDTH,), batch=20)
    assert [out for _, out in _nodes(found, "dense")[1:]] == [(n, WIDTH) for n in (3, 3, 3, 3, 2, 2, 2, 2)]


@settings(max_examples=40, deadline=None)
@given(tokens=st.integers(1, 40), of=st.integers(1, 16), chosen=st.integers(1, 4))
def test_tokens_are_shared_evenly(tokens: int, of: int, chosen: int) -> None:
    chosen = min(chosen, of)
    with Recorder() as recorder:
        _, index = torch.empty(tokens, of, device="meta").topk(chosen, -1)
    values = recorder.values.of(index)
    counts = values.flatten().bincount(minlength=of)
    assert int(counts.max() - counts.min()) <= 1 and int(counts.sum()) == tokens * chosen
    assert all(len(set(row)) == chosen for row in values.tolist())


def test_values_follow_what_the_program_writes() -> None:
    with Recorder() as recorder:
        x = torch.zeros(2, 5, dtype=torch.int64, device="meta")
        x.scatter_(1, torch.arange(2, device="meta").reshape(2, 1), 7)
        written = torch.ones(3, device="meta")
        written[0] = torch.empty(4, device="meta").sum()
        twice = x.t() + 1
    assert recorder.values.of(twice).tolist() == [[8, 1], [1, 8], [1, 1], [1, 1], [1, 1]]
    assert recorder.values.of(written) is None


def test_what_no_load_explains_is_refused() -> None:
    class Padding(torch.nn.Module):
        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return tokens[tokens == 0]

    with pytest.raises(UnsupportedError, match="needs the values of tensors"):
        trace(Padding(), {"tokens": ((8,), "int64")})


def _detector(name: str = "fasterrcnn_resnet50_fpn") -> torch.nn.Module:
    from perfpass.importers.model_sources import torchvision

    return torchvision(name)


@pytest.mark.parametrize(
    ("name", "published"),  # GFLOPS of torchvision's documentation (multiplications with additions), at 800 x 800
    [("fasterrcnn_resnet50_fpn", 134.38), ("retinanet_resnet50_fpn", 151.54), ("fcos_resnet50_fpn", 128.21)],
)
def test_detectors_cost_what_is_published(name: str, published: float) -> None:
    assert _macs(trace(_detector(name), (3, 800, 800))) / 1e9 == pytest.approx(published, rel=0.001)


def test_masks_are_made_for_as_many_detections_as_are_stated() -> None:
    module = _detector("maskrcnn_resnet50_fpn")
    found = {n: trace(module, (3, 320, 320), assume={"detections": n}) for n in (4, 12)}
    # A detection's mask: four convolutions of 256 channels at 14 x 14, one transposed, one to 91 classes at 28 x 28.
    each = 256 * 14 * 14 * (4 * 256 * 9 + 256 * 4) + 28 * 28 * 256 * 91
    assert _macs(found[12]) - _macs(found[4]) == pytest.approx(8 * each, rel=0.01)
    assert all(a.stated and a.value == n for n, graph in found.items() for a in graph.assumed)


def test_a_load_that_is_not_stated_widens_the_interval_and_is_named() -> None:
    module, shape = _mixtral("eager"), {"input_ids": ((24,), "int64")}
    plain = perfpass.predict(module, "a100", input_shape=shape)
    stated = perfpass.predict(module, "a100", input_shape=shape, assume={"experts": EXPERTS})
    fewer = perfpass.predict(module, "a100", input_shape=shape, assume={"experts": EXPERTS // 2})
    assert plain.latency_ms.median == stated.latency_ms.median > fewer.latency_ms.median
    assert plain.latency_ms.low < min(stated.latency_ms.low, fewer.latency_ms.median)
    assert plain.latency_ms.high == stated.latency_ms.high
    assert any("8 of 8 experts; 4 to 8 are usual" in reason for reason in plain.support.reasons)
    assert any(reason.endswith("as stated") for reason in stated.support.reasons)


@pytest.mark.parametrize("assume", [{"experts": 9}, {"experts": 1}, {"detections": 3}, {"experts": 0}, {"boxes": 2}, 5])
def test_a_load_that_the_model_cannot_have_is_refused(assume: object) -> None:
    with pytest.raises(ArgumentError):
        perfpass.load(_mixtral("eager"), input_shape={"input_ids": ((24,), "int64")}, assume=assume)
