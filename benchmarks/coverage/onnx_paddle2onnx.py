"""ONNX files of paddle2onnx, from the programs of `paddle_models`."""

from __future__ import annotations

import tempfile

import paddle_models
from row import NotMadeError, Reading

import perfpass
from perfpass.graph import costs

TITLE = "ONNX files by paddle2onnx"
PACKAGES = ("paddlepaddle", "paddle2onnx")
models = paddle_models.models


def read(model: str) -> Reading:
    """The file, beside what is counted on the program."""
    with tempfile.TemporaryDirectory() as folder:
        path = paddle_models.exported(model, f"{folder}/model")
        shapes, file = paddle_models.sizes(path), paddle_models.converted(path)
        if file is None:
            raise NotMadeError("paddle2onnx cannot write it")
        graph = perfpass.load(file, input_shape=shapes)
        totals = costs.count(perfpass.load(path, input_shape=shapes)).totals
    return Reading(graph, totals["macs"], totals["parameters"])
