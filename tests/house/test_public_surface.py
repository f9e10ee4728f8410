"""What a user can import, and that importing it costs little."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import perfpass

SURFACE = {
    "perfpass": [
        "Device",
        "Interval",
        "OpGraph",
        "PerfPassError",
        "Prediction",
        "annotate",
        "device",
        "load",
        "predict",
        "predict_llm",
    ],
    "perfpass.devices": ["PRECISIONS", "Device", "MigGeometry", "MigProfile", "add_file", "catalogue", "device"],
    "perfpass.predictors": ["predict", "predict_graph"],
}
HEAVY = ("torch", "onnx", "tvm", "pandas", "scipy", "xgboost", "networkx", "shtab", "importlib.metadata", "numpy")


@pytest.mark.parametrize(("module", "names"), SURFACE.items())
def test_the_public_surface_is_exactly_this(module, names):
    found = importlib.import_module(module)
    assert sorted(found.__all__) == sorted(names)
    for name in names:
        assert getattr(found, name) is not None


def test_an_unknown_attribute_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nonsense"):
        _ = perfpass.nonsense


def test_every_error_is_one_root_with_an_exit_code_of_its_own():
    from perfpass import errors

    kinds = [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, errors.PerfPassError)]
    codes = [k.exit_code for k in kinds]
    assert len(set(codes)) == len(codes) and min(codes) == 1 and 0 not in codes


@pytest.mark.parametrize("statement", ["import perfpass", "import perfpass.cli; import perfpass.cli.parser"])
def test_importing_is_light(statement):
    code = f"import sys; {statement}; print([m for m in {HEAVY!r} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
