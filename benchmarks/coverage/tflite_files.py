"""TensorFlow Lite files of TensorFlow's own converter, from networks of Keras: classification, detection, segmentation,
language, recurrence; in single precision, half precision, dynamic range and 8 bits.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from row import NotMadeError, Reading

TITLE = "TensorFlow Lite of Keras"
PACKAGES = ("tensorflow_cpu", "keras")

_APPLICATIONS = {
    "MobileNet": (128, "float32 int8"),
    "MobileNetV2": (96, "float32 open float16 dynamic int8"),
    "MobileNetV3Small": (224, "float32"),
    "MobileNetV3Large": (224, "float32"),
    "EfficientNetB0": (224, "float32 int8"),
    "EfficientNetV2B0": (224, "float32"),
    "ResNet50": (224, "float32 float16"),
    "ResNet50V2": (224, "dynamic"),
    "DenseNet121": (224, "float32"),
    "InceptionV3": (299, "float32"),
    "Xception": (299, "dynamic"),
    "NASNetMobile": (224, "float32"),
    "ConvNeXtTiny": (224, "dynamic"),
}
_OWN = {
    "unet": "float32 open int8",
    "deeplab": "float32",
    "ssd": "float32 int8",
    "bert": "float32 open dynamic",
    "vit": "float32",
    "mixer": "float32",
    "lstm": "float32",
    "lstm_sequence": "float32",
    "bidirectional_lstm": "float32",
    "gru": "float32",
    "simple_rnn": "float32",
    "conv3d": "float32",
    "wavenet": "float32",
}
_NORMS = "the converter folds vectors of layer norms into the products behind them"
_SPLIT = "the converter folds some batch normalisations otherwise than counted here"
_EXPLAINED = {
    "lstm": "the states that loops begin with are constants",
    "gru": "the states that loops begin with are constants",
    "rnn": "the states that loops begin with are constants",
    "wavenet": "a depthwise convolution without a bias gets one",
    "Efficient": "an image's mean and variance are constants, and the counter of its Normalization is gone",
    "ConvNeXt": _NORMS,
    "bert": _NORMS,
    "vit": _NORMS,
    "DenseNet": _SPLIT,
    "Xception": _SPLIT,
    "NASNet": _SPLIT,
}


def models() -> list[str]:
    """NAME/KIND: kinds are float32 (batch of 1), open (batch left open), float16, dynamic and int8."""
    lists = {name: kinds for name, (_, kinds) in _APPLICATIONS.items()} | _OWN
    return [f"{name}/{kind}" for name, kinds in lists.items() for kind in kinds.split()]


def read(model: str) -> Reading:
    """The file at a batch of 1, beside the MACs of Keras's own archive and Keras's count with batch norms folded."""
    import perfpass

    name, kind = model.split("/")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tflite"
        try:
            made = network(name)
            path.write_bytes(_converted(made, kind))
        except Exception as error:
            raise NotMadeError(f"{type(error).__name__}: {str(error)[:200]}") from error
        graph = perfpass.load(path, batch=1)
        explained = next((why for part, why in _EXPLAINED.items() if part in name), "")
        return Reading(graph, archive_macs(made, folder), folded(made), explained)


def archive_macs(network: Any, folder: str) -> int:
    """MACs that are counted on the network's own archive at a batch of 1."""
    import perfpass
    from perfpass.graph import costs

    archive = Path(folder) / "model.keras"
    network.save(archive)
    return int(costs.count(perfpass.load(archive, batch=1)).totals["macs"])


def folded(network: Any) -> int:
    """Parameters once every batch norm is the bias of the convolution before it, or a product and a sum of vectors."""
    import keras

    total = int(network.count_params())
    for norm in network.layers:
        if isinstance(norm, keras.layers.BatchNormalization):
            before, each = norm.input._keras_history.operation, int(norm.moving_mean.shape[0])
            folds = hasattr(before, "kernel") or hasattr(before, "depthwise_kernel")
            total -= norm.count_params() - (each if folds else 2 * each)
            total -= each if folds and before.bias is not None else 0
    return total


def network(name: str) -> Any:
    """A network of Keras with no two vectors alike: converters share buffers of equal contents."""
    import keras
    import numpy as np

    keras.utils.set_random_seed(0)
    if name in _APPLICATIONS:
        size = _APPLICATIONS[name][0]
        made = getattr(keras.applications, name)(weights=None, input_shape=(size, size, 3))
    else:
        made = _own()[name]()
    numbers = np.random.default_rng(0)
    for weight in made.weights:
        if weight.dtype == "float32" and len(weight.shape) == 1:
            weight.assign(numbers.uniform(0.1, 1.0, weight.shape))
    return made


def networks() -> list[str]:
    """Names of all networks."""
    return [*_APPLICATIONS, *_OWN]


def _converted(network: Any, kind: str) -> bytes:
    import keras
    import numpy as np
    import tensorflow as tf

    source = network.inputs[0]
    if kind != "open":
        fixed = keras.Input(batch_shape=(1, *source.shape[1:]), dtype=source.dtype)
        network = keras.Model(fixed, network(fixed))
    converter = tf.lite.TFLiteConverter.from_keras_model(network)
    if kind in ("float16", "dynamic", "int8"):
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if kind == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if kind == "int8":
        shape = (1, *source.shape[1:])
        converter.representative_dataset = lambda: ([np.full(shape, v, np.float32)] for v in (0.0, 1.0))
    return converter.convert()


@cache
def _own() -> dict[str, Callable[[], Any]]:
    import keras
    from keras import layers

    def unet() -> Any:
        image = x = keras.Input((128, 128, 3))
        skips = []
        for width in (16, 32, 64):
            x = layers.Conv2D(width, 3, padding="same", activation="relu")(x)
            skips.append(x)
            x = layers.MaxPool2D()(x)
        x = layers.Conv2D(128, 3, padding="same", activation="relu")(x)
        for width, skip in zip((64, 32, 16), skips[::-1], strict=True):
            x = layers.Concatenate()([layers.Conv2DTranspose(width, 2, strides=2, padding="same")(x), skip])
            x = layers.Conv2D(width, 3, padding="same", activation="relu")(x)
        return keras.Model(image, layers.Conv2D(21, 1)(x))

    def backbone(size: int) -> Any:
        return keras.applications.MobileNetV2(weights=None, include_top=False, input_shape=(size, size, 3))

    def deeplab() -> Any:
        base = backbone(256)
        x = base.get_layer("block_13_expand_relu").output
        branches = [layers.Conv2D(64, 3, dilation_rate=d, padding="same", activation="relu")(x) for d in (1, 6, 12)]
        x = layers.Conv2D(21, 1)(layers.Concatenate()(branches))
        return keras.Model(base.input, layers.UpSampling2D(16, interpolation="bilinear")(x))

    def ssd() -> Any:
        base = backbone(224)
        boxes, scores = [], []
        for x in (base.get_layer("block_13_expand_relu").output, base.output):
            boxes.append(layers.Reshape((-1, 4))(layers.Conv2D(24, 3, padding="same")(x)))
            scores.append(layers.Reshape((-1, 91))(layers.Conv2D(6 * 91, 3, padding="same")(x)))
        score = layers.Activation("sigmoid")(layers.Concatenate(axis=1)(scores))
        return keras.Model(base.input, [layers.Concatenate(axis=1)(boxes), score])

    def layer(x: Any, width: int, heads: int) -> Any:
        x = layers.LayerNormalization()(x + layers.MultiHeadAttention(heads, width // heads)(x, x))
        return layers.LayerNormalization()(x + layers.Dense(width)(layers.Dense(4 * width, activation="gelu")(x)))

    def bert() -> Any:
        tokens = keras.Input((64,), dtype="int32")
        x = layers.LayerNormalization()(layers.Embedding(1000, 128)(tokens))
        for _ in range(4):
            x = layer(x, 128, 4)
        return keras.Model(tokens, layers.Dense(2)(x[:, 0]))

    def vit() -> Any:
        image = keras.Input((96, 96, 3))
        x = layers.Reshape((36, 192))(layers.Conv2D(192, 16, strides=16)(image))
        for _ in range(4):
            x = layer(x, 192, 3)
        return keras.Model(image, layers.Dense(100)(layers.GlobalAveragePooling1D()(x)))

    def mixer() -> Any:
        image = keras.Input((64, 64, 3))
        x = layers.Reshape((64, 64))(layers.Conv2D(64, 8, strides=8)(image))
        for _ in range(3):
            y = layers.Permute((2, 1))(layers.LayerNormalization()(x))
            x = x + layers.Permute((2, 1))(layers.Dense(64)(layers.Dense(32, activation="gelu")(y)))
            x = x + layers.Dense(64)(layers.Dense(256, activation="gelu")(layers.LayerNormalization()(x)))
        return keras.Model(image, layers.Dense(10)(layers.GlobalAveragePooling1D()(x)))

    def recurrent(of: Any) -> Callable[[], Any]:
        def network() -> Any:
            steps = keras.Input((20, 32))
            return keras.Model(steps, layers.Dense(5, activation="softmax")(of()(steps)))

        return network

    def conv3d() -> Any:
        film = keras.Input((8, 32, 32, 3))
        x = layers.Conv3D(8, 3, padding="same", activation="relu")(film)
        x = layers.Conv3DTranspose(8, 2, strides=2)(layers.Conv3D(16, 3, strides=2)(x))
        return keras.Model(film, layers.Dense(4)(layers.GlobalAveragePooling3D()(x)))

    def wavenet() -> Any:
        sound = x = keras.Input((1000, 1))
        for dilation in (1, 2, 4):
            x = layers.Conv1D(16, 3, padding="causal", dilation_rate=dilation, activation="tanh")(x)
        x = layers.MaxPool1D(4)(layers.SeparableConv1D(16, 5)(x))
        return keras.Model(sound, layers.Dense(10)(layers.Flatten()(x)))

    return {
        "unet": unet,
        "deeplab": deeplab,
        "ssd": ssd,
        "bert": bert,
        "vit": vit,
        "mixer": mixer,
        "lstm": recurrent(lambda: layers.LSTM(24)),
        "lstm_sequence": recurrent(lambda: layers.LSTM(24, return_sequences=True)),
        "bidirectional_lstm": recurrent(lambda: layers.Bidirectional(layers.LSTM(24))),
        "gru": recurrent(lambda: layers.GRU(24)),
        "simple_rnn": recurrent(lambda: layers.SimpleRNN(24)),
        "conv3d": conv3d,
        "wavenet": wavenet,
    }
