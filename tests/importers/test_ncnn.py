"""NCNN's .param files: layers, shapes by rules, both forms, damage."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfpass
from perfpass.errors import FormatError, PerfPassError, ShapeError, UnsupportedError
from perfpass.graph import costs
from perfpass.importers import formats
from perfpass.importers.formats.ncnn import param

FILES = Path(__file__).parent / "files" / "ncnn"
# Shape of the input, MACs (those of torch's counter, or of the layers by hand) and parameters; pnnx folds batch norms
# into the convolutions before them, so that parameters are those of the module less three vectors of four.
COUNTED = {
    "resnet18": ((1, 3, 224, 224), 1_814_073_344, 11_684_712),
    "mobilenet_v3_small": ((1, 3, 224, 224), 56_510_400, 2_536_800),
    "lstm": ((1, 20, 64), 20 * (2 * 192 * (64 + 48)) + 20 * 96 * 10, 44_362),
    "gru": ((1, 20, 64), 20 * (2 * 144 * (64 + 48)) + 20 * 96 * 10, 33_610),
    "up": ((1, 3, 64, 64), 3_915_776, 13_564),
    "block": ((1, 24), 24 * 64 * (4 * 64 + 2 * 256) + 2 * 24 * 24 * 64, 113_856),
}


def path(name: str) -> Path:
    return FILES / f"{name}.ncnn.param"


@pytest.mark.parametrize("name", COUNTED)
def test_macs_and_parameters_of_files_that_pnnx_wrote(name: str) -> None:
    shape, macs, parameters = COUNTED[name]
    graph = perfpass.load(path(name), input_shape={"in0": shape})
    totals = costs.count(graph).totals
    assert (totals["macs"], totals["parameters"]) == (macs, parameters)
    assert not graph.unknown_operators
    many = costs.count(perfpass.load(path(name), input_shape={"in0": (5, *shape[1:])})).totals
    assert (many["macs"], many["parameters"]) == (5 * macs, parameters)
    assert costs.count(perfpass.load(path(name), input_shape={"in0": shape}, batch=5)).totals["macs"] == 5 * macs


def test_a_file_without_shapes_asks_for_one() -> None:
    with pytest.raises(ShapeError, match="in0"):
        perfpass.load(path("resnet18"))
    with pytest.raises(ShapeError, match="input_shapes"):
        perfpass.load(path("resnet18"), input_shape={"in0": (1, 4, 224, 224)})


def test_shapes_of_the_input_layer_are_taken(tmp_path: Path) -> None:
    text = path("up").read_text().replace("0 1 in0\n", "0 1 in0 0=64 1=64 2=3\n", 1)
    (tmp_path / "m.param").write_text(text)
    (declared,) = formats.named("ncnn").inputs(tmp_path / "m.param")
    assert declared.shape == ("batch", 3, 64, 64)
    assert costs.count(perfpass.load(tmp_path / "m.param", batch=2)).totals["macs"] == 2 * COUNTED["up"][1]


def test_an_activation_within_a_layer_is_an_operator_of_its_own() -> None:
    graph = perfpass.load(path("up"), input_shape={"in0": (1, 3, 64, 64)})
    kinds = [graph.op_name(n) for n in range(graph.node_count)]
    assert kinds.count("conv") == 3 and "leaky_relu" in kinds and kinds.count("conv_transpose") == 1


def test_layers_that_are_written_alike_are_each_of_what_they_read(tmp_path: Path) -> None:
    """Their parameters are read once, and sizes worked out once of like inputs alone."""
    halved = "0=0 1=2 2=2"
    lines = [f"Pooling p{i} 1 1 {'a' if i == 0 else f'b{i - 1}'} b{i} {halved}" for i in range(3)]
    lines += [f"Pooling q 1 1 a c {halved}", "Swish s 1 1 c d", "Flatten f 1 1 c e"]
    text = "\n".join(["7767517", f"{1 + len(lines)} 7", "Input a 0 1 a", *lines])
    (tmp_path / "m.param").write_text(text + "\n")
    graph = perfpass.load(tmp_path / "m.param", input_shape={"a": (1, 3, 16, 16)})
    made = [graph.shape(tensor) for tensor in graph.graph_outputs]
    assert made == [(1, 3, 2, 2), (1, 3, 8, 8), (1, 192)]


def test_a_layer_without_a_rule_is_refused_unless_the_file_hints_its_shape(tmp_path: Path) -> None:
    text = path("up").read_text().replace("Swish ", "Mine  ", 1)
    (tmp_path / "m.param").write_text(text)
    with pytest.raises(UnsupportedError, match="Mine"):
        perfpass.load(tmp_path / "m.param", input_shape={"in0": (1, 3, 64, 64)})
    hinted = "\n".join(f"{line} -23330=4,3,32,32,16" if "Mine" in line else line for line in text.splitlines())
    (tmp_path / "m.param").write_text(hinted)
    graph = perfpass.load(tmp_path / "m.param", input_shape={"in0": (1, 3, 64, 64)})
    assert graph.unknown_operators == {"Mine": 1}


@pytest.mark.parametrize(
    ("sizes", "made"),
    [("//(768,*(2,0n)),2", (2, 384)), ("+(0w,-(0h,0h)),-1", (48, 16)), ("max(0w,min(7,0c)),48", (48, 16))],
)
def test_sizes_of_a_reshape_are_worked_out_as_pnnx_writes_them(
    sizes: str, made: tuple[int, ...], tmp_path: Path
) -> None:
    lines = ["7767517", "2 2", "Input in0 0 1 in0", f'Reshape r 1 1 in0 out0 0=0 6="{sizes}"']
    (tmp_path / "m.param").write_text("\n".join(lines) + "\n")
    graph = perfpass.load(tmp_path / "m.param", input_shape={"in0": (1, 3, 16, 16)})
    assert graph.shape(graph.graph_outputs[0])[1:] == made
    (tmp_path / "m.param").write_text("\n".join(lines).replace(sizes, "round(4)") + "\n")
    with pytest.raises(ShapeError, match="round"):
        perfpass.load(tmp_path / "m.param", input_shape={"in0": (1, 3, 16, 16)})


def binary(layers: list[param.Layer]) -> bytes:
    """The binary form of layers, as ncnn2mem writes it."""
    blobs = {name: i for i, name in enumerate(dict.fromkeys(t for layer in layers for t in layer.tops))}
    words = [param.MAGIC, len(layers), len(blobs)]

    def bits(value: float) -> int:
        return value if isinstance(value, int) else struct.unpack("<i", struct.pack("<f", value))[0]

    for layer in layers:
        words += [param.TYPES.index(layer.type), len(layer.bottoms), len(layer.tops)]
        words += [blobs[b] for b in [*layer.bottoms, *layer.tops]]
        for number, value in layer.parameters.items():
            if isinstance(value, list):
                words += [-23300 - number, len(value), *map(bits, value)]
            else:
                assert not isinstance(value, str)
                words += [number, bits(value)]
        words.append(-233)
    return struct.pack(f"<{len(words)}i", *words)


@pytest.mark.parametrize("name", COUNTED)
def test_the_binary_form_is_the_same_network(name: str, tmp_path: Path) -> None:
    (tmp_path / "m.param.bin").write_bytes(binary(param.read(path(name))))
    shape, macs, parameters = COUNTED[name]
    totals = costs.count(perfpass.load(tmp_path / "m.param.bin", input_shape={"0": shape})).totals
    assert (totals["macs"], totals["parameters"]) == (macs, parameters)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("7767517\n2 2\nInput a 0 1 a\n", "truncated"),
        ("7767517\n2 2\nInput a 0 1 a\nReLU r 1 1 b c\n", "before a layer makes it"),
        ("7767517\n2 2\nInput a 0 1 a\nReLU r 1 1 a a\n", "another layer has written"),
        ("7767517\n1 1\nInput a 0 9 a\n", "outputs"),
        ("7767517\nx y\n", "no layer"),
        ("7767517\n", "of 1 lines, cut before its layers"),
        ("7767517\n2 2\nInput a 0 1 a\nReLU r", "its line 'ReLU r' ends before"),
        ("7767517\n2 2\nInput a 0 1 a\nLSTM r 1 1 a b 0=4 2=1e999\n", "32 bits"),
        ("7767517\n2 2\nInput a 0 1 a\nPooling r 1 1 a b 1=9999999999\n", "32 bits"),
    ],
)
def test_what_is_no_network_is_refused_in_a_sentence(tmp_path: Path, wrong: str, said: str) -> None:
    (tmp_path / "m.param").write_text(wrong)
    with pytest.raises(FormatError, match=said):
        perfpass.load(tmp_path / "m.param", input_shape={"a": (1, 8)})


@pytest.mark.parametrize(
    "layer", ["MultiHeadAttention r 1 1 a b 0=8 1=2 2=64 5=1", "Interp r 1 1 a b 0=2 1=1e999 2=2.0"]
)
def test_a_layer_that_does_not_fit_its_inputs_is_named(tmp_path: Path, layer: str) -> None:
    (tmp_path / "m.param").write_text(f"7767517\n2 2\nInput a 0 1 a\n{layer}\n")
    with pytest.raises(ShapeError, match=r"layer 'r'.*do not fit inputs"):
        perfpass.load(tmp_path / "m.param", input_shape={"a": (1, 3, 8, 8)})


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_damage_is_one_of_our_errors(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["up", "block", "lstm"]))
    layers = param.read(path(name))
    content = bytearray(binary(layers) if data.draw(st.booleans()) else path(name).read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(12, len(content) - 1))
        content[at] = data.draw(st.one_of(st.integers(0, 255), st.sampled_from(list(b"0123456789-="))))
    file = tmp_path_factory.mktemp("damaged") / "m"
    file.write_bytes(content)
    shape = COUNTED[name][0]
    for blob in ("in0", "0"):
        try:
            formats.named("ncnn").read(file, formats.Sizes(input_shapes={blob: shape}))
        except PerfPassError as error:
            assert str(error)
