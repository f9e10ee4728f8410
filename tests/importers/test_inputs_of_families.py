"""What families of transformers read where nobody says, and what their shapes follow from beyond their inputs."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

import perfpass
from perfpass.errors import ArgumentError, FormatError, UnsupportedError
from perfpass.graph import OpGraph, costs
from perfpass.importers import huggingface
from perfpass.importers.torch import trace
from perfpass.importers.torch_shapes import Shapes

nn = torch.nn
ONE = {"num_hidden_layers": 1}
TEXT_AND_PICTURE = {"text_config": ONE, "vision_config": ONE}
IDEFICS = {"model_type": "idefics", "architectures": ["IdeficsForVisionText2Text"], "vocab_size": 500, **ONE}
IDEFICS |= {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128, "vision_config": ONE}
MUSICGEN = {"model_type": "musicgen_decoder", "architectures": ["MusicgenForCausalLM"], **ONE}
ENCODEC = {"model_type": "encodec", "num_filters": 4, "hidden_size": 16, "codebook_size": 32, "num_lstm_layers": 1}
VITS = {"model_type": "vits", "num_hidden_layers": 1, "hidden_size": 32, "ffn_dim": 32, "flow_size": 32}
VITS |= {"spectrogram_bins": 33, "upsample_initial_channel": 32, "prior_encoder_num_wavenet_layers": 1}
VITS |= {"duration_predictor_num_flows": 2, "prior_encoder_num_flows": 1, "posterior_encoder_num_wavenet_layers": 1}


def shapes(graph: OpGraph) -> dict[str, tuple[int, ...]]:
    return {graph.string(int(graph.tensor_name[t])): graph.shape(int(t)) for t in graph.graph_inputs}


@pytest.mark.parametrize(
    ("content", "read"),
    [
        ({"model_type": "xclip", **TEXT_AND_PICTURE}, {"input_ids": (1, 77), "pixel_values": (1, 8, 3, 224, 224)}),
        ({"model_type": "vilt", **ONE}, {"input_ids": (1, 40), "pixel_values": (1, 3, 384, 384)}),
        (
            {
                "model_type": "seggpt",
                "num_hidden_layers": 2,
                "merge_index": 0,
                "intermediate_hidden_state_indices": [1],
            },
            {"pixel_values": (1, 3, 448, 448), "prompt_masks": (1, 3, 448, 448)},
        ),
        (
            {"model_type": "siglip2", **TEXT_AND_PICTURE},
            {"input_ids": (1, 64), "pixel_values": (1, 256, 768), "pixel_attention_mask": (1, 256)},
        ),
        (
            {"model_type": "pix2struct", "text_config": {"num_layers": 1}, "vision_config": ONE},
            {"flattened_patches": (1, 2048, 770), "decoder_input_ids": (1, 128)},
        ),
        (
            {"model_type": "kosmos-2", "text_config": {"layers": 1}, "vision_config": ONE},
            {"input_ids": (1, 64 + 128), "pixel_values": (1, 3, 224, 224)},
        ),
        (IDEFICS, {"input_ids": (1, 128), "pixel_values": (1, 1, 3, 224, 224), "image_attention_mask": (1, 128, 1)}),
        (MUSICGEN, {"input": (1, 4, 128)}),
    ],
    ids=lambda value: value.get("model_type", ""),
)
def test_a_family_is_read_at_what_its_forward_pass_asks_for(content: dict[str, Any], read: dict[str, Any]) -> None:
    graph = huggingface.trace_config(content)
    found = shapes(graph)
    assert len(found) >= len(read)
    if len(found) == 1:
        assert [*found.values()] == [*read.values()]
    else:
        assert {name: found.get(name) for name in read} == read
    assert not graph.unknown_operators


def test_a_text_longer_than_the_table_of_positions_is_refused_by_its_length() -> None:
    with pytest.raises(ArgumentError, match="vilt reads at most 40 tokens; sequence_length = 41"):
        huggingface.trace_config({"model_type": "vilt", **ONE}, sequence_length=41)


def test_a_decoder_of_codebooks_decodes_a_token_of_each() -> None:
    graph = huggingface.trace_config(MUSICGEN, mode="decode")
    assert (1, 4, 1) in shapes(graph).values()


def test_a_decoder_that_reads_pictures_too_says_what_to_decode_instead() -> None:
    with pytest.raises(UnsupportedError, match="idefics reads pictures beside tokens; its decode is that of its text"):
        huggingface.trace_config(IDEFICS, mode="decode")


def _macs(graph: OpGraph) -> int:
    return int(costs.count(graph).totals["macs"])


def test_paddings_kept_as_tensors_are_followed_from_a_configuration_and_from_a_module() -> None:
    model = transformers.EncodecModel(transformers.EncodecConfig(**{k: v for k, v in ENCODEC.items() if k[0] != "m"}))
    sound = torch.zeros(1, 1, 320 * 2 + 7)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        out = model.eval()(sound).audio_values
    given = trace(model, (1, sound.shape[-1]))
    assert out.shape in [given.shape(int(t)) for t in given.graph_outputs]
    configured = huggingface.trace_config(ENCODEC, sequence_length=2)
    even = trace(model, (1, 640))
    assert _macs(configured) == _macs(even)
    recurrent = sum(int(m) for n, m in enumerate(costs.count(given).macs) if given.op_name(n) == "lstm")
    assert _macs(given) - recurrent == counter.get_total_flops() // 2 - _products_of_lstms(counter)
    assert int(model.encoder.layers[0].padding_total) == 6  # the module is left as it was


def _products_of_lstms(counter: FlopCounterMode) -> int:
    """MACs that torch counts of an LSTM on a CPU, which it takes apart into products."""
    return sum(
        flops // 2
        for place, kinds in counter.get_flop_counts().items()
        if place.endswith(".lstm")
        for flops in kinds.values()
    )


def test_speech_lasts_as_many_frames_a_token_as_are_stated() -> None:
    def samples(graph: OpGraph) -> int:
        return max(graph.shape(int(t))[-1] for t in graph.graph_outputs)

    usual = huggingface.trace_config(VITS, sequence_length=10)
    longer = huggingface.trace_config(VITS, sequence_length=10, assume={"frames": 5})
    hop = 256  # of VITS's published configuration, 8 * 8 * 2 * 2
    assert (samples(usual), samples(longer)) == (10 * 2 * hop, 10 * 5 * hop)
    assert [(a.name, a.value, a.least, a.most, a.stated) for a in usual.assumed] == [("frames", 2, 1, 8, False)]
    assert "a token of the text is spoken for 5 frames of sound, as stated" in [a.sentence() for a in longer.assumed]


def test_the_interval_of_speech_holds_the_durations_that_are_usual() -> None:
    found = perfpass.predict(VITS, device="a100-80gb")
    assert any("spoken for 2 frames" in reason for reason in found.support.reasons)
    assert found.latency_ms.high > perfpass.predict(VITS, device="a100-80gb", assume={"frames": 8}).latency_ms.median


def test_points_are_found_as_many_as_are_stated() -> None:
    content = {"model_type": "superpoint", "encoder_hidden_sizes": [8, 8, 8, 8], "decoder_hidden_size": 16}
    graph = huggingface.trace_config(content, assume={"detections": 37})
    assert {(1, 37, 2), (1, 37), (1, 37, 256)} <= {graph.shape(int(t)) for t in graph.graph_outputs}


def test_a_triangular_solve_costs_half_of_the_product() -> None:
    class Solved(nn.Module):
        def forward(self, system: Any, sides: Any) -> Any:
            return torch.linalg.solve_triangular(system, sides, upper=False, unitriangular=True)

    graph = trace(Solved(), ((6, 32, 32), (6, 32, 8)), batch=2)
    counted = costs.count(graph).totals
    assert not graph.unknown_operators
    assert counted["macs"] == 2 * 6 * 8 * 32 * 16  # N (N + 1) / 2 a column, of even N rounded down
    assert counted["bytes_written"] == 2 * 6 * 32 * 8 * 4


def test_distances_between_rows_are_a_product() -> None:
    class Nearest(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.codes = nn.Parameter(torch.zeros(1, 50, 16))

        def forward(self, x: Any) -> Any:
            return torch.cdist(x, self.codes).argmin(-1)

    assert _macs(trace(Nearest(), (40, 16))) == 40 * 50 * 16


class Spline(nn.Module):
    """What lies within an interval goes one way, the rest is left as it is."""

    def __init__(self, both: bool) -> None:
        super().__init__()
        self.both = both

    def forward(self, x: Any) -> Any:
        inside = (x >= -5.0) & (x <= 5.0) if self.both else x <= 5.0
        return x[inside].exp(), x[~inside]


def test_values_lie_in_an_interval_around_zero_and_it_is_said() -> None:
    graph = trace(Spline(True), (3, 7), batch=2)
    assert [graph.shape(int(t)) for t in graph.graph_outputs] == [(42,), (0,)]
    assert any("lie in an interval around zero" in note for note in graph.notes)
    with pytest.raises(UnsupportedError, match="index in the model's own forward needs the values"):
        trace(Spline(False), (3, 7), batch=2)


_CALLS = {
    "add": lambda x, y: (torch.ops.aten.add.Tensor, (x, y), {"alpha": 2}),
    "maximum": lambda x, y: (torch.ops.aten.maximum.default, (x, y), {}),
    "less": lambda x, y: (torch.ops.aten.lt.Tensor, (x, y), {}),
    "scaled": lambda x, y: (torch.ops.aten.mul.Tensor, (x, 2), {}),
    "halved": lambda x, y: (torch.ops.aten.mul.Tensor, (x, 0.5), {}),
    "joined": lambda x, y: (torch.ops.aten.cat.default, ([x, x], 0), {}),
    "cloned": lambda x, y: (torch.ops.aten.clone.default, (x,), {"memory_format": torch.contiguous_format}),
    "cast": lambda x, y: (torch.ops.aten._to_copy.default, (x,), {"dtype": torch.float16}),
    "summed": lambda x, y: (torch.ops.aten.sum.dim_IntList, (x, [0]), {"keepdim": True}),
}
_META = st.builds(
    lambda shape, kind, turned: (
        torch.empty(shape, dtype=kind, device="meta").t() if turned else torch.empty(shape, dtype=kind, device="meta")
    ),
    st.sampled_from([(3, 4), (4, 3), (1, 4), (3, 1), (4, 4)]),
    st.sampled_from([torch.float32, torch.float16, torch.int64, torch.bool]),
    st.booleans(),
)


@given(st.lists(st.tuples(st.sampled_from(sorted(_CALLS)), _META, _META), max_size=12))
@settings(max_examples=60, deadline=None)
def test_shapes_of_repeated_calls_are_those_of_the_operator(calls: list[tuple[str, Any, Any]]) -> None:
    shapes = Shapes()
    for name, x, y in [*calls, *calls]:
        func, args, kwargs = _CALLS[name](x, y)
        try:
            wanted = func(*args, **kwargs)
        except (RuntimeError, NotImplementedError):
            with pytest.raises((RuntimeError, NotImplementedError)):
                shapes.run(func, args, kwargs)
            continue
        found = shapes.run(func, args, kwargs)
        assert (found.shape, found.stride(), found.dtype) == (wanted.shape, wanted.stride(), wanted.dtype)
        assert found.device == wanted.device and found is not x


def test_a_view_and_a_write_are_never_taken_from_before() -> None:
    shapes, x = Shapes(), torch.empty(3, 4, device="meta")
    for func, args in ((torch.ops.aten.t.default, (x,)), (torch.ops.aten.add_.Tensor, (x, x))):
        for _ in range(2):
            assert shapes.run(func, args, {}).untyped_storage()._cdata == x.untyped_storage()._cdata


def test_a_picture_of_three_sizes_is_refused() -> None:
    content = {"model_type": "vit", "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 32, **ONE}
    with pytest.raises(FormatError, match=r"image_size is \[32, 32, 32\]; one size or \[height, width\]"):
        perfpass.load({**content, "image_size": [32, 32, 32]})
