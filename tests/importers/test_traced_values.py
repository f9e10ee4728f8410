"""What forward passes of libraries ask while they are traced: routers' loads, masks of padding, fills, heads, sizes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from threading import Barrier
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import perfpass
from perfpass.errors import ArgumentError, UnsupportedError
from perfpass.graph import ATTRIBUTES, OpGraph, costs
from perfpass.importers import huggingface, torchvision_schemas
from perfpass.importers.model_sources import torchvision_image_model
from perfpass.importers.torch import trace
from perfpass.importers.torch_fused import FusedCalls

torchvision_schemas.define()
nn = torch.nn


def kinds(graph: Any) -> list[str]:
    return [graph.op_name(n) for n in range(graph.node_count)]


class Routed(nn.Module):
    """Splits tokens by how many each expert gets, as a list."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> Any:
        chosen = self.router(x).topk(2, dim=1).indices
        sizes = torch.zeros(x.shape[0], 4, device=x.device).scatter(1, chosen, 1).long().sum(0)
        return x.repeat(2, 1).split(sizes.tolist())


def test_a_routers_loads_are_shared_evenly_where_they_are_asked_for_as_a_list():
    graph = trace(Routed(), ((8,),), batch=16)
    split = kinds(graph).index("split")
    assert [graph.shape(int(t)) for t in graph.node_outputs(split)] == [(8, 8)] * 4
    assert [assumed.name for assumed in graph.assumed] == ["experts"]


def test_a_list_of_values_that_nothing_decides_is_refused_by_name():
    class Listed(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * sum(x.sum(0).tolist())

    with pytest.raises(UnsupportedError, match=r"tolist in the model's own forward needs the values"):
        trace(Listed(), ((3,),), batch=2)


def test_the_longest_of_unpadded_texts_is_as_long_as_the_input():
    class Checked(nn.Module):
        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            lengths = (tokens != 0).sum(dim=1).long()
            assert lengths.max().item() == tokens.shape[1]
            return nn.functional.one_hot(tokens, 5)

    graph = trace(Checked(), ((7,), "int64"), batch=2)
    assert "nothing of the input is assumed to be padded" in graph.notes


def test_a_fill_by_a_scalar_of_the_host_is_traced():
    class Filled(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.masked_fill(x > 0, torch.tensor(float("-inf"), device="cpu"))

    assert trace(Filled(), (3,)).node_count == 2


class Heads(nn.Module):
    """Attention of torch's own layer, of an input to itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x, x, x, need_weights=False)[0]


@pytest.mark.parametrize("default", [None, "meta"], ids=["no default device", "default device"])
def test_heads_of_torchs_own_layer_are_one_attention(default: str | None):
    module = Heads()
    with torch.device(default) if default else nullcontext():
        graph = trace(module, (10, 16))
    assert kinds(graph).count("attention") == 1 and "softmax" not in kinds(graph)
    assert costs.count(graph).totals["macs"] == 10 * 4 * 16 * 16 + 2 * 10 * 10 * 16


@pytest.mark.parametrize("batch", [1, 3])
def test_heads_of_torchs_own_layer_move_no_more_than_timms(batch: int):
    """In inference PyTorch runs them in a kernel of its own, which copies nothing around the attention."""
    from timm.layers import Attention

    class Timms(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = Attention(16, 4, qkv_bias=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x)

    ours, timms = (trace(module, (10, 16), batch=batch) for module in (Heads(), Timms()))

    def moved(graph: OpGraph) -> list[tuple[str, int]]:
        counted, view = costs.count(graph), graph.attributes[:, ATTRIBUTES.index("view")]
        read = zip(kinds(graph), counted.bytes_read, view, strict=True)
        return [(kind, int(size)) for kind, size, is_view in read if not is_view]

    assert moved(ours) == moved(timms) and len(moved(ours)) == 3


@pytest.mark.parametrize(
    "layer",
    [nn.MultiheadAttention(15, 3, batch_first=True), nn.MultiheadAttention(16, 4, batch_first=False)],
    ids=["an odd number of heads", "the batch in the second place"],
)
def test_heads_that_torchs_kernel_refuses_keep_their_copies(layer: nn.MultiheadAttention):
    module = Heads()
    module.layer = layer
    copies = kinds(trace(module, (10, layer.embed_dim), batch=3)).count("copy")
    assert copies >= 1 and kinds(trace(Heads(), (10, 16), batch=3)).count("copy") == 0


def test_torchs_functions_are_its_own_while_two_threads_trace(monkeypatch):
    def now() -> Any:
        return nn.functional.scaled_dot_product_attention

    seen: list[Any] = []
    both = Barrier(2, action=lambda: seen.append(now()), timeout=60)
    attention = FusedCalls._attention

    def waiting(self: FusedCalls, *args: Any, **kwargs: Any) -> Any:
        both.wait()
        return attention(self, *args, **kwargs)

    monkeypatch.setattr(FusedCalls, "_attention", waiting)
    with ThreadPoolExecutor(2) as pool:
        graphs = list(pool.map(lambda length: trace(Heads(), (length, 16)), (10, 12)))
    assert [*seen, now()] == [torch._C._nn.scaled_dot_product_attention] * 2
    assert [kinds(graph).count("attention") for graph in graphs] == [1, 1]
    assert [graph.shape(int(graph.graph_inputs[0])) for graph in graphs] == [(1, 10, 16), (1, 12, 16)]


@pytest.mark.parametrize(
    ("name", "shape"),
    [("r3d_18", (3, 16, 112, 112)), ("raft_small", ((3, 520, 960), (3, 520, 960))), ("resnet18", (3, 224, 224))],
)
def test_torchvisions_models_read_what_they_were_made_for(name: str, shape: Any):
    assert torchvision_image_model(name)[1] == shape


def test_a_film_by_name_is_read():
    graph = perfpass.load("torchvision:mc3_18")
    assert graph.shape(int(graph.graph_inputs[0])) == (1, 3, 16, 112, 112)


@pytest.mark.parametrize(
    ("content", "main"),
    [
        ({"model_type": "speech_to_text", "encoder_layers": 1, "decoder_layers": 1}, (1, 128, 80)),
        ({"model_type": "clip_text_model", "num_hidden_layers": 1}, (1, 77)),
        ({"model_type": "funnel", "block_sizes": [1, 1]}, (1, 128)),
    ],
    ids=lambda value: value["model_type"] if isinstance(value, dict) else "",
)
def test_families_are_read_at_inputs_of_their_own_form(content: dict[str, Any], main: tuple[int, ...]):
    graph = huggingface.trace_config(content)
    assert graph.shape(int(graph.graph_inputs[0])) == main


@pytest.mark.parametrize("kind", ["clip_text_model", "clip"])
def test_a_text_encoder_is_read_up_to_its_longest_text(kind: str):
    few = {"num_hidden_layers": 1}
    content: dict[str, Any] = {"model_type": kind, **(few if kind != "clip" else {"text_config": few})}
    graph = huggingface.trace_config(content, sequence_length=77)
    assert (1, 77) in [graph.shape(int(t)) for t in graph.graph_inputs]
    with pytest.raises(ArgumentError, match=f"{kind} reads at most 77 tokens; sequence_length = 78"):
        huggingface.trace_config(content, sequence_length=78)
