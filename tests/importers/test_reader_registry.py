"""Readers that other packages bring: declared by entry points, or registered by their code."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest

import perfpass
from perfpass import extensions
from perfpass.errors import ArgumentError, UnsupportedError
from perfpass.importers import onnx, readers
from perfpass.importers.readers import Reader

SHIPPED = ("file", "onnxruntime", "relay", "relax")


@pytest.fixture
def nothing_known(monkeypatch):
    """No reader but our own: nothing registered, nothing declared."""
    monkeypatch.setattr(extensions, "_registered", {})
    monkeypatch.setattr(extensions, "_declared", lambda group: {})


class Network:
    """A model of a framework that perfpass does not know."""


class NetworkReader(Reader):
    """Reads a `Network`: the graph of a file."""

    name = "network"

    def __init__(self, path):
        self.path = path

    def owns(self, model):
        return isinstance(model, Network)

    def load(self, model, dims):
        return onnx.read(self.path, dims=dims)

    def read_file(self, path, sizes):
        return onnx.read(path, **sizes), "1.0"


def test_a_registered_reader_loads_and_predicts_its_models(nothing_known, examples):
    with pytest.raises(ArgumentError, match=r"cannot read a model from .*Network"):
        perfpass.load(Network())
    readers.register(NetworkReader(examples / "resnet50.onnx"))
    readers.register(NetworkReader(examples / "resnet50.onnx"))
    assert readers.names() == ("file", "network")
    expected = perfpass.load(examples / "resnet50.onnx")
    assert perfpass.load(Network()).node_count == expected.node_count
    assert perfpass.predict(Network(), "a100") == perfpass.predict(expected, "a100")


def test_an_entry_point_is_imported_when_its_name_is_asked_for(nothing_known, monkeypatch):
    points = {
        "xyz": EntryPoint("xyz", "json:loads", readers.GROUP),
        "gone": EntryPoint("gone", "no_such_package.reader:reader", readers.GROUP),
        "renamed": EntryPoint("renamed", "json:no_such_name", readers.GROUP),
    }
    monkeypatch.setattr(extensions, "_declared", lambda group: points if group == readers.GROUP else {})
    assert readers.names() == ("file", "xyz", "gone", "renamed")
    import json

    assert extensions.find(readers.GROUP, "xyz") is json.loads
    for name in ("gone", "renamed"):
        with pytest.raises(UnsupportedError, match=f"{name}: .*cannot be imported"):
            readers.reader(name)
    extensions.register(readers.GROUP, "xyz", 1)  # in the place of what is declared
    assert extensions.find(readers.GROUP, "xyz") == 1 and readers.names()[1] == "xyz"


def test_an_unknown_reader_is_refused_with_the_known_ones(nothing_known):
    with pytest.raises(ArgumentError, match="unknown reader nix; allowed are file"):
        readers.reader("nix")


def test_a_reader_of_files_refuses_models(nothing_known):
    own = readers.reader("file")
    assert not own.owns(Network())
    with pytest.raises(UnsupportedError, match="file reads files alone, not Network"):
        own.load(Network(), None)


def test_tvm_without_its_reader_names_what_to_install(nothing_known):
    module = type("IRModule", (), {"__module__": "tvm.ir.module"})()
    with pytest.raises(UnsupportedError, match=r"perfpass\[tvm\]"):
        perfpass.load(module)
    with pytest.raises(UnsupportedError, match=r"perfpass\[tvm\]"):
        perfpass.predict(module, "a100")


def test_partition_without_its_package_names_what_to_install(nothing_known, examples, tmp_path, capsys):
    from perfpass.cli import main

    options = ["--device", "l4", "-o", str(tmp_path / "m.csv")]
    assert main(["partition", str(examples / "resnet50.onnx"), *options]) == UnsupportedError.exit_code
    assert "perfpass[onnxruntime]" in capsys.readouterr().err


def test_the_installed_package_declares_its_readers():
    """In a process that imports no adapter itself: what pip has written is enough."""
    code = "from perfpass.importers import readers; print(*readers.names())"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert tuple(found.stdout.split())[: len(SHIPPED)] == SHIPPED


@pytest.mark.parametrize("package", ["tvm_perfpass", "ort_extension"])
def test_an_adapter_registers_its_readers_without_importing_its_tool(package):
    tools = ("tvm", "onnxruntime", "onnx", "numpy", "importlib.metadata")
    code = (
        f"import sys, {package}; from perfpass import extensions; print(*(n for _, n in extensions._registered)); "
        f"print([m for m in {tools!r} if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names = {"tvm_perfpass": "relay relax", "ort_extension": "onnxruntime partition"}
    assert found.stdout.splitlines() == [names[package], "[]"]


def test_a_file_is_loaded_without_looking_for_readers(examples):
    code = (
        f"import sys, perfpass; perfpass.load({str(examples / 'resnet50.onnx')!r}); "
        "print([m for m in ('importlib.metadata', 'tvm_perfpass', 'ort_extension') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
