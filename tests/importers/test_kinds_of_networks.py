"""Networks of every kind, tiny, as their libraries define them: traced, counted by hand, predicted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import perfpass
from perfpass.graph import costs
from perfpass.importers import torchvision_schemas
from perfpass.importers.definitions import definition

torchvision_schemas.define()  # before transformers' models, some of which import torchvision
D, F, V, L = 32, 64, 48, 16  # width, inner width, vocabulary, tokens
TOKENS = ((L,), "int64")


def _meta(build: Callable[[], Any]) -> Any:
    with torch.device("meta"):
        return build()


def _whisper() -> tuple[Any, Any, int]:
    configuration = transformers.WhisperConfig(
        d_model=D, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=F, decoder_ffn_dim=F, num_mel_bins=8, vocab_size=V, max_source_positions=20,
        max_target_positions=L, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip
    encoder = 20 * (4 * D * D + 2 * D * F) + 2 * 20 * 20 * D + 40 * 3 * 8 * D + 20 * 3 * D * D
    decoder = L * (6 * D * D + 2 * D * F + V * D) + 20 * 2 * D * D + 2 * L * L * D + 2 * L * 20 * D
    module = _meta(lambda: transformers.WhisperForConditionalGeneration(configuration))
    return module, {"input_features": (8, 40), "decoder_input_ids": TOKENS}, encoder + decoder


def _clip() -> tuple[Any, Any, int]:
    configuration = transformers.CLIPTextConfig(
        hidden_size=D, intermediate_size=F, num_hidden_layers=1, num_attention_heads=4, vocab_size=V, projection_dim=24
    )
    module = _meta(lambda: transformers.CLIPTextModelWithProjection(configuration))
    return module, {"input_ids": TOKENS}, L * (4 * D * D + 2 * D * F) + 2 * L * L * D + D * 24


def _conformer() -> tuple[Any, Any, int]:
    configuration = transformers.Wav2Vec2ConformerConfig(
        hidden_size=D, num_hidden_layers=1, num_attention_heads=4, intermediate_size=F, conv_dim=(8,), conv_stride=(5,),
        conv_kernel=(10,), num_feat_extract_layers=1, conv_depthwise_kernel_size=7, num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=4, position_embeddings_type="rotary",
    )  # fmt: skip
    module = _meta(lambda: transformers.Wav2Vec2ConformerModel(configuration))
    frames = (400 - 10) // 5 + 1
    feed, convolution = 2 * 2 * D * F, 2 * D * D + D * D + 7 * D
    by_hand = frames * (10 * 8 + 8 * D + feed + 4 * D * D + convolution) + 2 * frames * frames * D
    return module, {"input_values": (400,)}, by_hand


def _mamba() -> tuple[Any, Any, int]:
    configuration = transformers.MambaConfig(
        hidden_size=D, num_hidden_layers=1, vocab_size=V, state_size=4, time_step_rank=2, conv_kernel=4, expand=2
    )
    module = _meta(lambda: transformers.MambaForCausalLM(configuration))
    inner = 2 * D
    products = D * 2 * inner + inner * (2 + 2 * 4) + 2 * inner + inner * D + V * D
    return module, {"input_ids": TOKENS}, L * (products + 4 * inner + inner * 4)


class _OfEdges(torch.nn.Module):
    """A graph network on one graph: features [1, N, F] and edges [1, 2, E]."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        return self.network(x[0], edges[0])


def _graph_network() -> tuple[Any, Any, int]:
    models = pytest.importorskip("torch_geometric.nn.models")
    return _OfEdges(models.GCN(D, F, 2, 7)), ((50, D), ((2, 200), "int64")), 50 * (D * F + F * 7)


def _dlrm() -> tuple[Any, Any, int]:
    own = definition("dlrm-small")
    module, weights = own.module(), 0
    for part in module.modules():
        weights += part.weight.numel() if isinstance(part, torch.nn.Linear) else 0
    return module, own.inputs(0, 0), weights


@pytest.mark.parametrize("kind", [_whisper, _clip, _conformer, _mamba, _graph_network])
def test_a_network_of_its_library_costs_what_is_counted_by_hand(kind: Callable[[], tuple[Any, Any, int]]) -> None:
    module, shape, by_hand = kind()
    graph = perfpass.load(module, input_shape=shape)
    found = costs.count(graph).totals
    assert int(found["macs"]) == pytest.approx(by_hand, rel=0.03)
    assert not graph.unknown_operators
    for device in ("a100", "t4"):
        latency = perfpass.predict(graph, device).latency_ms
        assert 0 < latency.low < latency.median < latency.high


def test_a_recommender_s_products_are_those_of_its_layers_and_interactions() -> None:
    module, shape, weights = _dlrm()
    macs = int(costs.count(perfpass.load(module, batch=8, input_shape=shape)).totals["macs"])
    assert 8 * weights <= macs <= 8 * weights * 1.3


def test_edges_without_self_loops_are_assumed_and_said() -> None:
    module, shape, _ = _graph_network()
    assert any("self loop" in note for note in perfpass.load(module, input_shape=shape).notes)
