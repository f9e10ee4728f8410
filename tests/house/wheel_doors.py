"""What an installed wheel must do where nothing else is installed and no compiler is found (`bash bootstrap.sh wheel`).

usage: wheel_doors.py MODEL.onnx
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

FACES = (
    "perfpass",
    "perfpass.annotation",
    "perfpass.calibrate",
    "perfpass.deploy",
    "perfpass.devices",
    "perfpass.features",
    "perfpass.graph",
    "perfpass.importers",
    "perfpass.llm",
    "perfpass.measure",
    "perfpass.predictors",
    "perfpass.report",
    "perfpass.report.page",
    "perfpass.search",
    "tvm_perfpass",
    "tvm_perfpass.relay",
    "tvm_perfpass.relax",
    "ort_extension",
)
LEFT_OUT = ("perfpass.study",)


def main(model: str) -> None:
    """Raises where something is not as it should be."""
    for compiler in ("cc", "c++", "gcc", "g++", "clang", "cmake"):
        assert shutil.which(compiler) is None, compiler
    for face in FACES:
        __import__(face)
    import perfpass

    for name in perfpass.__all__:
        getattr(perfpass, name)
    for name in LEFT_OUT:
        assert importlib.util.find_spec(name) is None, f"{name} is in the wheel"
    installed = sorted(d.name for d in importlib.metadata.distributions())
    assert set(installed) <= {"perfpass", "numpy", "tomli", "pip", "setuptools"}, installed
    assert importlib.metadata.version("perfpass") == perfpass.__version__
    files = [str(f) for f in importlib.metadata.files("perfpass") or ()]
    assert not [f for f in files if f.endswith((".cpp", ".hpp", ".cc", ".h", ".sh"))], "sources in the wheel"
    assert any(f.endswith("licenses/LICENSE") for f in files), "no licence in the wheel"
    for command, extra in (("completion bash", "completion"), ("measure timm:resnet18", "measure")):
        run = [sys.executable, "-m", "perfpass", *command.split()]
        said = subprocess.run(run, capture_output=True, text=True, check=False).stderr
        assert f"pip install 'perfpass[{extra}]'" in said, said
    print(perfpass.predict(model, "a100-80gb"))
    command = Path(sys.executable).with_name("perfpass")
    subprocess.run([command, "predict", model, "--device", "a100-80gb"], check=True)
    subprocess.run([command, "report", model, "--device", "a100-80gb", "-o", "report.html"], check=True)


if __name__ == "__main__":
    main(sys.argv[1])
