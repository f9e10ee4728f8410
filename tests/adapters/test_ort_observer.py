"""Sessions of ONNX Runtime seen from inside: nothing changes, and the graph is the one that onnxruntime runs."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import ort_models
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_session_check import differences, observed_and_saved, options_for, outputs, same_bits

from ort_extension import observer
from perfpass.errors import ArgumentError
from perfpass.graph import OPERATORS, OpGraph
from perfpass.importers import onnx as importer

pytestmark = pytest.mark.skipif(observer.native_library() is None, reason="the native provider was not built")

# onnxruntime puts casts around operators that its CPU kernels do not have in half precision, and drops casts that are
# then useless: after the graph was shown.
CAST_LATER = "fp16"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    paths = {name: folder / f"{name}.onnx" for name in ort_models.MODELS}
    for name, export in ort_models.MODELS.items():
        export(paths[name])
    return paths


def small_model(rows: int = 4, repeats: int = 1) -> bytes:
    """``repeats`` matrix products, one after the other."""
    weight = numpy_helper.from_array(np.eye(8, dtype=np.float32), "w")
    nodes = [helper.make_node("MatMul", [f"x{i}", "w"], [f"x{i + 1}"], name=f"n{i}") for i in range(repeats)]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x0", TensorProto.FLOAT, [rows, 8])],
        [helper.make_tensor_value_info(f"x{repeats}", TensorProto.FLOAT, [rows, 8])],
        [weight],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()


def one_node(node: onnx.NodeProto, inputs: list[onnx.ValueInfoProto], outputs: list[onnx.ValueInfoProto]) -> bytes:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 2)]
    graph = helper.make_graph([node], "one", inputs, outputs)
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def quiet() -> ort.SessionOptions:
    return options_for("")


def observed(model: bytes) -> tuple[ort.InferenceSession, observer.Observation]:
    options = quiet()
    observation = observer.observe(options)
    assert observation.problem is None
    return ort.InferenceSession(model, options), observation


def test_an_observed_session_lists_the_provider_that_observes_it(models: dict[str, Path]) -> None:
    """docs/internals/onnxruntime.md says so; `ort_extension.InferenceSession` leaves it out (test_ort_session.py)."""
    session, _ = observed(next(iter(models.values())).read_bytes())
    assert observer.PROVIDER in session.get_providers()


@pytest.mark.parametrize("name", ort_models.MODELS)
def test_outputs_are_bit_identical_with_and_without(models: dict[str, Path], name: str) -> None:
    plain, _ = outputs(models[name], observed=False)
    with_observer, observation = outputs(models[name], observed=True)
    assert observation is not None and observation.seen and observation.problem is None
    assert same_bits(plain, with_observer)
    assert len(observation.drain_runs()) == 1


@pytest.mark.parametrize("name", [name for name in ort_models.MODELS if name != CAST_LATER])
def test_graph_equals_the_file_that_onnxruntime_saves(models: dict[str, Path], name: str) -> None:
    observation, read = observed_and_saved(models[name])
    seen = observation.graph
    assert seen is not None, observation.problem
    assert seen.node_count > 0 and observation.nodes > 0
    assert differences(seen, read) == []


def test_half_precision_differs_by_the_casts_that_come_later(models: dict[str, Path]) -> None:
    observation, read = observed_and_saved(models[CAST_LATER])
    seen = observation.graph
    assert seen is not None

    def rows(graph: OpGraph) -> list[tuple[str, list[tuple[int, ...]]]]:
        nodes = [i for i in range(graph.node_count) if graph.source_op_name(i) != "Cast"]
        return sorted((graph.source_op_name(i), [graph.shape(t) for t in graph.node_outputs(i)]) for i in nodes)

    assert rows(seen) == rows(read)
    assert read.node_count > seen.node_count


def test_subgraphs_are_part_of_the_graph_around_them(models: dict[str, Path]) -> None:
    observation, _ = observed_and_saved(models["loop-and-if"])
    graph = observation.graph
    assert graph is not None
    operators = [OPERATORS[op] for op in graph.op]
    assert {"loop", "conditional"} <= set(operators)
    assert any("/body/" in graph.label(i) for i in range(graph.node_count))


def test_functions_are_seen_inlined(models: dict[str, Path]) -> None:
    observation, _ = observed_and_saved(models["functions"])
    graph = observation.graph
    assert graph is not None
    assert sorted(graph.source_op_name(i) for i in range(graph.node_count)) == ["Add", "Add", "MatMul", "Relu", "Relu"]


def test_no_node_is_claimed_and_optimisations_are_the_same(models: dict[str, Path], tmp_path: Path) -> None:
    saved = []
    for watch in (False, True):
        path = tmp_path / f"{watch}.onnx"
        options = options_for("vit", saved=path, everything=True)
        if watch:
            observer.observe(options)
        ort.InferenceSession(str(models["vit"]), options)
        graph = onnx.load(path, load_external_data=False).graph
        saved.append(sorted((node.op_type, node.domain, len(node.input), len(node.output)) for node in graph.node))
    assert saved[0] == saved[1]


def test_model_bytes_are_an_onnx_model_without_weights(models: dict[str, Path]) -> None:
    observation, _ = observed_and_saved(models["resnet18"])
    model = onnx.load_from_string(observation.model)
    assert len(observation.model) < 100_000 < models["resnet18"].stat().st_size
    assert {len(t.raw_data) for t in model.graph.initializer if np.prod(t.dims) > 4096} == {0}
    assert model.opset_import[0].version == 17


def test_open_dimensions_are_named_and_can_be_bound(models: dict[str, Path]) -> None:
    options = quiet()
    observation = observer.observe(options)
    ort.InferenceSession(str(models["gpt2-dynamic"]), options)
    assert observation.graph is None
    assert observation.problem is not None and "'batch'" in observation.problem and "'length'" in observation.problem
    graph = observation.read(dims={"batch": 3, "length": 5})
    assert (3, 5) in [graph.shape(t) for t in range(graph.tensor_count)]


def test_before_the_session_there_is_nothing_and_no_problem() -> None:
    observation = observer.observe(quiet())
    assert (observation.seen, observation.nodes, observation.graph, observation.model) == (False, 0, None, b"")
    assert observation.problem is None and observation.drain_runs().shape == (0, 2)
    with pytest.raises(ArgumentError, match="no session was created"):
        observation.read()


def test_what_are_no_session_options_is_said() -> None:
    with pytest.raises(ArgumentError, match=r"SessionOptions are needed, got dict"):
        observer.observe({})  # type: ignore[arg-type]


def test_options_can_be_used_again() -> None:
    options = quiet()
    first = observer.observe(options)
    ort.InferenceSession(small_model(repeats=2), options)
    second = observer.observe(options)
    session = ort.InferenceSession(small_model(repeats=5), options)
    session.run(None, {"x0": np.ones((4, 8), np.float32)})
    assert (first.nodes, second.nodes) == (2, 5)
    assert (len(first.drain_runs()), len(second.drain_runs())) == (0, 1)


def test_providers_of_the_constructor_leave_the_session_unseen_and_working() -> None:
    options = quiet()
    observation = observer.observe(options)
    with pytest.warns(UserWarning, match="already been configured"):
        session = ort.InferenceSession(small_model(), options, providers=["CPUExecutionProvider"])
    assert session.run(None, {"x0": np.ones((4, 8), np.float32)})[0].shape == (4, 8)
    assert not observation.seen and observation.graph is None


def test_a_session_that_fails_fails_the_same_way() -> None:
    messages = []
    for watch in (False, True):
        options = quiet()
        options.log_severity_level = 4
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        if watch:
            assert observer.observe(options).problem is None
        with pytest.raises(Exception, match="fallback to CPU EP has been explicitly disabled") as failure:
            ort.InferenceSession(small_model(), options)
        messages.append(str(failure.value))
    assert messages[0] == messages[1]


def test_providers_that_onnxruntime_would_choose_itself_are_not_displaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"])
    options = quiet()
    observation = observer.observe(options)
    assert observation.problem is not None and "would use CUDAExecutionProvider by default" in observation.problem
    assert not options.has_providers()
    options.add_provider_for_devices([d for d in ort.get_ep_devices() if d.ep_name == "CPUExecutionProvider"][:1], {})
    assert observer.observe(options).problem is None


# ---- Runs


def test_runs_are_timed_on_the_monotonic_clock() -> None:
    session, observation = observed(small_model())
    x = {"x0": np.ones((4, 8), np.float32)}
    before = time.monotonic()
    for _ in range(3):
        session.run(None, x)
    after = time.monotonic()
    runs = observation.drain_runs()
    assert runs.shape == (3, 2) and runs.dtype == np.float64
    assert before <= runs[0, 0] and runs[-1].sum() <= after
    assert (runs[:, 1] > 0).all() and (np.diff(runs[:, 0]) > 0).all()
    assert len(observation.drain_runs()) == 0


def test_only_the_last_4096_runs_are_kept() -> None:
    session, observation = observed(small_model())
    x = {"x0": np.ones((4, 8), np.float32)}
    for _ in range(4100):
        session.run(None, x)
    assert observation.runs_lost == 4
    assert len(observation.drain_runs()) == 4096


def test_failed_runs_do_not_confuse_the_next() -> None:
    reshape = helper.make_node("Reshape", ["x", "shape"], ["y"])
    model = one_node(
        reshape,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4]), helper.make_tensor_value_info("shape", 7, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, None])],
    )
    session, observation = observed(model)
    x = np.ones(4, np.float32)
    with pytest.raises(Exception, match="reshape"):
        session.run(None, {"x": x, "shape": np.array([3, 3])})
    observation.drain_runs()
    assert session.run(None, {"x": x, "shape": np.array([2, 2])})[0].shape == (2, 2)
    assert len(observation.drain_runs()) == 1


def test_threads_with_sessions_of_their_own_and_shared_ones() -> None:
    shared, shared_observation = observed(small_model(rows=3, repeats=3))
    failures: list[str] = []

    def work(index: int) -> None:
        for i in range(5):
            repeats = 1 + index + i
            session, observation = observed(small_model(repeats=repeats))
            for _ in range(repeats):
                session.run(None, {"x0": np.ones((4, 8), np.float32)})
                shared.run(None, {"x0": np.ones((3, 8), np.float32)})
            graph = observation.graph
            if graph is None or graph.node_count != repeats or len(observation.drain_runs()) != repeats:
                failures.append(f"thread {index}, session {i}: {observation.problem}")

    threads = [threading.Thread(target=work, args=(index,)) for index in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(shared_observation.drain_runs()) == sum(1 + index + i for index in range(6) for i in range(5))


def test_sessions_and_observations_end_in_any_order() -> None:
    x = {"x0": np.ones((4, 8), np.float32)}
    pairs = [observed(small_model(repeats=i + 1)) for i in range(4)]
    (first, first_seen), (second, second_seen), (third, third_seen), (fourth, fourth_seen) = pairs
    del pairs
    first_seen.close()
    first.run(None, x)
    assert first_seen.graph is None and len(first_seen.drain_runs()) == 0
    del second
    gc.collect()
    assert second_seen.graph is not None and second_seen.graph.node_count == 2
    del third_seen
    gc.collect()
    third.run(None, x)
    fourth_seen.close()
    del fourth, fourth_seen
    gc.collect()
    third.run(None, x)


# ---- Hostile and unusual graphs


def test_unknown_rank_is_not_taken_for_a_scalar() -> None:
    shape = helper.make_tensor_value_info("shape", TensorProto.INT64, [None])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])
    y = onnx.ValueInfoProto(name="y")
    y.type.tensor_type.elem_type = TensorProto.FLOAT
    session, observation = observed(one_node(helper.make_node("Reshape", ["x", "shape"], ["y"]), [x, shape], [y]))
    assert observation.seen and observation.graph is None
    with pytest.raises(Exception, match="shape"):
        observation.read(dims={"shape:0": 2})
    assert session.run(None, {"x": np.ones(4, np.float32), "shape": np.array([2, 2])})[0].shape == (2, 2)


def test_long_names_are_bounded_by_the_reader_and_the_session_works() -> None:
    model = onnx.load_from_string(small_model())
    model.graph.node[0].name = "n" * 100_000
    session, observation = observed(model.SerializeToString())
    assert observation.graph is None
    assert observation.problem is not None and "65536 are allowed" in observation.problem
    assert session.run(None, {"x0": np.ones((4, 8), np.float32)})[0].shape == (4, 8)


def test_long_attributes_are_named_and_not_copied() -> None:
    keys = list(range(300_000))
    node = helper.make_node(
        "LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", keys_int64s=keys, values_int64s=keys, name="labels"
    )
    x = helper.make_tensor_value_info("x", TensorProto.INT64, [2])
    y = helper.make_tensor_value_info("y", TensorProto.INT64, [2])
    session, observation = observed(one_node(node, [x], [y]))
    assert len(observation.model) < 10_000
    assert "keys_int64s" in {a.name for a in onnx.load_from_string(observation.model).graph.node[0].attribute}
    assert observation.graph is not None and not observation.graph.unknown_operators
    assert session.run(None, {"x": np.array([3, 4])})[0].tolist() == [3, 4]


def test_names_that_are_no_utf8_and_sequences_pass() -> None:
    made = helper.make_node("SequenceConstruct", ["x", "x"], ["s"], name="é\n\x01")
    taken = helper.make_node("SequenceAt", ["s", "i"], ["y"])
    graph = helper.make_graph(
        [made, taken],
        "sequences",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
        [numpy_helper.from_array(np.array(1), "i")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    _, observation = observed(model.SerializeToString())
    seen = observation.graph
    assert seen is not None
    assert differences(seen, importer.read(model)) == []


# ---- Where it cannot be


def test_why_not_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert observer.why_not() == ""
    with monkeypatch.context() as patch:
        patch.setattr(ort, "__version__", "1.22.1")
        assert observer.why_not() == (
            "onnxruntime 1.22.1 has no plug-in execution providers; install onnxruntime 1.23 or later"
        )
    monkeypatch.setattr(observer, "_LIBRARY", tmp_path / "libperfpass_ort.so")
    assert observer.native_library() is None
    assert "libperfpass_ort.so is missing" in observer.why_not()
    observation = observer.observe(quiet())
    assert observation.problem == observer.why_not()
    assert observation.graph is None and len(observation.drain_runs()) == 0


class _ApiBase(ctypes.Structure):
    _fields_ = [
        ("GetApi", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)),
        ("GetVersionString", ctypes.CFUNCTYPE(ctypes.c_char_p)),
    ]


def test_a_runtime_without_our_version_of_the_api_gets_no_factory() -> None:
    library = ctypes.CDLL(str(observer.native_library()))
    asked: list[int] = []
    base = _ApiBase(
        _ApiBase._fields_[0][1](lambda version: asked.append(version)), _ApiBase._fields_[1][1](lambda: b"1.22.0")
    )
    count = ctypes.c_size_t(9)
    factories = (ctypes.c_void_p * 4)()
    library.CreateEpFactories.restype = ctypes.c_void_p
    assert library.CreateEpFactories(b"x", ctypes.byref(base), None, factories, 4, ctypes.byref(count)) is None
    assert count.value == 0 and asked[0] == 23


def run_python(*arguments: str, first: Path | None = None) -> str:
    # What pytest imports from is what the child shall import from, and never the folder that it stands in, which is the
    # source tree without the provider; another onnxruntime comes before all.
    path = [str(first)] * (first is not None) + [p for p in sys.path if p]
    done = subprocess.run(
        [sys.executable, "-P", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


PREAMBLE = """
import os, sys, numpy as np, onnxruntime as ort
from ort_extension import observer
def look(path):
    options = ort.SessionOptions()
    observation = observer.observe(options)
    session = ort.InferenceSession(path, options)
    session.run(None, {"x0": np.ones((4, 8), np.float32)})
    return session, observation
"""


@pytest.fixture
def small(tmp_path: Path) -> str:
    path = tmp_path / "small.onnx"
    path.write_bytes(small_model(repeats=3))
    return str(path)


def test_a_library_that_was_registered_before_serves_as_well(small: str) -> None:
    script = """
import onnxruntime, ort_extension.observer as o
onnxruntime.register_execution_provider_library("somebody", str(o.native_library()))
"""
    script += PREAMBLE + "s, o = look(sys.argv[1]); print(o.graph.node_count, len(o.drain_runs()), o.problem)"
    assert run_python("-c", script, small).split() == ["3", "1", "None"]


def test_a_library_can_be_registered_twice_and_unregistered_while_sessions_live(small: str) -> None:
    script = (
        PREAMBLE
        + """
session, first = look(sys.argv[1])
ort.register_execution_provider_library("again", str(observer.native_library()))
print(look(sys.argv[1])[1].graph.node_count)
ort.unregister_execution_provider_library("again")
ort.unregister_execution_provider_library("perfpass")
session.run(None, {"x0": np.ones((4, 8), np.float32)})
print(len(first.drain_runs()), look(sys.argv[1])[1].graph.node_count)
"""
    )
    assert run_python("-c", script, small).split() == ["3", "2", "3"]


def test_a_forked_process_observes_its_own_sessions(small: str) -> None:
    script = (
        PREAMBLE
        + """
session, before = look(sys.argv[1])
child = os.fork()
if child == 0:
    inner, seen = look(sys.argv[1])
    good = seen.graph.node_count == 3 and len(seen.drain_runs()) == 1 and before.graph.node_count == 3
    os._exit(0 if good else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), len(before.drain_runs()))
"""
    )
    assert run_python("-c", script, small).split() == ["0", "1"]


def test_a_process_may_end_with_sessions_alive(small: str) -> None:
    assert run_python("-c", PREAMBLE + "kept = look(sys.argv[1]); print(kept[1].nodes)", small).split() == ["3"]


def releases() -> list[Path]:
    """Folders with other releases of onnxruntime: from PERFPASS_ORT_RELEASES, or as bootstrap.sh unpacks them."""
    named = os.environ.get("PERFPASS_ORT_RELEASES")
    if named:
        return [Path(p) for p in named.split(os.pathsep)]
    build = Path(__file__).resolve().parents[2] / "build"
    return sorted(p for p in build.glob("onnxruntime-*") if (p / "onnxruntime").is_dir())


NEEDED = ("resnet18", "mobilenetv3", "bert", "loop-and-if", "int8-qdq", "gpt2-dynamic", "functions", "lstm")


@pytest.mark.parametrize("release", releases() or [None], ids=lambda p: p.name if p else "none")
def test_one_binary_serves_other_releases(models: dict[str, Path], release: Path | None) -> None:
    if release is None:
        pytest.skip("no other release of onnxruntime is unpacked (bootstrap.sh test puts them under build/)")
    script = Path(__file__).with_name("ort_session_check.py")
    paths = [str(models[name]) for name in NEEDED]
    results = [json.loads(line) for line in run_python(str(script), *paths, first=release).splitlines()]
    version = re.search(r'__version__ = "([^"]+)"', (release / "onnxruntime" / "__init__.py").read_text())
    expected = {"problem": None, "differences": [], "same_bits": True, "runs": 1}
    assert version is not None
    assert results == [{"release": version[1], **expected}] * len(NEEDED)
