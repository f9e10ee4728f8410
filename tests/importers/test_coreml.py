"""Core ML models: programs, networks and pipelines as torch has them, weights as they are stored, hostile packages."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfpass
from perfpass.errors import FormatError, LimitError, PerfPassError, ShapeError, UnsupportedError
from perfpass.graph import OPERATORS, OpGraph, costs
from perfpass.importers import torch as tracer
from perfpass.importers.draft import Draft
from perfpass.importers.formats import Content, Sizes, recognised
from perfpass.importers.formats.coreml import alike, inputs, network, operators, package, read, reader
from perfpass.importers.formats.coreml.program import Program, Value
from perfpass.importers.formats.protobuf import FieldBudget, Message, Span, message_of
from perfpass.importers.formats.sizes import fixed

FILES = Path(__file__).parent / "files"
MODELS = sorted(path.name for path in FILES.glob("cm_*"))


def networks() -> ModuleType:
    """The modules that the files beside were made of."""
    spec = importlib.util.spec_from_file_location("small_networks", FILES / "small_networks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def kinds(graph: OpGraph) -> list[str]:
    return [OPERATORS[op] for op in graph.core.op.tolist()]


def total(graph: OpGraph, what: str = "macs") -> int:
    return int(costs.count(graph).totals[what])


def load(name: str) -> OpGraph:
    return read(FILES / name, Sizes())


def specification(name: str) -> Path:
    path = FILES / name
    return path / "Data" / "com.apple.CoreML" / "model.mlmodel" if path.is_dir() else path


def message(content: bytes) -> Message:
    return message_of(Span(content, 0, len(content)), FieldBudget(99, "model"))


def test_an_operation_and_a_layer_that_write_nothing_are_refused_by_name() -> None:
    with pytest.raises(FormatError, match="'constexpr_cast' has arguments or outputs that do not fit"):
        Program(Draft(), {}).block(message(field(3, field(1, b"constexpr_cast"))))
    with pytest.raises(FormatError, match=r"layer 'held' .* writes nothing"):
        network.add(message(field(1, field(1, b"held"))), Draft(), {})


@pytest.mark.parametrize("name", ["cm_images.mlpackage", "cm_images.mlmodel"])
def test_a_network_of_images_has_the_products_that_torch_has(name: str) -> None:
    assert total(load(name)) == total(tracer.trace(networks().Images(), (3, 32, 32)))


def test_the_program_and_the_older_network_are_one_graph() -> None:
    program, network = load("cm_images.mlpackage"), load("cm_images.mlmodel")
    assert kinds(program) == kinds(network)
    assert total(program, "parameters") == total(network, "parameters")
    assert total(network, "weight_bytes") == 2 * total(program, "weight_bytes")  # halves in a program


def test_a_transformer_has_the_parameters_products_and_operators_that_torch_has() -> None:
    traced, found = tracer.trace(networks().Block(), ((8,), "int64")), load("cm_block.mlpackage")
    assert (total(found), total(found, "parameters")) == (total(traced), total(traced, "parameters"))
    for kind in ("dense", "layer_norm", "attention", "gelu"):
        assert kinds(found).count(kind) == kinds(traced).count(kind)


@pytest.mark.parametrize("name", ["cm_rows_lut4.mlpackage", "cm_rows_lut4_ios18.mlpackage", "cm_rows_int4.mlpackage"])
def test_palettised_and_quantised_weights_are_counted_as_they_are_stored(name: str) -> None:
    graph, matrices = load(name), 32 * 64 + 64 * 32 + 50 * 32
    assert kinds(graph).count("matmul_nbits") == 2 and "gather" in kinds(graph)
    assert matrices // 2 < total(graph, "weight_bytes") < matrices
    assert total(graph, "parameters") >= matrices and total(graph) == 8 * (32 * 64 + 64 * 32)


def test_a_loop_counts_once_and_says_so_and_of_branches_one_counts() -> None:
    graph = load("cm_control.mlpackage")
    named = dict(zip(kinds(graph), graph.core.repeat.tolist(), strict=True))
    assert named["lstm"] == named["loop"] == named["conditional"] == 1 and named["tile"] == 0
    assert ["how often it runs" in note for note in graph.counted_once] == [True]
    assert total(graph) == 5 * 2 * (32 * 4 + 32 * 8) + 5 * 16 * 16 + 5 * 16 * 64


def test_a_pipeline_is_its_models_one_after_another() -> None:
    assert total(load("cm_pipeline.mlmodel")) == total(load("cm_images.mlmodel")) + 10 * 3
    assert total(load("cm_pipeline.mlmodel"), "parameters") == total(load("cm_images.mlmodel"), "parameters") + 33


def test_every_operation_that_coremltools_registers_is_canonical_or_unknown_on_purpose() -> None:
    registered = (FILES / "coreml_operations.txt").read_text().split()
    assert len(registered) > 150
    assert [name for name in registered if name not in operators.KIND_OF and name not in operators.UNKNOWN] == []
    assert set(operators.KIND_OF.values()) <= set(OPERATORS)


def test_a_model_is_told_by_its_content_and_every_command_takes_it(tmp_path: Path) -> None:
    odd = Path(shutil.copy(FILES / "cm_images.mlmodel", tmp_path / "model.bin"))
    folder = Path(shutil.copytree(FILES / "cm_images.mlpackage", tmp_path / "package"))
    for path in (odd, folder):
        found = recognised(Content.of(path))
        assert found is not None and found.name == "coreml"
        assert [(i.name, i.shape) for i in inputs(path)] == [("x", (1, 3, 32, 32))]
        assert total(perfpass.load(path, batch=4)) == 4 * total(load("cm_images.mlmodel"))
    assert perfpass.predict(folder, device="A100").latency_ms.median > 0


def test_an_onnx_file_is_no_core_ml_model(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    value = [onnx.helper.make_tensor_value_info(n, 1, [1, 3]) for n in "xy"]
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", value[:1], value[1:]), producer_name="pytorch")
    onnx.save(model, tmp_path / "model")
    assert recognised(Content.of(tmp_path / "model")) is None


# -- hostile packages --------------------------------------------------------------------------------------------------


def packaged(tmp_path: Path, root: object = "com.apple.CoreML/model.mlmodel") -> Path:
    path = Path(shutil.copytree(FILES / "cm_images.mlpackage", tmp_path / "model.mlpackage"))
    manifest = json.loads((path / "Manifest.json").read_text())
    manifest["itemInfoEntries"][manifest["rootModelIdentifier"]]["path"] = root
    (path / "Manifest.json").write_text(json.dumps(manifest))
    return path


@pytest.mark.parametrize("root", ["../../secret", "/etc/passwd", "a/../../../b", 7, None, "x" * 5000, "a\0b"])
def test_a_manifest_leads_nowhere_but_into_its_package(tmp_path: Path, root: object) -> None:
    with pytest.raises(FormatError):
        read(packaged(tmp_path, root), Sizes())


def test_a_link_out_of_the_package_is_not_followed(tmp_path: Path) -> None:
    path = packaged(tmp_path)
    model = path / "Data" / "com.apple.CoreML" / "model.mlmodel"
    shutil.move(model, tmp_path / "outside")
    model.symlink_to(tmp_path / "outside")
    with pytest.raises(FormatError, match="leads out of the package"):
        read(path, Sizes())


def test_damaged_and_oversized_manifests_are_refused(tmp_path: Path) -> None:
    path = packaged(tmp_path)
    words = '{"itemInfoEntries": "abc", "rootModelIdentifier": 7}'  # of a text, not of a table
    for text in ("{", "[]", "{}", '{"rootModelIdentifier": []}', words, "[" * 100_000, " " * (2 << 20)):
        (path / "Manifest.json").write_text(text)
        with pytest.raises(PerfPassError):
            read(path, Sizes())


def field(number: int, content: bytes) -> bytes:
    """One length-delimited field of the wire format."""

    def varint(value: int) -> bytes:
        found = bytearray()
        while value > 127:
            found.append(value & 127 | 128)
            value >>= 7
        return bytes([*found, value])

    return varint(number << 3 | 2) + varint(len(content)) + content


def test_pipelines_in_pipelines_and_blocks_in_blocks_have_an_end(tmp_path: Path) -> None:
    path = tmp_path / "model"
    nested = b""
    for _ in range(30):
        nested = b"\x08\x04" + field(202, field(1, nested))
    path.write_bytes(nested)
    with pytest.raises(FormatError, match="deep"):
        read(path, Sizes())
    block = b""
    for _ in range(60):
        block = field(3, field(1, b"cond") + field(4, block))
    function = field(2, b"CoreML5") + field(3, field(1, b"CoreML5") + field(2, block))
    path.write_bytes(b"\x08\x06" + field(502, field(2, field(1, b"main") + field(2, function))))
    with pytest.raises(LimitError, match="deep"):
        read(path, Sizes())


def test_models_that_are_no_networks_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.write_bytes(b"\x08\x04" + field(402, b""))
    with pytest.raises(UnsupportedError, match="a tree ensemble"):
        read(path, Sizes())


def test_an_open_size_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = packaged(tmp_path)
    model = path / "Data" / "com.apple.CoreML" / "model.mlmodel"
    content = model.read_bytes()
    known, open_size = field(3, field(1, b"\x08\x20")), field(3, field(2, b"\x08\x00"))
    assert len(known) == len(open_size) and known in content
    model.write_bytes(content.replace(known, open_size))
    with pytest.raises(ShapeError):
        read(path, Sizes())


def twins(path: Path) -> tuple[OpGraph | None, OpGraph | PerfPassError]:
    """A program with operations that are alike lowered once, and with each lowered by itself."""
    with package.opened(path) as model:
        given = [(one.name, one.dtype, fixed([one], Sizes()).shapes[one.name]) for one in reader._inputs(model)]
        quick = reader._repeated(model, given)
        try:
            return quick, reader._one_by_one(model, given)
        except PerfPassError as error:
            return quick, error


def written(graph: OpGraph) -> dict[str, object]:
    """All that a graph holds, numbers of texts aside."""
    columns: tuple[str, ...] = (
        "op",
        "attributes",
        "repeat",
        "input_offset",
        "inputs",
        "output_offset",
        "outputs",
        "tensor_dtype",
    )
    columns += ("tensor_role", "shape_offset", "dims", "graph_inputs", "graph_outputs")
    found: dict[str, object] = {name: getattr(graph.core, name).tolist() for name in columns}
    for name in ("tensor_name", "node_name", "source_op"):
        found[name] = [graph.string(int(i)) for i in getattr(graph.core, name)]
    return found


def repeated(blocks: int) -> bytes:
    """Blocks of a product, a pooling, a concatenation of a tensor with itself or another, and a new name for it."""
    kind = field(1, b"\x08\x0b\x10\x02" + 2 * field(3, field(1, b"\x08\x04")))

    def operation(what: str, name: str, of: bytes = kind, val: bytes = b"", **reads: tuple[str, ...]) -> bytes:
        def argument(key: str, sources: tuple[str, ...]) -> bytes:
            bound = b"".join(field(1, field(1, source.encode())) for source in sources)
            return field(2, field(1, key.encode()) + field(2, bound))

        stored = field(5, field(1, b"val") + field(2, val)) if val else b""
        made = field(3, field(1, name.encode()) + field(2, of))
        return field(3, field(1, what.encode()) + b"".join(argument(*one) for one in reads.items()) + made + stored)

    flag = field(1, b"\x08\x01\x10\x00")
    parts, last = [], "x"
    for i in range(blocks):
        yes = field(3, field(1, field(3, field(1, bytes([i % 2])))))
        parts += [
            operation("const", f"w{i}", val=field(5, b"\x12\x01w")),
            operation("const", f"t{i}", flag, yes),
            operation("matmul", f"p{i}", x=(last,), y=(f"w{i}",), transpose_y=(f"t{i}",)),
            operation("add", f"s{i}", x=(f"p{i}",), y=(f"p{i}" if i % 3 else last,)),
            operation("identity", f"i{i}", x=(f"s{i}",)),
            operation("relu", f"r{i}", x=(f"i{i}",)),
        ]
        last = f"r{i}"
    block = b"".join(parts) + field(2, last.encode())
    function = field(1, field(1, b"x") + field(2, kind)) + field(2, b"CoreML7")
    function += field(3, field(1, b"CoreML7") + field(2, block))
    described = field(1, field(1, b"x") + field(3, field(5, b"\x0a\x02\x04\x04\x10" + b"\xa0\x80\x04")))
    return field(2, described) + field(502, field(2, field(1, b"main") + field(2, function)))


def test_operations_that_are_alike_are_lowered_once_and_as_if_each_were(tmp_path: Path) -> None:
    path = tmp_path / "blocks.mlmodel"
    path.write_bytes(repeated(40))
    quick, plain = twins(path)
    assert quick is not None and isinstance(plain, OpGraph)
    assert quick.node_count == 120  # a new name is no operator
    assert written(quick) == written(plain)
    asked: list[str] = []
    with package.opened(path) as model:
        meaning = alike._Meaning([(Value("float32", (4, 4)), None, False)])
        block = reader._block(model.one(502).map(2), {"x"})

        def operation(message: Message, read: list[tuple[str, int]]) -> object:
            asked.append(message.text(1))
            return meaning.operation(message, read)

        block.program([("x", "float32", (4, 4))], meaning.value, operation)
    assert len(asked) < 20


@pytest.mark.parametrize("name", [name for name in MODELS if name in ("cm_block.mlpackage", "cm_images.mlpackage")])
def test_a_file_of_coremltools_is_read_alike_and_one_by_one(name: str) -> None:
    quick, plain = twins(FILES / name)
    assert quick is not None and isinstance(plain, OpGraph) and written(quick) == written(plain)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_whatever_is_read_alike_is_what_one_by_one_gives(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = bytearray(repeated(4) if data.draw(st.booleans()) else specification("cm_block.mlpackage").read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("twins") / "model"
    path.write_bytes(bytes(content))
    try:
        quick, plain = twins(path)
    except PerfPassError:
        return  # what is read before either
    if quick is not None:
        assert isinstance(plain, OpGraph) and written(quick) == written(plain)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damage_ends_in_one_of_our_errors_or_in_a_graph(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = bytearray(specification(data.draw(st.sampled_from(MODELS))).read_bytes())
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(0, max(len(content) - 1, 0)))
        how = data.draw(st.sampled_from(["flip", "cut", "drop", "copy"]))
        if how == "flip" and content:
            content[at] = data.draw(st.integers(0, 255))
        elif how == "cut":
            del content[at:]
        elif how == "drop":
            del content[at : at + data.draw(st.integers(1, 50))]
        else:
            content[at:at] = content[at : at + data.draw(st.integers(1, 200))]
    path = tmp_path_factory.mktemp("damaged") / "model"
    path.write_bytes(bytes(content))
    try:
        costs.count(read(path, Sizes()))
    except PerfPassError as error:
        assert str(error)
