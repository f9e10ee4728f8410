"""Promises of the repository itself: what is tracked, what is imported, what its examples do."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tomllib

ROOT = Path(__file__).resolve().parents[2]
LARGEST_FILE_BYTES = 20e6
EXAMPLES_BYTES = 12e6
# Written in pieces, so that this file does not contain them.
MACHINE_PATHS = tuple("/" + folder for folder in ("work/", "root/", "home/", "opt/wheels", "opt/pypi"))
REGISTRY_HOSTS = ("pypi" + ".org", "files.python" + "hosted", "deb." + "debian.org", "registry." + "npmjs")
IMPORTED_WHERE_USED = (
    "torch",
    "torchvision",
    "torch_geometric",
    "timm",
    "transformers",
    "onnx",
    "onnxruntime",
    "tvm",
    "pandas",
    "pyarrow",
    "scipy",
    "xgboost",
    "networkx",
    "matplotlib",
)


def tracked_files() -> list[Path]:
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("not a git checkout, or git is not installed")
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in names.split("\0") if name and (ROOT / name).exists()]


def text_of(path: Path) -> str | None:
    try:
        return path.read_text()
    except UnicodeDecodeError:
        return None


def test_no_tracked_file_names_a_machine_path_or_a_registry_host():
    found = [
        f"{path.relative_to(ROOT)}: {pattern}"
        for path in tracked_files()
        if (text := text_of(path)) is not None
        for pattern in (*MACHINE_PATHS, *REGISTRY_HOSTS)
        if pattern in text and re.search(rf"(?<![\w.]){re.escape(pattern)}", text)  # the first is a tenth of the time
    ]
    assert not found


def test_tracked_files_stay_small():
    sizes = {str(path.relative_to(ROOT)): path.stat().st_size for path in tracked_files()}
    assert {name: size for name, size in sizes.items() if size > LARGEST_FILE_BYTES} == {}
    assert sum(size for name, size in sizes.items() if name.startswith("examples/")) < EXAMPLES_BYTES


def test_no_build_product_is_tracked():
    products = {".so", ".o", ".a", ".pyc", ".whl", ".pkl", ".pickle", ".pt", ".pth"}
    assert [path for path in tracked_files() if path.suffix in products] == []


def test_no_module_has_a_name_that_says_nothing():
    vague = re.compile(r"(utils?|helpers?|common|misc)")
    assert [path for path in tracked_files() if vague.fullmatch(path.stem) or vague.fullmatch(path.parent.name)] == []


def requirement_lines(name: str) -> list[str]:
    lines = (line.split("#")[0].strip() for line in (ROOT / name).read_text().splitlines())
    return [line for line in lines if line and not line.startswith("-r ")]


def test_every_requirement_is_pinned_to_the_tested_version():
    tested = requirement_lines("constraints.txt")
    for name in ("requirements.txt", "requirements-build.txt", "requirements-test.txt"):
        for line in requirement_lines(name):
            assert re.fullmatch(r"[\w.-]+==[\w.+]+", line), f"{name}: {line}"
            assert line in tested, f"{name}: {line} is not the version of constraints.txt"


def test_the_build_backend_is_the_one_that_is_installed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert set(project["build-system"]["requires"]) <= set(requirement_lines("requirements-build.txt"))


def test_the_core_knows_no_python_and_no_framework():
    for path in (ROOT / "cpp_kernels").rglob("*.?pp"):
        if "bindings" not in path.parts:
            assert not re.search(r'#include (<|")(Python|nanobind|tvm|dlpack)[./]|#include <onnx', path.read_text()), (
                path
            )


@pytest.mark.parametrize(
    "statement",
    ["import perfpass", "import tvm_perfpass", "from perfpass.predictors import predict", "import perfpass.cli"],
)
def test_heavy_packages_are_imported_where_they_are_used(statement):
    program = f"import sys; {statement}; print(*(set(sys.modules) & {set(IMPORTED_WHERE_USED)!r}))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


def test_bootstrap_refuses_an_unknown_command_and_lists_the_known_ones():
    run = subprocess.run(["bash", "bootstrap.sh", "nonsense"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "unknown command 'nonsense'" in run.stderr
    help_text = subprocess.run(["bash", "bootstrap.sh"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    checks = ("test", "check", "sanitize", "threads", "lint", "typecheck", "tidy")
    for command in (*checks, "demo", "benchmark", "figures", "docs"):
        assert re.search(rf"^  {command} ", help_text, re.MULTILINE)


@pytest.mark.slow
def test_the_relay_example_shows_the_prediction_before_and_after_the_build(tmp_path):
    program = ROOT / "examples" / "relay_example.py"
    run = subprocess.run([sys.executable, program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "latency" in run.stdout and "'median'" in run.stdout
    assert (tmp_path / "resnet18.so").exists()


def test_the_example_device_is_read():
    run = subprocess.run(
        [
            *(sys.executable, "-m", "perfpass", "predict", "examples/resnet50.onnx", "--json"),
            *("--device", "edge-gpu", "--device-file", "examples/custom_device.toml"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert '"edge-gpu"' in run.stdout


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.onnx")), ids=lambda path: path.stem)
def test_every_example_is_structure_only_and_fully_understood(path):
    import onnx

    from perfpass.importers.onnx import read

    model = onnx.load(path, load_external_data=False)
    assert all(len(tensor.raw_data) <= 1024 and not tensor.external_data for tensor in model.graph.initializer)
    graph = read(path, dims={"batch": 1, "sequence": 128} if path.stem.endswith("_dynamic") else None)
    assert graph.unknown_operators == {}
