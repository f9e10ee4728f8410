"""ONNX files of tf2onnx, from the networks of Keras of `tflite_files`."""

from __future__ import annotations

import tempfile
from pathlib import Path

import tflite_files
from row import NotMadeError, Reading

import perfpass

TITLE = "ONNX files by tf2onnx"
PACKAGES = ("tf2onnx", "tensorflow_cpu", "keras")
models = tflite_files.networks
_FOLDED = (
    "batch normalisations are folded in part; an image's mean and variance and the states that loops begin with are "
    "constants"
)


def read(model: str) -> Reading:
    """The file at a batch of 1, beside the MACs of Keras's own archive and Keras's count with batch norms folded."""
    import tensorflow as tf
    import tf2onnx

    made = tflite_files.network(model)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        try:
            declared = [tf.TensorSpec(i.shape, i.dtype, name=f"x{n}") for n, i in enumerate(made.inputs)]
            function = tf.function(lambda *given: made(list(given), training=False), input_signature=declared)
            tf2onnx.convert.from_function(function, declared, opset=18, output_path=str(file))
        except Exception as error:
            raise NotMadeError(f"tf2onnx: {type(error).__name__}: {str(error)[:200]}") from error
        graph = perfpass.load(file, batch=1)
        macs = tflite_files.archive_macs(made, folder)
    return Reading(graph, macs, tflite_files.folded(made), _FOLDED)
