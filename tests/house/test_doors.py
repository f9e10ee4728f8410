"""A door whose package is missing says which package, and which extra of perfpass brings it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from perfpass import cli, load
from perfpass.errors import DeviceError, UnsupportedError, missing_package
from perfpass.toml_table import parse

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = parse((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def features() -> Any:
    from perfpass.features import extract

    return extract(load(ROOT / "examples" / "resnet50.onnx"))


def named(source: str, name: str) -> Any:
    from perfpass.importers import model_sources

    return getattr(model_sources, source)(name)


def configuration(tmp_path: Path) -> Any:
    (tmp_path / "config.json").write_text('{"model_type": "bert", "hidden_size": 64}')
    return load(tmp_path)


def parquet(tmp_path: Path) -> Any:
    from perfpass.devices import device
    from perfpass.records import own_device

    (tmp_path / "rows.parquet").write_bytes(b"PAR1")
    return own_device.read(tmp_path / "rows.parquet", device("a100-80gb"))


def shipped_records(tmp_path: Path) -> Any:
    from perfpass import evidence

    return evidence.table.read(evidence.path())


def picture(tmp_path: Path) -> Any:
    from perfpass.measure.roofline.figure import save_figure

    return save_figure({}, tmp_path / "roofline.svg")


def runtime(name: str, model: str = "onnx:x") -> Any:
    from perfpass.measure.configuration import Configuration
    from perfpass.measure.runners import open_session

    return open_session(Configuration(model=model, device="cpu", runtime=name), None)


def cluster() -> Any:
    from perfpass.measure.cluster import RayPool

    return RayPool("auto", ["cpu"])


def exporter() -> Any:
    from perfpass.exporter import EngineLoad, Load

    return EngineLoad(Load(1.0, 0.0, 1.0, 1.0), [lambda: ""])()


def relay() -> Any:
    import tvm_perfpass

    return tvm_perfpass.build


def relax() -> Any:
    from tvm_perfpass.releases import need

    return need("relax")


def onnxruntime_session() -> Any:
    import ort_extension

    return ort_extension.InferenceSession


def pipeline(tmp_path: Path) -> Any:
    (tmp_path / "model_index.json").write_text('{"_class_name": "FluxPipeline", "_diffusers_version": "0.42.1"}')
    return load(tmp_path)


DOORS = {
    "Features.adjacency": ("scipy", "graphs", lambda path: features().adjacency()),
    "Features.to_pyg": ("torch_geometric", "pyg", lambda path: features().to_pyg()),
    "OpGraph.to_networkx": ("networkx", "graphs", lambda path: load(ROOT / "examples/resnet50.onnx").to_networkx()),
    "timm": ("timm", "timm", lambda path: named("timm", "resnet18")),
    "torchvision": ("torchvision", "timm", lambda path: named("torchvision", "resnet18")),
    "config.json": ("transformers", "transformers", configuration),
    "config.json without torch": ("torch", "transformers", configuration),
    "pipeline": ("diffusers", "diffusers", pipeline),
    "measured table": ("pyarrow", "records", parquet),
    "evidence": ("pyarrow", "evidence", shipped_records),
    "roofline": ("matplotlib", "measure", picture),
    "onnxruntime measured": ("onnxruntime", "onnxruntime", lambda path: runtime("onnxruntime")),
    "openvino measured": ("openvino", "openvino", lambda path: runtime("openvino")),
    "litert measured": ("ai_edge_litert", "litert", lambda path: runtime("litert", "file:x")),
    "ray": ("ray", "ray", lambda path: cluster()),
    "metrics": ("prometheus_client", "metrics", lambda path: exporter()),
    "Relay": ("tvm", "tvm", lambda path: relay()),
    "Relax": ("tvm", "relax", lambda path: relax()),
    "InferenceSession": ("onnxruntime", "onnxruntime", lambda path: onnxruntime_session()),
}
COMMANDS = {
    "measure": ("psutil", "measure", ["measure", "timm:resnet18"]),
    "roofline": ("matplotlib", "measure", ["roofline"]),
    "train": ("pyarrow", "train", ["train", "--area", "mig", "-o", "{tmp}"]),
    "evaluate": ("pyarrow", "train", ["evaluate", "--area", "mig"]),
    "completion": ("shtab", "completion", ["completion", "bash"]),
    "serve": ("uvicorn", "serve", ["serve", "--port", "0"]),
    "ui": ("fastapi", "ui", ["ui", "--port", "0"]),
    "mcp": ("mcp", "mcp", ["mcp"]),
}


def block(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """As if ``package`` were not installed, also for modules that import it at their top."""
    for name in list(sys.modules):
        if name.startswith(("perfpass.measure.runners.", "perfpass.serve.", "perfpass.ui.", "ort_extension.session")):
            monkeypatch.delitem(sys.modules, name)
        elif name.startswith(f"{package}."):  # loaded by another test
            monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, package, None)


@pytest.mark.parametrize("door", DOORS)
def test_a_door_without_its_package_names_the_extra(door, monkeypatch, tmp_path):
    package, extra, use = DOORS[door]
    block(monkeypatch, package)
    with pytest.raises(UnsupportedError) as raised:
        use(tmp_path)
    assert f"needs the package {package}, which is not installed: pip install 'perfpass[{extra}]'" in str(raised.value)
    assert extra in EXTRAS


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_without_its_package_names_the_extra(command, monkeypatch, tmp_path, capsys):
    package, extra, arguments = COMMANDS[command]
    block(monkeypatch, package)
    code = cli.main([a.format(tmp=tmp_path / "out") for a in arguments])
    said = capsys.readouterr().err
    assert code == UnsupportedError.exit_code, said
    assert f"`perfpass {command}`" in said or command == "completion"
    assert f"the package {package}, which is not installed: pip install 'perfpass[{extra}]'" in said
    assert extra in EXTRAS


def test_energy_without_nvml_names_the_extra(monkeypatch):
    from perfpass.measure.nvml import Gpu

    block(monkeypatch, "pynvml")
    with pytest.raises(DeviceError, match=r"pip install 'perfpass\[measure\]'"):
        Gpu()


def test_a_package_that_is_there_and_does_not_load_says_why():
    said = str(missing_package(ImportError("libcudart.so.12: cannot open", name="torch"), "torch", "a step"))
    assert said == (
        "a step needs the package torch, which cannot be imported (libcudart.so.12: cannot open): "
        "pip install 'perfpass[torch]'"
    )


def test_what_the_wheel_leaves_out_is_said_to_be_in_the_source_tree(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("perfpass.study.")]:  # loaded by another test
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "perfpass.study", None)
    with pytest.raises(ImportError) as raised:
        importlib.import_module("perfpass.study.evaluate")
    assert "in the source tree and not in the installed package" in str(
        missing_package(raised.value, "train", "`perfpass evaluate`")
    )


def test_every_extra_that_is_named_in_the_sources_exists():
    import re

    for folder in ("python", "tvm_perfpass", "ort_extension"):
        for path in (ROOT / folder).rglob("*.py"):
            for extra in re.findall(r'(?:needs|missing_package)\((?:\w+, )?"([\w-]+)"', path.read_text()):
                assert extra in EXTRAS, f"{path}: {extra}"
