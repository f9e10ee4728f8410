"""Writes the TensorFlow Lite files of this folder with TensorFlow's own converter (tensorflow 2.21, keras 3.15).

``python tests/importers/files/make_tflite.py`` in an environment that has tensorflow; the tests need none. The networks
are those of ``tests/importers/test_tflite.py``, which builds them in PyTorch.
"""

from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from keras import layers

HERE = Path(__file__).parent


def block() -> keras.Model:
    image = keras.Input((32, 32, 3))
    x = layers.Conv2D(8, 3, strides=2, padding="same", use_bias=False)(image)
    x = layers.ReLU(6.0)(layers.BatchNormalization()(x))
    x = layers.DepthwiseConv2D(3, padding="same", use_bias=False)(x)
    x = layers.ReLU(6.0)(layers.BatchNormalization()(x))
    y = layers.Conv2D(8, 1)(x)
    x = layers.GlobalAveragePooling2D()(layers.Add()([x, y]))
    return keras.Model(image, layers.Softmax()(layers.Dense(10)(x)))


def decoder() -> keras.Model:
    image = keras.Input((16, 16, 4))
    x = layers.MaxPooling2D()(layers.Conv2D(8, 3, padding="same", activation="relu")(image))
    x = layers.Conv2D(8, 3, dilation_rate=2, padding="same")(x)
    x = layers.Conv2DTranspose(4, 2, strides=2)(x)
    x = layers.Concatenate()([x, image])
    x = layers.UpSampling2D(2, interpolation="bilinear")(x)
    return keras.Model(image, layers.Conv2D(3, 1, groups=1)(x))


def attention() -> keras.Model:
    tokens = keras.Input((12,), dtype="int32")
    x = layers.Embedding(30, 16)(tokens)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 8)(x, x))
    x = layers.LayerNormalization()(x + layers.Dense(16)(layers.Dense(32, activation="gelu")(x)))
    return keras.Model(tokens, layers.Dense(3)(x))


def recurrence() -> keras.Model:
    steps = keras.Input((9, 6))
    return keras.Model(steps, layers.Dense(2)(layers.GRU(5)(steps)))


def random_weights(model: keras.Model) -> None:
    """Every parameter its own number: converters share buffers that are alike."""
    numbers = np.random.default_rng(0)
    for weight in model.weights:
        if weight.dtype == "float32":
            weight.assign(numbers.uniform(0.1, 1.0, weight.shape))


def converted(model: keras.Model, batch: int | None, kind: str) -> bytes:
    source = model.inputs[0]
    if batch is not None:
        fixed = keras.Input(batch_shape=(batch, *source.shape[1:]), dtype=source.dtype)
        model = keras.Model(fixed, model(fixed))
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    if kind != "float32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if kind == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if kind == "int8":
        shape = (batch or 1, *source.shape[1:])
        converter.representative_dataset = lambda: ([np.full(shape, v, np.float32)] for v in (0.0, 1.0))
    return converter.convert()


def main() -> None:
    for name, network, batch, kind in (
        ("block", block, None, "float32"),
        ("block_fixed", block, 1, "float32"),
        ("block_int8", block, 1, "int8"),
        ("block_float16", block, 1, "float16"),
        ("decoder", decoder, 1, "float32"),
        ("attention", attention, None, "float32"),
        ("recurrence", recurrence, 1, "float32"),
    ):
        keras.utils.set_random_seed(0)
        model = network()
        random_weights(model)
        (HERE / f"{name}.tflite").write_bytes(converted(model, batch, kind))


if __name__ == "__main__":
    main()
