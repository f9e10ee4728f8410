"""All of keras.applications, each as a .keras archive, an HDF5 file and a SavedModel folder that are made here."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from row import NotMadeError, Reading

import perfpass
from perfpass.graph import OpGraph, costs
from perfpass.importers import formats

TITLE = "Keras applications"
PACKAGES = ("keras", "tensorflow_cpu")

MADE = Path(__file__).resolve().parents[2] / "build" / "coverage" / "keras"
_ROUTES = {"archive": "{}.keras", "HDF5": "{}.h5", "SavedModel": "{}_saved"}
_OPEN_SIZE = 224  # of networks that leave the image's size open
_NORMALISED = "an image's mean and variance are constants of the graph and no variables of the model"
_COUNTER = "the counter of its Normalization is one number and no parameter"


def models() -> list[str]:
    """NAME of every network and each of its routes."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import keras

    names = [name for name in dir(keras.applications) if name[0].isupper()]
    return [f"{name} ({route})" for name in names for route in _ROUTES]


def read(model: str) -> Reading:
    """The file's graph; parameters beside those that Keras counts, MACs beside those of the archive."""
    name, _, route = model.removesuffix(")").partition(" (")
    parameters = _made(name)
    graph = _graph(name, route)
    macs = None if route == "archive" else costs.count(_graph(name, "archive")).totals["macs"]
    difference = costs.count(graph).totals["parameters"] - parameters
    explained = {6: _NORMALISED, -1: _COUNTER}.get(difference, "")
    return Reading(graph, macs, parameters, explained)


def _graph(name: str, route: str) -> OpGraph:
    path = MADE / _ROUTES[route].format(name)
    found = formats.recognised(formats.Content.of(path))
    assert found is not None
    (image,) = found.inputs(path)
    sizes = {d: _OPEN_SIZE for d in image.shape or () if isinstance(d, str) and d != "batch"}
    return perfpass.load(str(path), batch=1, dims=sizes)


def _made(name: str) -> int:
    """Writes the files where they are not there yet; the parameters that Keras counts."""
    counted = MADE / f"{name}.parameters"
    if counted.exists():
        return int(counted.read_text())
    import keras

    MADE.mkdir(parents=True, exist_ok=True)
    try:
        network: Any = getattr(keras.applications, name)(weights=None)
        network.save(MADE / f"{name}.keras")
        network.save(MADE / f"{name}.h5")
        network.export(MADE / f"{name}_saved", verbose=False)
    except Exception as error:
        raise NotMadeError(f"{type(error).__name__}: {error}") from error
    shutil.rmtree(MADE / f"{name}_saved" / "variables")
    counted.write_text(str(network.count_params()))
    return int(network.count_params())
