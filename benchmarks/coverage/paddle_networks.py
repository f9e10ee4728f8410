"""Networks in paddle.nn that paddle.vision has not: language models, recurrent ones, detectors, control flow."""

from __future__ import annotations

import paddle
from paddle import nn
from paddle.nn import functional
from paddle.static import InputSpec


class Bert(nn.Layer):
    """An encoder as PaddleNLP's BertModel writes it."""

    def __init__(self, width: int = 256, heads: int = 4, layers: int = 4, vocabulary: int = 30522) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(512, width)
        self.norm = nn.LayerNorm(width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, layers)
        self.pooler = nn.Linear(width, width)

    def forward(self, ids):
        places = paddle.arange(ids.shape[1], dtype="int64").unsqueeze(0)
        mask = ((ids == 0).astype("float32") * -1e4).unsqueeze([1, 2])
        hidden = self.encoder(self.norm(self.words(ids) + self.places(places)), mask)
        return hidden, paddle.tanh(self.pooler(hidden[:, 0]))


class Decoder(nn.Layer):
    """One layer of LLaMA: RMS norm, rotary positions, grouped keys, SwiGLU."""

    def __init__(self, width: int, heads: int, shared: int) -> None:
        super().__init__()
        self.heads, self.shared, self.size = heads, shared, width // heads
        self.q = nn.Linear(width, width, bias_attr=False)
        self.k = nn.Linear(width, shared * self.size, bias_attr=False)
        self.v = nn.Linear(width, shared * self.size, bias_attr=False)
        self.o = nn.Linear(width, width, bias_attr=False)
        self.gate, self.up = (nn.Linear(width, 3 * width, bias_attr=False) for _ in range(2))
        self.down = nn.Linear(3 * width, width, bias_attr=False)
        self.first, self.second = (
            self.create_parameter([width], default_initializer=nn.initializer.Constant(1.0)) for _ in range(2)
        )

    def norm(self, x, weight):
        return x * paddle.rsqrt(paddle.mean(x * x, axis=-1, keepdim=True) + 1e-6) * weight

    def turned(self, x, cos, sin):
        left, right = paddle.chunk(x, 2, axis=-1)
        return x * cos + paddle.concat([-right, left], axis=-1) * sin

    def forward(self, x, cos, sin):
        batch, length = x.shape[:2]
        h = self.norm(x, self.first)
        q = self.q(h).reshape([batch, length, self.heads, self.size])
        k = self.k(h).reshape([batch, length, self.shared, self.size])
        v = self.v(h).reshape([batch, length, self.shared, self.size])
        q, k = self.turned(q, cos, sin), self.turned(k, cos, sin)
        k, v = (paddle.repeat_interleave(t, self.heads // self.shared, axis=2) for t in (k, v))
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(out.reshape([batch, length, self.heads * self.size]))
        h = self.norm(x, self.second)
        return x + self.down(functional.silu(self.gate(h)) * self.up(h))


class Llama(nn.Layer):
    def __init__(self, width: int = 256, heads: int = 8, shared: int = 2, layers: int = 3, vocabulary: int = 8000):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.layers = nn.LayerList([Decoder(width, heads, shared) for _ in range(layers)])
        self.head = nn.Linear(width, vocabulary, bias_attr=False)
        self.size = width // heads

    def forward(self, ids):
        rates = 1.0 / (10000.0 ** (paddle.arange(0, self.size, 2, dtype="float32") / self.size))
        angles = paddle.outer(paddle.arange(ids.shape[1], dtype="float32"), rates)
        angles = paddle.concat([angles, angles], axis=-1).unsqueeze([0, 2])
        x, cos, sin = self.words(ids), paddle.cos(angles), paddle.sin(angles)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.head(x)


class VisionTransformer(nn.Layer):
    def __init__(self, width: int = 192, heads: int = 3, layers: int = 4, patch: int = 16) -> None:
        super().__init__()
        self.patches = nn.Conv2D(3, width, patch, patch)
        self.first = self.create_parameter([1, 1, width])
        self.places = self.create_parameter([1, (224 // patch) ** 2 + 1, width])
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, activation="gelu", normalize_before=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, layers), nn.Linear(width, 1000)

    def forward(self, image):
        x = self.patches(image).flatten(2).transpose([0, 2, 1])
        x = paddle.concat([self.first.expand([x.shape[0], -1, -1]), x], axis=1) + self.places
        return self.head(self.encoder(x)[:, 0])


class Recurrent(nn.Layer):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.words = nn.Embedding(5000, 128)
        self.layers = getattr(nn, kind)(128, 96, num_layers=2, direction="bidirect")
        self.head = nn.Linear(192, 10)

    def forward(self, ids):
        return self.head(self.layers(self.words(ids))[0].mean(axis=1))


class Segmenter(nn.Layer):
    """A U-Net with transposed convolutions and group norms, and resized outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.LayerList([nn.Conv2D(i, o, 3, 2, 1) for i, o in ((3, 16), (16, 32), (32, 64))])
        self.norms = nn.LayerList([nn.GroupNorm(4, o) for o in (16, 32, 64)])
        self.up = nn.LayerList([nn.Conv2DTranspose(i, o, 4, 2, 1) for i, o in ((64, 32), (64, 16), (32, 8))])
        self.head = nn.Conv2D(8, 5, 1)

    def forward(self, image):
        kept, x = [], image
        for i, conv in enumerate(self.down):
            x = functional.silu(self.norms[i](conv(x)))
            kept.append(x)
        for i, conv in enumerate(self.up):
            x = functional.leaky_relu(conv(x if not i else paddle.concat([x, kept[-1 - i]], axis=1)))
        return functional.interpolate(self.head(x), scale_factor=2, mode="bilinear")


class Detector(nn.Layer):
    """A feature pyramid with heads on three levels, decoded to boxes, of the kind of PP-YOLOE."""

    def __init__(self, classes: int = 80) -> None:
        super().__init__()
        widths = (32, 64, 128, 256)
        self.body = nn.LayerList(
            [
                nn.Sequential(nn.Conv2D(i, o, 3, 2, 1, bias_attr=False), nn.BatchNorm2D(o), nn.Swish())
                for i, o in zip((3, *widths), widths, strict=False)
            ]
        )
        self.lateral = nn.LayerList([nn.Conv2D(w, 64, 1) for w in widths[1:]])
        self.heads = nn.LayerList([nn.Conv2D(64, classes + 4, 3, padding=1) for _ in range(3)])
        self.classes = classes

    def forward(self, image):
        x, levels = image, []
        for stage in self.body:
            x = stage(x)
            levels.append(x)
        levels = [lateral(levels[i + 1]) for i, lateral in enumerate(self.lateral)]
        for i in (1, 0):
            levels[i] = levels[i] + functional.interpolate(levels[i + 1], scale_factor=2, mode="nearest")
        found = [head(levels[i]).flatten(2) for i, head in enumerate(self.heads)]
        boxes, scores = paddle.split(paddle.concat(found, axis=2), [4, self.classes], axis=1)
        best, which = paddle.topk(functional.sigmoid(scores).max(axis=1), k=100, axis=1)
        return paddle.index_sample(boxes[:, 0], which), best


class Video(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv3D(3, 16, 3, 2, 1), nn.Conv3D(16, 32, 3, 2, 1)
        self.norm, self.head = nn.BatchNorm3D(16), nn.Linear(32, 10)

    def forward(self, clip):
        x = self.second(functional.relu(self.norm(self.first(clip))))
        return self.head(functional.adaptive_avg_pool3d(x, 1).flatten(1))


class ChannelsLast(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2D(3, 16, 3, 2, 1, data_format="NHWC")
        self.second = nn.Conv2D(16, 32, 3, 2, 1, groups=16, data_format="NHWC")
        self.head = nn.Linear(32, 10)

    def forward(self, image):
        x = functional.max_pool2d(functional.relu(self.first(image)), 2, data_format="NHWC")
        return self.head(functional.adaptive_avg_pool2d(self.second(x), 1, data_format="NHWC").flatten(1))


class Choosing(nn.Layer):
    """A choice by a value, and a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.narrow, self.wide, self.again = nn.Linear(64, 64), nn.Linear(64, 256), nn.Linear(64, 64)
        self.back = nn.Linear(256, 64)

    def forward(self, x):
        x = self.back(self.wide(x)) if x.sum() > 0 else self.narrow(x)
        step = paddle.zeros([1], "int64")
        while step < 3:
            x = self.again(x)
            step = step + 1
        return x


def networks() -> dict[str, tuple[nn.Layer, list[InputSpec]]]:
    """By name: the network and the declared inputs, with open sizes where the network allows them."""
    ids = [InputSpec([None, None], "int64", "ids")]
    image = [InputSpec([None, 3, 224, 224], "float32", "image")]
    return {
        "bert": (Bert(), ids),
        "llama": (Llama(), ids),
        "vit": (VisionTransformer(), image),
        "lstm": (Recurrent("LSTM"), [InputSpec([None, 32], "int64", "ids")]),
        "gru": (Recurrent("GRU"), [InputSpec([None, 32], "int64", "ids")]),
        "unet": (Segmenter(), [InputSpec([None, 3, None, None], "float32", "image")]),
        "detector": (Detector(), [InputSpec([None, 3, 320, 320], "float32", "image")]),
        "video": (Video(), [InputSpec([None, 3, 16, 112, 112], "float32", "clip")]),
        "channels_last": (ChannelsLast(), [InputSpec([None, 64, 64, 3], "float32", "image")]),
        "choosing": (Choosing(), [InputSpec([None, 64], "float32", "x")]),
    }


def quantised() -> tuple[nn.Layer, list[InputSpec]]:
    """LeNet after calibration of eight bits: quantize and dequantize around weights and activations."""
    from paddle.quantization import PTQ, QuantConfig
    from paddle.quantization.observers import AbsmaxObserver

    network = paddle.vision.models.LeNet()
    network.eval()
    observer = AbsmaxObserver(quant_bits=8)
    ptq = PTQ(QuantConfig(activation=observer, weight=observer))
    observed = ptq.quantize(network)
    observed(paddle.rand([2, 1, 28, 28]))
    return ptq.convert(observed), [InputSpec([1, 1, 28, 28], "float32", "image")]
