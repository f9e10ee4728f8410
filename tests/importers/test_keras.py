"""Keras models: what is read of real files, which code is never run, and what damage and bombs come to."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import perfpass
from perfpass.errors import FormatError, GraphError, LimitError, PerfPassError, ShapeError, UnsupportedError
from perfpass.graph import OpGraph, costs
from perfpass.importers.formats import Content, Sizes, recognised
from perfpass.importers.formats.keras import inputs, read

FILES = Path(__file__).parent / "files"
VISION, SEQUENCE, SMALL = FILES / "vision.keras", FILES / "sequence.keras", FILES / "small.h5"


def totals(graph: OpGraph) -> tuple[int, int]:
    """Parameters and MACs."""
    counted = costs.count(graph).totals
    return counted["parameters"], counted["macs"]


def kinds(graph: OpGraph) -> list[str]:
    """The operators in order."""
    return [graph.op_name(node) for node in range(graph.node_count)]


def layer(
    class_name: str, name: str, reads: list[str] | None, shape: tuple[Any, ...] = (None, 4), **config: Any
) -> Any:
    """A serialized layer that reads others of one shape."""
    tensors = [
        {
            "class_name": "__keras_tensor__",
            "config": {"shape": shape, "dtype": "float32", "keras_history": [read, 0, 0]},
        }
        for read in reads or ()
    ]
    return {
        "module": config.pop("module", "keras.layers"),
        "class_name": class_name,
        "config": {"name": name, "trainable": True, "dtype": "float32"} | config,
        "registered_name": None,
        "name": name,
        "inbound_nodes": [] if reads is None else [{"args": tensors, "kwargs": {}}],
    }


def functional(*layers: Any, output: str) -> dict[str, Any]:
    """A functional model whose first layer is its input."""
    first = layer("InputLayer", "x", None, batch_shape=[None, 4])
    return {
        "module": "keras",
        "class_name": "Functional",
        "config": {
            "name": "model",
            "layers": [first, *layers],
            "input_layers": [["x", 0, 0]],
            "output_layers": [[output, 0, 0]],
        },
    }


def archive(folder: Path, config: Any) -> Path:
    """A ``.keras`` archive of a configuration."""
    path = folder / "model"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as written:
        written.writestr("metadata.json", "{}")
        written.writestr("config.json", config if isinstance(config, str | bytes) else json.dumps(config))
    return path


@pytest.mark.parametrize(("path", "parameters"), [(VISION, 690), (SEQUENCE, 521), (SMALL, 418)])
def test_parameters_are_those_that_keras_counts(path: Path, parameters: int) -> None:
    assert totals(perfpass.load(path, batch=1))[0] == parameters
    one, four = (totals(perfpass.load(path, batch=batch))[1] for batch in (1, 4))
    assert four == 4 * one > 0


def test_macs_of_convolutions_are_those_of_their_formula() -> None:
    graph = read(VISION, Sizes(batch=1))
    convolutions = 8 * 8 * 4 * 27 + 2 * 8 * 8 * 4 * 36 + 8 * 8 * 4 * 9 + 16 + 6 * 6 * (4 * 9 + 6 * 4) + 6 * 6 * 6 * 36
    assert totals(graph)[1] == convolutions + 2 * 8 * 8
    assert kinds(graph).count("conv") == 7 and kinds(graph).count("conv_transpose") == 1


def test_images_are_shown_channels_first_with_kernels_as_out_in_height_width() -> None:
    graph = read(VISION, Sizes(batch=2))
    first = next(node for node in range(graph.node_count) if graph.op_name(node) == "conv")
    data, kernel = graph.node_inputs(first)[:2]
    assert (graph.shape(int(data)), graph.shape(int(kernel))) == ((2, 3, 16, 16), (4, 3, 3, 3))
    assert graph.shape(int(graph.graph_inputs[0])) == (2, 3, 16, 16)
    assert "transpose" not in kinds(graph)


def test_a_shared_layer_runs_twice_and_is_stored_once() -> None:
    graph = read(VISION, Sizes(batch=1))
    dense = [node for node in range(graph.node_count) if graph.op_name(node) == "dense"]
    assert len(dense) == 2 and len({int(graph.node_inputs(node)[1]) for node in dense}) == 1


def calls(name: str, *calls_: tuple[str, int], keras_2: bool) -> list[Any]:
    """Calls of layer ``name``, each reading a call of another: as tensors that say where they are from, or as lists."""
    if keras_2:
        return [[[read, number, 0, {}]] for read, number in calls_]
    found = [layer("Dense", name, [read])["inbound_nodes"][0] for read, _ in calls_]
    for node, (_, number) in zip(found, calls_, strict=True):
        node["args"][0]["config"]["keras_history"][1] = number
    return found


@pytest.mark.parametrize("keras_2", [False, True])
def test_lists_count_the_calls_of_a_model_within_from_one(tmp_path: Path, keras_2: bool) -> None:
    """A model within is called three times: on the input, on what that gives (the first output), and for the rest."""
    own = functional(layer("Dense", "wide", ["x"], units=4), output="wide")
    within = {**own, "name": "within", "config": own["config"] | {"name": "within"}}
    if keras_2:
        within["config"]["layers"][1]["inbound_nodes"] = calls("wide", ("x", 0), keras_2=True)
    first = 1 if keras_2 else 0
    within["inbound_nodes"] = calls("within", ("x", 0), ("within", first), ("x", 0), keras_2=keras_2)
    last = layer("Dense", "last", ["x"], units=2)
    last["inbound_nodes"] = calls("last", ("within", first + 2), keras_2=keras_2)
    model = functional(within, last, output="last")
    model["config"]["output_layers"] = [["within", 2, 0], ["last", 0, 0]]
    graph = perfpass.load(archive(tmp_path, model), batch=1)
    assert kinds(graph) == ["dense"] * 4
    assert totals(graph) == (20 + 10, 3 * 16 + 8)


@pytest.mark.parametrize("keras_2", [False, True])
def test_a_sequence_within_is_counted_from_one_by_keras_2_alone(tmp_path: Path, keras_2: bool) -> None:
    start, wide = layer("InputLayer", "start", None, batch_shape=[None, 4]), layer("Dense", "wide", None, units=4)
    config = {"name": "within", "layers": [start, wide]}
    within = {"module": "keras", "class_name": "Sequential", "name": "within", "config": config}
    within["inbound_nodes"] = calls("within", ("x", 0), keras_2=keras_2)
    model = functional(within, output="within")
    model["config"]["output_layers"] = [["within", int(keras_2), 0]]
    assert totals(perfpass.load(archive(tmp_path, model), batch=1)) == (20, 16)


@pytest.mark.parametrize("inputs", [["x", 0, 0], {"a": ["x", 0, 0]}, {"a": [["x", 0, 0]]}, [[["x", 0, 0]]]])
def test_inputs_may_stand_in_any_structure(tmp_path: Path, inputs: Any) -> None:
    spec = functional(layer("Dense", "dense", "x", units=3), output="dense")
    spec["config"]["input_layers"] = inputs
    assert totals(perfpass.load(archive(tmp_path, spec), batch=1)) == (15, 12)


def test_recurrent_layers_and_attention_are_one_operator_each() -> None:
    found = kinds(read(SEQUENCE, Sizes(batch=1)))
    assert [found.count(kind) for kind in ("lstm", "gru", "attention", "layer_norm", "embedding")] == [2, 1, 1, 1, 1]


def test_inputs_say_what_the_file_leaves_open() -> None:
    (image,) = inputs(VISION)
    assert (image.name, image.dtype, image.shape) == ("image", "float32", ("batch", 16, 16, 3))
    assert inputs(SEQUENCE)[0].dtype == "int32"


@pytest.mark.parametrize("path", [VISION, SMALL])
def test_a_model_is_told_by_its_content_and_not_by_its_name(path: Path, tmp_path: Path) -> None:
    renamed = tmp_path / "something.bin"
    renamed.write_bytes(path.read_bytes())
    found = recognised(Content.of(renamed))
    assert found is not None and found.name == "keras"


def test_code_of_the_model_is_never_run_and_its_layer_is_named(tmp_path: Path) -> None:
    lambda_ = {"class_name": "__lambda__", "config": {"code": "4wEAAAAA", "defaults": None, "closure": None}}
    middle = layer("Lambda", "code", ["x"], function=lambda_)
    model = functional(middle, layer("Dense", "y", ["code"], units=2), output="y")
    graph = read(archive(tmp_path, model), Sizes(batch=3))
    assert graph.unknown_operators == {"Lambda": 1} and "never run" in graph.notes[0]
    assert totals(graph)[0] == 10
    with pytest.raises(UnsupportedError, match=r"'code' is a 'Lambda'.*never run"):
        read(archive(tmp_path, functional(middle, output="code")), Sizes(batch=1))


@pytest.mark.parametrize("module", ["os", "my_package.layers", "builtins", "keras_evil.layers"])
def test_a_class_of_another_module_is_not_keras_whatever_its_name(tmp_path: Path, module: str) -> None:
    dense = layer("Dense", "own", ["x"], units=3, module=module)
    graph = read(archive(tmp_path, functional(dense, layer("ReLU", "y", ["own"]), output="y")), Sizes(batch=1))
    assert graph.unknown_operators == {"Dense": 1} and totals(graph) == (0, 0)


def test_a_subclassed_model_is_refused_with_the_way_out(tmp_path: Path) -> None:
    model = {"module": "my.models", "class_name": "Mine", "config": {"width": 3}, "registered_name": "Mine"}
    with pytest.raises(UnsupportedError, match=r"subclassed.*model\.export"):
        read(archive(tmp_path, model), Sizes(batch=1))


def test_an_activation_of_the_user_is_refused(tmp_path: Path) -> None:
    model = functional(layer("Dense", "y", ["x"], units=2, activation="my>wave"), output="y")
    with pytest.raises(UnsupportedError, match="never run"):
        read(archive(tmp_path, model), Sizes(batch=1))


@pytest.mark.parametrize(("policy", "dtype"), [("mixed_float16", "float16"), ("mixed_bfloat16", "bfloat16")])
def test_mixed_precision_is_shown_in_the_type_of_its_arithmetic(tmp_path: Path, policy: str, dtype: str) -> None:
    serialized = {"module": "keras", "class_name": "DTypePolicy", "config": {"name": policy}, "registered_name": None}
    model = functional(layer("Dense", "y", ["x"], units=2) | {"config": {"units": 2, "dtype": serialized}}, output="y")
    graph = read(archive(tmp_path, model), Sizes(batch=1))
    weight = int(graph.node_inputs(graph.node_count - 1)[1])
    assert perfpass.graph.DTYPES[int(graph.core.tensor_dtype[weight])] == dtype


@pytest.mark.parametrize(("mode", "kind"), [("int8", "quantized_matmul"), ("int4", "matmul_nbits")])
def test_quantised_layers_are_products_by_low_bits(tmp_path: Path, mode: str, kind: str) -> None:
    serialized = {"class_name": "QuantizedDTypePolicy", "config": {"mode": mode, "source_name": "float32"}}
    model = functional(layer("Dense", "y", ["x"], units=2) | {"config": {"units": 2, "dtype": serialized}}, output="y")
    graph = read(archive(tmp_path, model), Sizes(batch=1))
    assert kind in kinds(graph) and totals(graph)[1] == 8


def test_a_bomb_in_an_archive_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    with pytest.raises(LimitError, match="larger than"):
        read(archive(tmp_path, b"[" + b" " * (70 << 20) + b"]"), Sizes(batch=1))


@pytest.mark.parametrize("depth", [45, 400])
def test_nesting_without_end_is_one_error(tmp_path: Path, depth: int) -> None:
    inner: Any = layer("Dense", "inner", None, units=2)
    text = json.dumps(inner)
    for number in range(depth):
        head = json.dumps(layer("TimeDistributed", f"l{number}", None))
        text = head[:-1].replace('"config": {', f'"config": {{"layer": {text}, ', 1) + "}"
    model = json.dumps(functional(layer("Dense", "y", ["x"], units=1), output="y"))
    whole = model.replace('"class_name": "Dense"', '"class_name": "TimeDistributed"').replace(
        '"units": 1', f'"layer": {text}'
    )
    with pytest.raises(PerfPassError):
        read(archive(tmp_path, whole), Sizes(batch=1))


@pytest.mark.parametrize(
    ("broken", "error"),
    [
        ({"units": 2**40}, FormatError),
        ({"units": -1}, FormatError),
        ({"units": "many"}, FormatError),
        ({"units": 2**31 - 1}, None),
        ({"units": True}, FormatError),
    ],
)
def test_settings_are_checked_before_they_count(tmp_path: Path, broken: Any, error: Any) -> None:
    path = archive(tmp_path, functional(layer("Dense", "y", ["x"], **broken), output="y"))
    if error is None:
        assert totals(read(path, Sizes(batch=1)))[0] == 5 * (2**31 - 1)
    else:
        with pytest.raises(error, match="units"):
            read(path, Sizes(batch=1))


def test_a_tensor_larger_than_any_memory_is_refused(tmp_path: Path) -> None:
    chain = [layer("RepeatVector", "r0", ["x"], n=2**31 - 1)]
    chain += [layer("UpSampling1D", f"r{i}", [f"r{i - 1}"], size=2**31 - 1) for i in (1, 2)]
    with pytest.raises(LimitError, match=r"2\^48"):
        read(archive(tmp_path, functional(*chain, output="r2")), Sizes(batch=1))


def test_layers_that_wait_for_one_another_are_a_cycle(tmp_path: Path) -> None:
    model = functional(layer("ReLU", "a", ["b"]), layer("ReLU", "b", ["a"]), output="b")
    with pytest.raises(GraphError, match="never made"):
        read(archive(tmp_path, model), Sizes(batch=1))


def test_shapes_that_do_not_go_together_are_named(tmp_path: Path) -> None:
    model = functional(layer("Reshape", "r", ["x"], target_shape=[3, 2]), output="r")
    with pytest.raises(ShapeError, match="another number of elements"):
        read(archive(tmp_path, model), Sizes(batch=1))


def test_weights_without_layers_are_refused_with_the_way_out(tmp_path: Path) -> None:
    from perfpass.importers.formats.keras import hdf5

    content = SMALL.read_bytes().replace(b"model_config", b"model_konfig")
    path = tmp_path / "weights.h5"
    path.write_bytes(content)
    with pytest.raises(UnsupportedError, match="save_weights"):
        read(path, Sizes(batch=1))
    assert hdf5.text_attributes(path, ("backend",), 100) == {"backend": b"tensorflow"}


def refused_or_read(path: Path) -> None:
    """Nothing but one of our errors, or a graph."""
    try:
        read(path, Sizes(batch=1))
    except PerfPassError as error:
        assert str(error)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_damaged_hdf5_file_is_read_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(SMALL.read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        # The root group, its attributes and the heap that holds them lie at the file's ends.
        place = data.draw(st.one_of(st.integers(0, 4_000), st.integers(0, len(content) - 1)))
        content[place] = data.draw(st.integers(0, 255))
    path = tmp_path / "damaged"
    path.write_bytes(bytes(content[: data.draw(st.integers(1, len(content)))]))
    refused_or_read(path)


JSON = st.one_of(st.none(), st.booleans(), st.integers(-5, 2**40), st.text(max_size=5), st.just([]), st.just({}))


def places(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Every (container, key) in a JSON value."""
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        found.append((value, key))
        if isinstance(item, dict | list):
            places(item, found)
    return found


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), path=st.sampled_from([VISION, SEQUENCE]))
def test_a_configuration_with_wrong_values_is_read_or_refused(tmp_path: Path, data: st.DataObject, path: Path) -> None:
    with zipfile.ZipFile(io.BytesIO(path.read_bytes())) as whole:
        config = json.loads(whole.read("config.json"))
    for _ in range(data.draw(st.integers(1, 3))):
        known = places(config, [])
        container, key = known[data.draw(st.integers(0, len(known) - 1))]
        container[key] = data.draw(JSON)
    refused_or_read(archive(tmp_path, config))
