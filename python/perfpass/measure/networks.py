"""Networks of domains that no installed library defines, after their publications, with random weights (`net:NAME`).

Sizes are the publications' own where they state them. Each entry of `NAMES` says which paper it follows; embedding
tables of recommenders are cut to 100,000 rows or fewer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from perfpass.errors import UnsupportedError
from perfpass.measure import small_networks
from perfpass.measure.configuration import Configuration
from perfpass.measure.small_networks import layers

# Name, shape behind the batch, and how many numbers it holds (None: standard normal).
Inputs = tuple[tuple[str, tuple[int, ...], int | None], ...]


class Dlrm(nn.Module):
    """Naumov et al., "Deep Learning Recommendation Model", 2019: dense features and 26 tables, pairwise products."""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(26))
        self.bottom = layers(13, 512, 256, width)
        self.top = layers(27 * 26 // 2 + width, 1024, 1024, 512, 256, 1)

    def forward(self, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        """[B, 13], [B, 26] -> [B, 1]."""
        x = self.bottom(dense)
        vectors = torch.stack([x, *(table(sparse[:, i]) for i, table in enumerate(self.tables))], 1)
        products = vectors @ vectors.transpose(1, 2)
        row, column = torch.tril_indices(27, 27, -1)
        return torch.sigmoid(self.top(torch.cat([x, products[:, row, column]], 1)))


class WideAndDeep(nn.Module):
    """Cheng et al., "Wide & Deep Learning for Recommender Systems", 2016; `interactions` adds DeepFM's (Guo, 2017)."""

    def __init__(self, rows: int, width: int, fields: int, interactions: bool) -> None:
        super().__init__()
        self.wide, self.deep = nn.Embedding(rows, 1), nn.Embedding(rows, width)
        self.layers = layers(fields * width, 1024, 512, 256, 1)
        self.interactions = interactions

    def forward(self, sparse: torch.Tensor) -> torch.Tensor:
        """[B, fields] -> [B, 1]."""
        vectors = self.deep(sparse)
        found = self.wide(sparse).sum(1) + self.layers(vectors.flatten(1))
        if self.interactions:
            found = found + (vectors.sum(1) ** 2 - (vectors**2).sum(1)).sum(1, keepdim=True) / 2
        return torch.sigmoid(found)


class NeuMf(nn.Module):
    """He et al., "Neural Collaborative Filtering", 2017: a product and a perceptron of users and items."""

    def __init__(self, users: int, items: int) -> None:
        super().__init__()
        self.factors = nn.ModuleList([nn.Embedding(users, 64), nn.Embedding(items, 64)])
        self.features = nn.ModuleList([nn.Embedding(users, 128), nn.Embedding(items, 128)])
        self.layers, self.last = layers(256, 256, 128, 64), nn.Linear(128, 1)

    def forward(self, user: torch.Tensor, item: torch.Tensor) -> torch.Tensor:
        """[B], [B] -> [B, 1]."""
        product = self.factors[0](user) * self.factors[1](item)
        mixed = self.layers(torch.cat([self.features[0](user), self.features[1](item)], 1))
        return torch.sigmoid(self.last(torch.cat([product, mixed], 1)))


class Recurrent(nn.Module):
    """A language model of LSTM or GRU layers (Zaremba et al., "Recurrent Neural Network Regularization", 2014)."""

    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU], words: int, width: int, both_ways: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.layers = kind(width, width, 2, batch_first=True, bidirectional=both_ways)
        self.last = nn.Linear(width * (2 if both_ways else 1), words)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """[B, T] -> [B, T, words]."""
        found: torch.Tensor = self.last(self.layers(self.embedding(tokens))[0])
        return found


class DeepSpeech(nn.Module):
    """Amodei et al., "Deep Speech 2", 2016: two convolutions over a spectrogram, five recurrent layers, characters."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            *(nn.Conv2d(1, 32, (41, 11), (2, 2), (20, 5)), nn.BatchNorm2d(32), nn.Hardtanh(0, 20)),
            *(nn.Conv2d(32, 32, (21, 11), (2, 1), (10, 5)), nn.BatchNorm2d(32), nn.Hardtanh(0, 20)),
        )
        self.layers = nn.GRU(32 * 41, 400, 5, batch_first=True, bidirectional=True)
        self.last = nn.Linear(800, 29)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, 1, 161, T] -> [B, T / 2, 29]."""
        found: torch.Tensor = self.last(self.layers(self.convolutions(x).flatten(1, 2).transpose(1, 2))[0])
        return found


class SeparableBlock(nn.Module):
    """A block of QuartzNet: five time-channel separable convolutions and a shortcut."""

    def __init__(self, inputs: int, outputs: int, kernel: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for index in range(5):
            channels = inputs if index == 0 else outputs
            layers += [nn.Conv1d(channels, channels, kernel, padding=kernel // 2, groups=channels)]
            layers += [nn.Conv1d(channels, outputs, 1), nn.BatchNorm1d(outputs)]
            layers += [nn.ReLU()] if index < 4 else []
        self.layers = nn.Sequential(*layers)
        self.shortcut = nn.Sequential(nn.Conv1d(inputs, outputs, 1), nn.BatchNorm1d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, inputs, T] -> [B, outputs, T]."""
        return torch.relu(self.layers(x) + self.shortcut(x))


class Recognizer(nn.Module):
    """Kriman et al., "QuartzNet", 2020: five groups of ``repeats`` blocks over mel bands."""

    def __init__(self, repeats: int) -> None:
        super().__init__()
        blocks, inputs = [], 256
        for outputs, kernel in ((256, 33), (256, 39), (512, 51), (512, 63), (512, 75)):
            for _ in range(repeats):
                blocks.append(SeparableBlock(inputs, outputs, kernel))
                inputs = outputs
        self.first = nn.Sequential(nn.Conv1d(64, 256, 33, 2, 16), nn.BatchNorm1d(256), nn.ReLU())
        self.blocks = nn.Sequential(*blocks)
        self.last = nn.Sequential(nn.Conv1d(512, 512, 87, padding=86, dilation=2), nn.ReLU(), nn.Conv1d(512, 1024, 1))
        self.characters = nn.Sequential(nn.BatchNorm1d(1024), nn.ReLU(), nn.Conv1d(1024, 29, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, 64, T] -> [B, 29, T / 2]."""
        found: torch.Tensor = self.characters(self.last(self.blocks(self.first(x))))
        return found


class Residual(nn.Module):
    """``body`` beside a shortcut."""

    def __init__(self, *body: nn.Module, scale: float = 1.0) -> None:
        super().__init__()
        self.body, self.scale = nn.Sequential(*body), scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Same shape in and out."""
        return x + self.scale * self.body(x)


class Vocoder(nn.Module):
    """Kong et al., "HiFi-GAN", 2020, the generator: transposed convolutions and residual blocks of three kernels."""

    def __init__(self, width: int, resolved: tuple[tuple[int, int], ...]) -> None:
        super().__init__()
        self.first = nn.Conv1d(80, width, 7, padding=3)
        self.up, self.blocks = nn.ModuleList(), nn.ModuleList()
        for step, kernel in resolved:
            self.up.append(nn.ConvTranspose1d(width, width // 2, kernel, step, (kernel - step) // 2))
            width //= 2
            self.blocks.append(nn.ModuleList(self._block(width, size) for size in (3, 7, 11)))
        self.last = nn.Conv1d(width, 1, 7, padding=3)

    @staticmethod
    def _block(width: int, kernel: int) -> nn.Module:
        def residual(dilation: int) -> nn.Module:
            reach = dilation * (kernel - 1) // 2
            return Residual(
                *(nn.LeakyReLU(0.1), nn.Conv1d(width, width, kernel, padding=reach, dilation=dilation)),
                *(nn.LeakyReLU(0.1), nn.Conv1d(width, width, kernel, padding=kernel // 2)),
            )

        return nn.Sequential(*(residual(dilation) for dilation in (1, 3, 5)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Mel bands [B, 80, T] -> a waveform [B, 1, 256 T]."""
        x = self.first(x)
        for up, blocks in zip(self.up, self.blocks, strict=True):
            x = up(nn.functional.leaky_relu(x, 0.1))
            parts = [block(x) for block in blocks.children()]
            x = (parts[0] + parts[1] + parts[2]) / 3
        return torch.tanh(self.last(x))


class UNet(nn.Module):
    """Ronneberger et al., "U-Net", 2015, and in three dimensions Cicek et al., 2016; padded convolutions."""

    def __init__(self, dimensions: int, channels: int, widths: tuple[int, ...]) -> None:
        super().__init__()
        convolution: Any = nn.Conv2d if dimensions == 2 else nn.Conv3d
        transposed: Any = nn.ConvTranspose2d if dimensions == 2 else nn.ConvTranspose3d
        norm: Any = nn.BatchNorm2d if dimensions == 2 else nn.BatchNorm3d

        def block(a: int, b: int) -> nn.Module:
            parts = [(convolution(c, b, 3, padding=1), norm(b), nn.ReLU()) for c in (a, b)]
            return nn.Sequential(*parts[0], *parts[1])

        self.pool = nn.MaxPool2d(2) if dimensions == 2 else nn.MaxPool3d(2)
        self.down = nn.ModuleList(block(a, b) for a, b in zip((channels, *widths), widths, strict=False))
        pairs = list(zip(widths[1:], widths, strict=False))[::-1]
        self.up = nn.ModuleList(transposed(deep, shallow, 2, 2) for deep, shallow in pairs)
        self.merge = nn.ModuleList(block(2 * shallow, shallow) for _, shallow in pairs)
        self.last = convolution(widths[0], 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, channels, ...] -> [B, 2, ...]."""
        kept = []
        for index, block in enumerate(self.down):
            x = block(x if index == 0 else self.pool(x))
            kept.append(x)
        for up, merge, beside in zip(self.up, self.merge, kept[-2::-1], strict=True):
            x = merge(torch.cat([up(x), beside], 1))
        found: torch.Tensor = self.last(x)
        return found


class PointNet(nn.Module):
    """Qi et al., "PointNet", 2017, without its two alignment networks: points [B, 3, N] -> classes [B, 40]."""

    def __init__(self) -> None:
        super().__init__()
        sizes = ((3, 64), (64, 64), (64, 64), (64, 128), (128, 1024))
        self.points = nn.Sequential(
            *(layer for a, b in sizes for layer in (nn.Conv1d(a, b, 1), nn.BatchNorm1d(b), nn.ReLU()))
        )
        self.layers = layers(1024, 512, 256, 40)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, 3, N] -> [B, 40]."""
        found: torch.Tensor = self.layers(self.points(x).amax(2))
        return found


def _super_resolution(width: int, blocks: int, scale: int) -> nn.Module:
    """Lim et al., EDSR, 2017: residual blocks without normalization, then pixels from channels."""
    body = (
        Residual(nn.Conv2d(width, width, 3, 1, 1), nn.ReLU(), nn.Conv2d(width, width, 3, 1, 1), scale=0.1)
        for _ in range(blocks)
    )
    grown = (nn.Conv2d(width, width * scale**2, 3, 1, 1), nn.PixelShuffle(scale))
    return nn.Sequential(nn.Conv2d(3, width, 3, 1, 1), *body, *grown, nn.Conv2d(width, 3, 3, 1, 1))


def _sub_pixel() -> nn.Module:
    """Shi et al., ESPCN, 2016."""
    layers = (nn.Conv2d(1, 64, 5, 1, 2), nn.Tanh(), nn.Conv2d(64, 32, 3, 1, 1), nn.Tanh(), nn.Conv2d(32, 9, 3, 1, 1))
    return nn.Sequential(*layers, nn.PixelShuffle(3))


def _translation() -> nn.Module:
    """Zhu et al., CycleGAN, 2017: the generator of nine residual blocks."""

    def normed(layer: nn.Module, width: int) -> tuple[nn.Module, ...]:
        return layer, nn.InstanceNorm2d(width), nn.ReLU()

    body = (
        Residual(*normed(nn.Conv2d(256, 256, 3, 1, 1), 256), nn.Conv2d(256, 256, 3, 1, 1), nn.InstanceNorm2d(256))
        for _ in range(9)
    )
    return nn.Sequential(
        *normed(nn.Conv2d(3, 64, 7, 1, 3), 64),
        *normed(nn.Conv2d(64, 128, 3, 2, 1), 128),
        *normed(nn.Conv2d(128, 256, 3, 2, 1), 256),
        *body,
        *normed(nn.ConvTranspose2d(256, 128, 3, 2, 1, 1), 128),
        *normed(nn.ConvTranspose2d(128, 64, 3, 2, 1, 1), 64),
        *(nn.Conv2d(64, 3, 7, 1, 3), nn.Tanh()),
    )


def _generator() -> nn.Module:
    """Radford et al., DCGAN, 2016: noise [B, 100, 1, 1] -> images of 64 x 64."""
    layers: list[nn.Module] = [nn.ConvTranspose2d(100, 1024, 4), nn.BatchNorm2d(1024), nn.ReLU()]
    for a, b in ((1024, 512), (512, 256), (256, 128)):
        layers += [nn.ConvTranspose2d(a, b, 4, 2, 1), nn.BatchNorm2d(b), nn.ReLU()]
    return nn.Sequential(*layers, nn.ConvTranspose2d(128, 3, 4, 2, 1), nn.Tanh())


def _temporal(width: int, levels: int) -> nn.Module:
    """Bai et al., TCN, 2018: dilated convolutions over a sequence of 64 channels."""
    layers: list[nn.Module] = [nn.Conv1d(64, width, 1)]
    for level in range(levels):
        reach = 2**level
        parts = (nn.Conv1d(width, width, 3, padding=reach, dilation=reach), nn.ReLU())
        layers.append(Residual(*parts, nn.Conv1d(width, width, 3, padding=reach, dilation=reach), nn.ReLU()))
    return nn.Sequential(*layers, nn.Conv1d(width, 10, 1))


def _image(channels: int, usual: int) -> Callable[[Configuration], Inputs]:
    def inputs(configuration: Configuration) -> Inputs:
        edge = configuration.image_size or usual
        return (("x", (channels, edge, edge), None),)

    return inputs


def _sequence(*before: int, usual: int) -> Callable[[Configuration], Inputs]:
    return lambda configuration: (("x", (*before, configuration.sequence_length or usual), None),)


def _tokens(words: int) -> Callable[[Configuration], Inputs]:
    return lambda configuration: (("tokens", (configuration.sequence_length or 128,), words),)


def _fixed(*inputs: tuple[str, tuple[int, ...], int | None]) -> Callable[[Configuration], Inputs]:
    return lambda configuration: inputs


_ROWS = 100_000
_WORDS = 33_278  # of WikiText-2
# By name: the network, and its inputs for a configuration.
NAMES: dict[str, tuple[Callable[[], nn.Module], Callable[[Configuration], Inputs]]] = {
    "dlrm-small": (lambda: Dlrm(10_000, 64), _fixed(("dense", (13,), None), ("sparse", (26,), 10_000))),
    "dlrm-100k": (lambda: Dlrm(_ROWS, 64), _fixed(("dense", (13,), None), ("sparse", (26,), _ROWS))),
    "wide-and-deep": (lambda: WideAndDeep(_ROWS, 32, 40, False), _fixed(("sparse", (40,), _ROWS))),
    "deepfm": (lambda: WideAndDeep(_ROWS, 16, 39, True), _fixed(("sparse", (39,), _ROWS))),
    "neumf": (lambda: NeuMf(138_493, 26_744), _fixed(("user", (), 138_493), ("item", (), 26_744))),
    "lstm-small": (lambda: Recurrent(nn.LSTM, 10_000, 200, False), _tokens(10_000)),
    "lstm-medium": (lambda: Recurrent(nn.LSTM, _WORDS, 650, False), _tokens(_WORDS)),
    "gru-both-ways": (lambda: Recurrent(nn.GRU, 10_000, 512, True), _tokens(10_000)),
    "deepspeech2": (DeepSpeech, _sequence(1, 161, usual=400)),
    "quartznet5x5": (lambda: Recognizer(1), _sequence(64, usual=800)),
    "quartznet15x5": (lambda: Recognizer(3), _sequence(64, usual=800)),
    "hifigan-v1": (lambda: Vocoder(512, ((8, 16), (8, 16), (2, 4), (2, 4))), _sequence(80, usual=32)),
    "hifigan-v2": (lambda: Vocoder(128, ((8, 16), (8, 16), (2, 4), (2, 4))), _sequence(80, usual=64)),
    "tcn": (lambda: _temporal(128, 8), _sequence(64, usual=1024)),
    "unet-2d": (lambda: UNet(2, 1, (64, 128, 256, 512, 1024)), _image(1, 192)),
    "unet-2d-thin": (lambda: UNet(2, 3, (16, 32, 64, 128, 256)), _image(3, 256)),
    "unet-3d": (lambda: UNet(3, 1, (16, 32, 64, 128)), _fixed(("x", (1, 64, 64, 64), None))),
    "edsr-baseline-x2": (lambda: _super_resolution(64, 16, 2), _image(3, 96)),
    "edsr-baseline-x3": (lambda: _super_resolution(64, 16, 3), _image(3, 64)),
    "espcn-x3": (_sub_pixel, _image(1, 256)),
    "cyclegan": (_translation, _image(3, 128)),
    "dcgan": (_generator, _fixed(("x", (100, 1, 1), None))),
    "pointnet": (PointNet, _sequence(3, usual=1024)),
    "mlp-mnist": (lambda: nn.Sequential(nn.Flatten(), layers(784, 512, 512, 10)), _image(1, 28)),
    "mlp-wide": (lambda: layers(1024, 4096, 4096, 4096, 1000), _fixed(("x", (1024,), None))),
}


def build(name: str, configuration: Configuration) -> tuple[nn.Module, Inputs]:
    """The network with random weights, and its inputs, here or in `small_networks`.

    Raises UnsupportedError for an unknown name.
    """
    if name in small_networks.NAMES:
        small, given = small_networks.NAMES[name]
        return small(), given
    if name not in NAMES:
        known = ", ".join((*NAMES, *small_networks.NAMES))
        raise UnsupportedError(f"unknown network {name!r}; known are {known}")
    network, inputs = NAMES[name]
    return network(), inputs(configuration)
