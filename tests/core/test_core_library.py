"""libperfpass_core as others link it: the figures of Python, from C and C++, by an installed package."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from core_library import LEVELS, NAMES, PREFIX, SHARED, Library, Refused

import perfpass
from perfpass.devices import device
from perfpass.errors import UnsupportedError
from perfpass.predictors.core_bundle import core_bundle
from small_quantised import convolutions_of_8_bits

ROOT = Path(__file__).parents[2]
MODELS = ("resnet50", "vit_base_patch16_224", "deberta_v3_large")
WAYS = (
    ("a100-80gb", "tensorrt", "fp16"),
    ("a100-80gb", "onnxruntime", "fp32"),
    ("a100-80gb:1g.10gb", "onnxruntime", "amp"),
    ("t4", "tensorrt", "int8"),
    ("p100", "tensorrt", "fp16"),
    ("jetson-nano-4gb", "onnxruntime", "fp16"),
    ("t4", "onnxruntime", "fp32"),
    ("mi300x", "onnxruntime", "fp16"),
    ("cpu", "onnxruntime", "fp32"),
    ("cpu", "tvm", "fp32"),
    ("cpu", "relax", "fp32"),
    ("xeon-platinum-8280", "onnxruntime", "fp32"),
)
# exp, log and pow of NumPy and of the C library may differ in the last bit.
SAME = 1e-12
SANITIZED = "-fsanitize=address,undefined -fno-omit-frame-pointer"

needs_library = pytest.mark.skipif(
    not SHARED.exists(), reason="no library in build/library; `bash bootstrap.sh library`"
)


def bundle_of(way: tuple[str, str, str]) -> bytes:
    target, runtime, precision = way
    return json.dumps(core_bundle(device(target), runtime=runtime, precision=precision), allow_nan=False).encode()


@pytest.fixture(scope="module")
def library() -> Library:
    return Library()


@needs_library
@pytest.mark.parametrize("way", WAYS, ids=" ".join)
@pytest.mark.parametrize("batch", [None, 7])
def test_the_core_predicts_what_python_does(library: Library, way: tuple[str, str, str], batch: int | None) -> None:
    target, runtime, precision = way
    bundle = bundle_of(way)
    for model in MODELS:
        path = ROOT / "examples" / f"{model}.onnx"
        how = {"runtime": runtime, "precision": precision, "batch": batch}
        wanted = perfpass.predict(path, device(target), calibration=False, **how)
        found = library.predict(bundle, path.read_bytes(), batch)
        intervals = {"alive": wanted.memory.alive, "reserved": wanted.memory.reserved}
        for name in NAMES:
            one, other = intervals.get(name) or getattr(wanted, name), getattr(found, name)
            expected = [one.median, one.low, one.high]
            assert [other.median, other.low, other.high] == pytest.approx(expected, rel=SAME), (model, name)
        assert LEVELS[found.support] == wanted.support.level
        assert found.batch == wanted.workload["batch"]
        assert found.reasons.decode().splitlines()[0] in wanted.support.reasons


@needs_library
@pytest.mark.parametrize("runtime", ["onnxruntime", "tvm", "torch"])
def test_the_core_predicts_a_quantised_file_as_python_does(library: Library, runtime: str) -> None:
    content, target = convolutions_of_8_bits(), "epyc-9654:4"
    wanted = perfpass.predict(content, target, runtime=runtime, calibration=False).latency_ms
    found = library.predict(bundle_of((target, runtime, "fp32")), content, None).latency_ms
    assert [found.median, found.low, found.high] == pytest.approx([wanted.median, wanted.low, wanted.high], rel=SAME)


@needs_library
def test_an_error_says_what_python_says(library: Library) -> None:
    with pytest.raises(Refused, match="predictor bundle: at byte"):
        library.predict(b"{]", b"")
    with pytest.raises(Refused, match="symbol"):
        library.graph((ROOT / "examples/deberta_v3_large_dynamic.onnx").read_bytes(), None)


@pytest.mark.parametrize(
    ("where", "runtime", "precision", "named"),
    [
        ("a100-80gb", "torch", "fp32", "torch in fp32 .*"),
        ("a100-80gb", "tensorrt", "w8a8", "w8a8"),
        ("xeon-platinum-8380", "onnxruntime", "w4a16", "w4a16"),
        ("xeon-platinum-8380", "openvino", "fp32", "openvino in fp32 .*"),
    ],
)
def test_what_only_python_predicts_is_refused(where: str, runtime: str, precision: str, named: str) -> None:
    with pytest.raises(UnsupportedError, match=f"{named} is predicted in Python alone"):
        core_bundle(device(where), runtime=runtime, precision=precision)


@needs_library
@pytest.mark.parametrize(
    ("name", "value"), [("lanes", 0.5), ("lanes", 4096), ("sets_bytes", 0.5), ("sets_bytes", 1e30)]
)
def test_a_bundle_with_no_such_processor_is_refused(library: Library, name: str, value: float) -> None:
    bundle = core_bundle(device("cpu"), runtime="tvm")
    bundle["time"][name] = value
    with pytest.raises(Refused, match=f"time.{name}: not from 1 to"):
        library.predict(json.dumps(bundle).encode(), b"")


# Of a header: members are indented, and a template, whose line stands before, is written out there.
DECLARED = re.compile(r"(?<!>\n)^(?!inline|constexpr)\w[\w:<>&* ]* (\w+)\(", re.M)
SHOWN = re.compile(r"\bperfpass::(\w+)(?:\[abi:\w+\])?\(")


@needs_library
@pytest.mark.skipif(shutil.which("nm") is None, reason="no nm")
def test_the_shared_library_shows_every_function_of_the_installed_headers() -> None:
    command = ["nm", "--dynamic", "--demangle", "--defined-only", str(SHARED)]
    shown = set(SHOWN.findall(subprocess.check_output(command, text=True)))
    headers = (PREFIX / "include/perfpass").glob("*.hpp")
    declared = {name for header in headers for name in DECLARED.findall(header.read_text())}
    assert {"read_onnx_file", "count_costs", "plan_memory"} <= declared
    assert not declared - shown


@needs_library
@pytest.mark.skipif(shutil.which("cmake") is None or shutil.which("c++") is None, reason="no compiler, or no CMake")
def test_the_example_builds_against_the_installed_package_and_predicts(tmp_path: Path) -> None:
    flags = [f"-DCMAKE_{language}_FLAGS={SANITIZED}" for language in ("C", "CXX")]
    configure = ["cmake", "-S", str(ROOT / "examples/cpp"), "-B", str(tmp_path), f"-DCMAKE_PREFIX_PATH={PREFIX}"]
    for command in ([*configure, *flags], ["cmake", "--build", str(tmp_path)]):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    bundle = tmp_path / "a100.json"
    bundle.write_bytes(bundle_of(WAYS[0]))
    model = ROOT / "examples/resnet50.onnx"
    wanted = perfpass.predict(model, "a100-80gb", runtime="tensorrt", precision="fp16", batch=8, calibration=False)
    shown = {}
    for program in ("predict_c", "predict_cpp", "predict_static"):
        done = subprocess.run(
            [str(tmp_path / program), str(model), str(bundle), "8"],
            capture_output=True,
            text=True,
            env={"PATH": os.environ["PATH"]},  # no Python is asked
        )
        assert done.returncode == 0, done.stderr
        shown[program] = done.stdout
    found = [float(word) for word in shown["predict_cpp"].splitlines()[1].split()[1:]]
    assert found == pytest.approx([wanted.latency_ms.median, wanted.latency_ms.low, wanted.latency_ms.high], rel=1e-8)
    assert shown["predict_static"] == shown["predict_cpp"]
    assert f"latency          {wanted.latency_ms.median:14.6g}" in shown["predict_c"]
    refused = subprocess.run([str(tmp_path / "predict_c"), "none.onnx", str(bundle)], capture_output=True, text=True)
    assert (refused.returncode, refused.stdout) == (1, "") and "none.onnx" in refused.stderr


@needs_library
@pytest.mark.skipif(shutil.which("pkg-config") is None, reason="no pkg-config")
def test_pkg_config_finds_it() -> None:
    where = {**os.environ, "PKG_CONFIG_PATH": str(PREFIX / "lib/pkgconfig")}
    command = ["pkg-config", "--cflags", "--libs", f"perfpass_core = {perfpass.__version__}"]
    done = subprocess.run(command, capture_output=True, text=True, env=where)
    assert done.returncode == 0, done.stderr
    include, library, name = done.stdout.split()
    assert (Path(include.removeprefix("-I")) / "perfpass/perfpass_core.h").is_file()
    assert (Path(library.removeprefix("-L")) / SHARED.name).is_file() and name == "-lperfpass_core"
