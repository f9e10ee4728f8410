"""The layers of a TensorRT engine, by the form of NVIDIA's documentation (IEngineInspector, detailed verbosity)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfpass
from perfpass import _core
from perfpass.errors import FormatError, PerfPassError, ShapeError, UnsupportedError
from perfpass.graph import OpGraph, costs
from perfpass.importers.formats import tensorrt


def tensor(name: str, *dims: int, form: str = "Channel major FP16 format where channel % 8 == 0") -> dict[str, Any]:
    return {"Name": name, "Location": "Device", "Dimensions": list(dims), "Format/Datatype": form}


def convolution(name: str, given: list[dict], made: dict, maps: int, each: int, kind: str = "Half") -> dict[str, Any]:
    return {
        "Name": name,
        "LayerType": "CaskConvolution",
        "Inputs": given,
        "Outputs": [made],
        "ParameterType": "Convolution",
        "Kernel": [3, 3],
        "PaddingMode": "kEXPLICIT_ROUND_DOWN",
        "PrePadding": [1, 1],
        "PostPadding": [1, 1],
        "Stride": [1, 1],
        "Dilation": [1, 1],
        "OutMaps": maps,
        "Groups": 1,
        "Weights": {"Type": kind, "Count": maps * each * 9},
        "Bias": {"Type": "Half", "Count": maps},
        "HasSparseWeights": 0,
        "Activation": "RELU",
        "TacticName": "sm80_xmma_fprop_implicit_gemm_f16f16_f16f16_f16_nhwckrsc_nhwc_tilesize128x64x32_stage3",
        "TacticValue": "0x5aae75044fb5e39d",
    }


def layer(name: str, kind: str, given: list[dict], made: dict, **more: Any) -> dict[str, Any]:
    return {"Name": name, "LayerType": kind, "Inputs": given, "Outputs": [made], "ParameterType": kind} | more


IMAGE, LAST = (
    tensor("image", 2, 3, 32, 32, form="Row major linear FP32"),
    tensor("scores", 2, 10, form="Row major linear FP32"),
)
HALF, A = tensor("image_half", 2, 3, 32, 32), tensor("a", 2, 16, 32, 32)
BOTH = tensor("both", 2, 32, 32, 32)
LAYERS = [
    layer("Reformatting CopyNode for Input Tensor 0", "Reformat", [IMAGE], HALF, Origin="REFORMAT"),
    convolution("/conv1/Conv + /relu/Relu", [HALF], A, 16, 3),
    convolution("/left/Conv", [A], tensor("both", 2, 16, 32, 32), 16, 16),
    convolution("/right/Conv + /right/Relu", [A], tensor("both", 2, 16, 32, 32), 16, 16, "Int8"),
    layer(
        "/pool/MaxPool",
        "CaskPooling",
        [BOTH],
        tensor("pooled", 2, 32, 1, 1),
        ParameterType="Pooling",
        PoolingType="AVERAGE",
        WindowSize=[32, 32],
        Stride=[1, 1],
    ),
    layer("/my/Plugin", "PluginV2", [tensor("pooled", 2, 32, 1, 1)], tensor("own", 2, 32), PluginType="Own"),
    layer(
        "/head/MatMul",
        "MatrixMultiply",
        [tensor("own", 2, 32), tensor("weight", 32, 10)],
        LAST,
        OpA="NONE",
        OpB="NONE",
    ),
]


def written(tmp_path: Path, layers: list[Any]) -> Path:
    path = tmp_path / "layers.json"
    path.write_text(json.dumps({"Layers": layers, "Bindings": ["image", "scores"]}))
    return path


def test_fused_layers_are_one_operator_each_with_the_weights_that_the_engine_counts(tmp_path: Path) -> None:
    graph = perfpass.load(written(tmp_path, LAYERS))
    kinds = [graph.op_name(n) for n in range(graph.node_count)]
    assert kinds == ["cast", "conv", "conv", "quantized_conv", "concat", "avg_pool", "unknown", "matmul"]
    counted = costs.count(graph)
    places = 2 * 32 * 32
    assert counted.totals["macs"] == places * 9 * (16 * 3 + 2 * 16 * 16) + 2 * 32 * 10
    assert counted.totals["parameters"] == 9 * (16 * 3 + 2 * 16 * 16) + 3 * 16
    assert graph.unknown_operators == {"PluginV2": 1}
    assert [i.name for i in perfpass.importers.formats.named("tensorrt").inputs(tmp_path / "layers.json")] == [
        "image",
        "weight",
    ]


def test_an_engine_predicts(tmp_path: Path) -> None:
    found = perfpass.predict(written(tmp_path, LAYERS), device="A100", runtime="tensorrt", precision="fp16")
    assert 0 < found.latency_ms.low <= found.latency_ms.median <= found.latency_ms.high


def test_names_alone_are_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="profilingVerbosity=detailed"):
        perfpass.load(written(tmp_path, ["/conv1/Conv + /relu/Relu", "/head/MatMul"]))


def test_sizes_of_a_range_are_asked_for_when_the_file_is_written(tmp_path: Path) -> None:
    open_image = {**IMAGE, "Dimensions": [-1, 3, 32, 32], "Format/Datatype": "N/A due to dynamic shapes"}
    with pytest.raises(ShapeError, match="trtexec --shapes"):
        perfpass.load(written(tmp_path, [{**LAYERS[0], "Inputs": [open_image]}, *LAYERS[1:]]))


def test_half_a_character_in_a_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="half a character"):
        perfpass.load(written(tmp_path, [{**LAYERS[0], "Name": "\ud800"}, *LAYERS[1:]]))


def test_weights_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    wrong = {**LAYERS[1], "Weights": {"Type": "Half", "Count": 431}}
    with pytest.raises(FormatError, match="431 weights"):
        perfpass.load(written(tmp_path, [LAYERS[0], wrong, *LAYERS[2:]]))


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_damage_is_one_of_our_errors(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    layers = json.loads(json.dumps(LAYERS))
    values = st.one_of(
        st.none(), st.integers(-(2**70), 2**70), st.text(max_size=5), st.just([]), st.just({}), st.just([-1])
    )
    one = data.draw(st.sampled_from(layers))
    key = data.draw(st.sampled_from(sorted(one)))
    if key in ("Inputs", "Outputs") and data.draw(st.booleans()):
        one = one[key][0]
        key = data.draw(st.sampled_from(sorted(one)))
    one[key] = data.draw(values)
    path = written(tmp_path_factory.mktemp("damaged"), layers)
    for batch in (None, 4):
        try:
            perfpass.load(path, batch=batch)
        except PerfPassError as error:
            assert str(error)


def test_an_engine_itself_is_refused_with_what_to_give_instead(tmp_path):
    path = tmp_path / "resnet50.engine"
    path.write_bytes(b"ftrt" + bytes(60))
    with pytest.raises(UnsupportedError, match=r"resnet50\.engine: .*--exportLayerInfo"):
        perfpass.load(path)


def twins(content: bytes) -> tuple[OpGraph | None, OpGraph | PerfPassError]:
    """An engine whose layers that are alike are lowered once, and one with each lowered by itself."""
    quick = tensorrt._repeated(content)
    try:
        return quick, tensorrt._Reading(content, Path("layers.json")).graph()
    except PerfPassError as error:
        return quick, error


def held(graph: OpGraph) -> dict[str, object]:
    """All that a graph holds, numbers of texts aside."""
    columns: tuple[str, ...] = ("op", "attributes", "repeat", "input_offset", "inputs", "output_offset", "outputs")
    columns += ("tensor_dtype", "tensor_role", "shape_offset", "dims", "graph_inputs", "graph_outputs")
    found: dict[str, object] = {name: getattr(graph.core, name).tolist() for name in columns}
    for name in ("tensor_name", "node_name", "source_op"):
        found[name] = [graph.string(int(i)) for i in getattr(graph.core, name)]
    return found


def test_layers_that_are_alike_are_lowered_once_and_as_if_each_were() -> None:
    half = tensor("last0", 2, 16, 32, 32)
    layers = [convolution("first", [HALF], half, 16, 3)]
    for i in range(20):
        made, summed = tensor(f"made{i}", 2, 16, 32, 32), tensor(f"last{i + 1}", 2, 16, 32, 32)
        layers.append(convolution(f"conv{i}", [half], made, 16, 16, "Int8" if i % 5 == 0 else "Half"))
        layers.append(layer(f"sum{i}", "ElementWise", [made, half], summed, Operation="kSUM", TacticValue=str(i)))
        half = summed
    content = json.dumps({"Layers": layers, "Bindings": []}).encode()
    quick, plain = twins(content)
    assert quick is not None and isinstance(plain, OpGraph) and held(quick) == held(plain)
    asked: list[str] = []

    def lowered(said: str, *shapes: object) -> tuple[str, str, dict[str, int], list[object]]:
        asked.append(said)
        return "add", "Sum", {}, []

    assert _core.read_engine_layers(content, list(tensorrt._MEMBERS), tensorrt._dtype, lowered) is not None
    assert len(asked) == 4  # the first, of two types of weights one each, the sum


def test_what_layers_write_side_by_side_is_joined_alike() -> None:
    quick, plain = twins(json.dumps({"Layers": LAYERS}).encode())
    assert quick is not None and isinstance(plain, OpGraph) and held(quick) == held(plain)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_whatever_is_read_alike_is_what_a_parser_gives(data: st.DataObject) -> None:
    layers = json.loads(json.dumps(LAYERS))
    one = data.draw(st.sampled_from(layers))
    key = data.draw(st.sampled_from([*sorted(one), "Metadata", "Name", "Outputs"]))
    if key in ("Inputs", "Outputs") and data.draw(st.booleans()):
        one = one[key][0]
        key = data.draw(st.sampled_from(sorted(one)))
    one[key] = data.draw(_JSON)
    content = bytearray(json.dumps({"Layers": layers, "Bindings": data.draw(_JSON)}).encode())
    for _ in range(data.draw(st.integers(0, 2))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(
            st.sampled_from(b'{}[]",:\\u0e+-.1 \n\tNntf\x00\x1f\x80') | st.integers(0, 255)
        )
    quick, plain = twins(bytes(content))
    if quick is not None:
        assert isinstance(plain, OpGraph) and held(quick) == held(plain)


@pytest.mark.parametrize(
    "text",
    [
        '{"Layers": %s, "Layers": []}',
        '{"Layers": %s} ,',
        '{"Layers": %s, "a": NaN}',
        '{"Layers": %s, "a": 01}',
        '{"Layers": %s, "a": 1.}',
        '{"Layers": %s, "a": "\t"}',
        '{"Layers": %s, "a": "\\x"}',
        '{"Layers": %s, "a": "\\ud800"}',
        '{"Layers": %s, "a": {"b": 1, "b": 2}}',
        '{"Layers": %s, "a": ' + 40 * "[" + 40 * "]" + "}",
        '{"Layers": %s, "a": é}',
    ],
)
def test_unusual_json_is_left_to_the_parser(text: str) -> None:
    assert tensorrt._repeated((text % json.dumps(LAYERS)).encode()) is None
