"""The network of `format_readers` as frameworks write it themselves: Keras, TensorFlow, Paddle; tensors of GGUF.

Blocks of a product with its bias, a Relu and a sum with the block's input. Every function raises ImportError without
its library.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.importers import gguf as gguf_file


def _blocks_of_keras(rows: int, width: int, blocks: int) -> Any:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    import keras

    fed = x = keras.Input((width,), batch_size=rows)
    for _ in range(blocks):
        x = keras.layers.Add()([keras.layers.Dense(width, activation="relu")(x), x])
    return keras.Model(fed, x)


def write_keras(path: Path, blocks: int, rows: int, width: int) -> None:
    """A `.keras` archive: Dense with its Relu, Add."""
    _blocks_of_keras(rows, width, blocks).save(path)


def keras_reader() -> Callable[[Path], Any]:
    """keras.saving.load_model."""
    import keras

    return lambda path: keras.saving.load_model(path, compile=False)


def write_saved_model(path: Path, blocks: int, rows: int, width: int) -> None:
    """A folder of TensorFlow: MatMul, BiasAdd, Relu, AddV2 in the function that it serves."""
    import tensorflow

    network = _blocks_of_keras(rows, width, blocks)
    served = tensorflow.TensorSpec((rows, width), tensorflow.float32)
    module = tensorflow.Module()
    module.network = network
    module.served = tensorflow.function(network, input_signature=[served])
    tensorflow.saved_model.save(module, str(path), signatures=module.served)


def saved_model_reader() -> Callable[[Path], Any]:
    """tf.saved_model.load."""
    import tensorflow

    return lambda path: tensorflow.saved_model.load(str(path))


def write_paddle(path: Path, blocks: int, rows: int, width: int) -> None:
    """PIR as JSON: matmul, add, relu, add."""
    import paddle

    class Blocks(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.layers = paddle.nn.LayerList([paddle.nn.Linear(width, width) for _ in range(blocks)])

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = paddle.nn.functional.relu(layer(x)) + x
            return x

    declared = [paddle.static.InputSpec([rows, width], "float32", "x")]
    paddle.jit.save(paddle.jit.to_static(Blocks(), input_spec=declared, full_graph=True), str(path.with_suffix("")))


def paddle_reader() -> Callable[[Path], Any]:
    """paddle.jit.load."""
    import paddle

    return lambda path: paddle.jit.load(str(path.with_suffix("")))


def write_gguf(path: Path, blocks: int, rows: int, width: int) -> None:
    """A language model's file: four tensors a block, as llama.cpp names those of a feed-forward network."""
    import gguf

    writer = gguf.GGUFWriter(str(path), "llama")
    for name, value in (("block_count", blocks), ("embedding_length", width), ("feed_forward_length", width)):
        writer.add_uint32(f"llama.{name}", value)
    for i in range(blocks):
        for part in ("ffn_gate", "ffn_up", "ffn_down"):
            writer.add_tensor(f"blk.{i}.{part}.weight", np.zeros((width, width), np.float16))
        writer.add_tensor(f"blk.{i}.ffn_norm.weight", np.zeros(width, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def gguf_reader() -> Callable[[Path], Any]:
    """gguf.GGUFReader."""
    import gguf

    return lambda path: gguf.GGUFReader(str(path))


def gguf_counted(path: Path) -> tuple[int, int]:
    """(tensors, numbers that they hold) of a file: GGUF has no operators, and its header is all that is read."""
    found = gguf_file.read(path)
    return len(found.tensors), found.elements


def gguf_numbers(blocks: int, rows: int, width: int) -> int:
    """What `gguf_counted` must find."""
    return blocks * (3 * width**2 + width)


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files of a folder."""
    return sum(one.stat().st_size for one in path.rglob("*") if one.is_file()) if path.is_dir() else path.stat().st_size
