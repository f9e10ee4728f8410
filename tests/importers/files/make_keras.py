"""Makes the Keras and TensorFlow models of these tests with the libraries themselves (tensorflow-cpu 2.21, Keras 3.15).

Run it in an environment of its own: the tests read what it leaves here and need neither.
"""

from __future__ import annotations

import shutil
import sys
import zipfile
from pathlib import Path

import keras
import tensorflow as tf
from keras import layers, ops
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

HERE = Path(__file__).resolve().parent


def vision() -> keras.Model:
    """Every kind of convolution, a model within the model, squeeze and excitation, operations, a shared layer."""
    block_input = keras.Input((None, None, 4))
    block = keras.Model(
        block_input, layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(4, 3, padding="same")(block_input)))
    )
    image = keras.Input((16, 16, 3), name="image")
    x = layers.Rescaling(1 / 255.0)(image)
    x = layers.Conv2D(4, 3, strides=2, padding="same", use_bias=False)(x)
    x = block(block(x))
    x = layers.DepthwiseConv2D(3, padding="same", activation="silu")(x)
    squeezed = layers.GlobalAveragePooling2D(keepdims=True)(x)
    x = layers.Multiply()([x, layers.Conv2D(4, 1, activation="sigmoid")(squeezed)])
    x = layers.SeparableConv2D(6, 3)(x) * 2.0
    x = layers.Conv2DTranspose(4, 3, strides=2, padding="same")(x)
    x = layers.Concatenate()([x, ops.relu(x)])
    x = layers.GlobalMaxPooling2D()(layers.MaxPooling2D()(x))
    shared = layers.Dense(8)
    return keras.Model(image, layers.Add()([shared(x), shared(ops.flip(x, axis=1))]), name="vision")


def sequence() -> keras.Model:
    """An embedding, recurrent layers and attention."""
    tokens = keras.Input((6,), dtype="int32", name="tokens")
    x = layers.Embedding(10, 4)(tokens)
    x = layers.Bidirectional(layers.LSTM(3, return_sequences=True))(x)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 3)(x, x))
    x = layers.TimeDistributed(layers.Dense(4, activation="gelu"))(x)
    return keras.Model(tokens, layers.GRU(3)(x), name="sequence")


def small() -> keras.Model:
    """A few layers and an operation, for the older format, which takes two kilobytes a weight."""
    image = keras.Input((8, 8, 3), name="image")
    x = layers.Conv2D(4, 3, activation="relu")(image)
    x = layers.BatchNormalization()(x) * 2.0
    return keras.Model(image, layers.Dense(2)(layers.Flatten()(x)), name="small")


class Convolutions(tf.Module):
    """A function as older code writes it, its variables beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = tf.Variable(tf.zeros((3, 3, 3, 4)))
        self.bias = tf.Variable(tf.zeros((4,)))
        self.factors = [tf.Variable(tf.ones((4,))) for _ in range(4)]
        self.dense = tf.Variable(tf.zeros((4, 5)))

    @tf.function(input_signature=[tf.TensorSpec((None, 8, 8, 3), tf.float32, name="image")])
    def __call__(self, image: tf.Tensor) -> tf.Tensor:
        """A convolution, a batch norm, a flattened pool and a dense layer."""
        x = tf.nn.conv2d(image, self.kernel, 2, "SAME") + self.bias
        scale, shift, mean, variance = self.factors
        x = tf.nn.relu(tf.nn.batch_normalization(x, mean, variance, shift, scale, 1e-3))
        x = tf.reshape(x, (tf.shape(x)[0], -1, 4))
        return tf.linalg.matmul(tf.reduce_mean(x, 1), self.dense)


class Loop(tf.Module):
    """A recurrence that is written as a loop over a list of tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = tf.Variable(tf.zeros((3, 4)))
        self.recurrent = tf.Variable(tf.zeros((4, 4)))

    @tf.function(input_signature=[tf.TensorSpec((None, 7, 3), tf.float32, name="steps")])
    def __call__(self, steps: tf.Tensor) -> tf.Tensor:
        """The last state."""
        state = tf.zeros((tf.shape(steps)[0], 4))
        parts = tf.TensorArray(tf.float32, 7).unstack(tf.transpose(steps, (1, 0, 2)))
        for step in tf.range(7):
            state = tf.tanh(parts.read(step) @ self.kernel + state @ self.recurrent)
        return state


def save() -> None:
    """Writes the files."""
    tf.keras.utils.set_random_seed(0)
    for model in (vision(), sequence()):
        whole = HERE / f"{model.name}.keras"
        model.save(whole)
        with zipfile.ZipFile(whole) as archive:
            entries = {name: archive.read(name) for name in archive.namelist()}
        with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:  # Keras stores; this keeps them small
            for name, content in entries.items():
                archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
        print(model.name, model.count_params(), file=sys.stderr)
    small().save(HERE / "small.h5")
    print("small", small().count_params(), file=sys.stderr)
    for name, module in (("convolutions", Convolutions()), ("loop", Loop())):
        folder = HERE / f"{name}.saved_model"
        tf.saved_model.save(module, str(folder), signatures={"serving_default": module.__call__})
        shutil.rmtree(folder / "variables")
        shutil.rmtree(folder / "assets", ignore_errors=True)
        (folder / "fingerprint.pb").unlink(missing_ok=True)
    convolutions = Convolutions()
    frozen = convert_variables_to_constants_v2(convolutions.__call__.get_concrete_function())
    (HERE / "frozen.pb").write_bytes(frozen.graph.as_graph_def().SerializeToString(deterministic=True))


if __name__ == "__main__":
    save()
