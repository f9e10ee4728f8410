"""Small published networks of many domains, layer after layer, with random weights (`net:NAME`).

Restoration, games, texts, ratings, series, fields, key words, and the first convolutional classifiers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import nn


class Texts(nn.Module):
    """Words [B, T] -> classes: Kim, "Convolutional neural networks for sentence classification", 2014 (``kernels``).

    Without kernels the mean of the words and a perceptron: Iyyer et al., "Deep averaging network", 2015.
    """

    def __init__(self, words: int, width: int, kernels: Sequence[int], maps: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.convolutions = nn.ModuleList(nn.Conv1d(width, maps, size, padding=size // 2) for size in kernels)
        self.last = layers(maps * len(kernels) or width, *(() if kernels else (300, 300)), 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """[B, T] -> [B, 2]."""
        x = self.embedding(tokens)
        if not self.convolutions:
            x = x.mean(1)
        else:
            x = torch.cat([torch.relu(part(x.transpose(1, 2))).amax(2) for part in self.convolutions], 1)
        found: torch.Tensor = self.last(x)
        return found


class Crossed(nn.Module):
    """Wang et al., "Deep & cross network", 2017: fields -> a product layer by layer beside a perceptron."""

    def __init__(self, rows: int, fields: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(rows, width)
        self.crosses = nn.ModuleList(nn.Linear(fields * width, 1) for _ in range(6))
        self.deep = layers(fields * width, 1024, 1024)
        self.last = nn.Linear(fields * width + 1024, 1)

    def forward(self, sparse: torch.Tensor) -> torch.Tensor:
        """[B, fields] -> [B, 1]."""
        start = x = self.embedding(sparse).flatten(1)
        for cross in self.crosses:
            x = start * cross(x) + x
        return torch.sigmoid(self.last(torch.cat([x, self.deep(start)], 1)))


class Towers(nn.Module):
    """Two towers of users and items and their product (Covington et al., 2016; Yi et al., 2019)."""

    def __init__(self, users: int, items: int) -> None:
        super().__init__()
        self.user = nn.Sequential(nn.Embedding(users, 128), layers(128, 512, 256, 128))
        self.item = nn.Sequential(nn.Embedding(items, 128), layers(128, 512, 256, 128))

    def forward(self, user: torch.Tensor, item: torch.Tensor) -> torch.Tensor:
        """[B], [B] -> [B]."""
        return (self.user(user) * self.item(item)).sum(1)


class Forecast(nn.Module):
    """Oreshkin et al., "N-BEATS", 2020, generic: each block explains a part of the series, the next sees the rest."""

    def __init__(self, seen: int, ahead: int, blocks: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(layers(seen, 512, 512, 512, 512, seen + ahead) for _ in range(blocks))
        self.seen = seen

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, seen] -> [B, ahead]."""
        found = []
        for block in self.blocks:
            out = block(x)
            x = x - out[:, : self.seen]
            found.append(out[:, self.seen :])
        return torch.stack(found).sum(0)


class Operator(nn.Module):
    """Lu et al., "DeepONet", 2021: a branch that reads a function, a trunk that reads a place."""

    def __init__(self) -> None:
        super().__init__()
        self.branch, self.trunk = layers(100, 256, 256, 256), layers(2, 256, 256, 256)

    def forward(self, function: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        """[B, 100], [B, 2] -> [B]."""
        return (self.branch(function) * self.trunk(place)).sum(1)


class Shortcut(nn.Module):
    """``body`` beside a shortcut, a projection where the shape changes; then ReLU."""

    def __init__(self, inputs: int, outputs: int, step: int = 1) -> None:
        super().__init__()
        self.body = nn.Sequential(*normed(inputs, outputs, 3, step), *normed(outputs, outputs, 3)[:2])
        same = inputs == outputs and step == 1
        self.beside = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, step)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, inputs, H, W] -> [B, outputs, H / step, W / step]."""
        return torch.relu(self.body(x) + self.beside(x))


class Player(nn.Module):
    """Silver et al., "AlphaZero", 2018: a tower of residual blocks over a board, a policy and a value."""

    def __init__(self, planes: int, edge: int, width: int, blocks: int) -> None:
        super().__init__()
        self.tower = nn.Sequential(*normed(planes, width, 3), *(Shortcut(width, width) for _ in range(blocks)))
        self.policy = nn.Sequential(*normed(width, 2, 1), nn.Flatten(), nn.Linear(2 * edge**2, edge**2 + 1))
        self.value = nn.Sequential(*normed(width, 1, 1), nn.Flatten(), layers(edge**2, width, 1), nn.Tanh())

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """[B, planes, edge, edge] -> [B, edge^2 + 1], [B, 1]."""
        x = self.tower(x)
        return self.policy(x), self.value(x)


def layers(*widths: int) -> nn.Sequential:
    """Products with ReLU between."""
    parts = [(nn.Linear(a, b), nn.ReLU()) for a, b in pairwise(widths)]
    return nn.Sequential(*[layer for part in parts for layer in part][:-1])


def normed(inputs: int, outputs: int, kernel: int, step: int = 1, groups: int = 1) -> tuple[nn.Module, ...]:
    """A convolution, its normalization, ReLU."""
    convolution = nn.Conv2d(inputs, outputs, kernel, step, kernel // 2, groups=groups, bias=False)
    return convolution, nn.BatchNorm2d(outputs), nn.ReLU()


def _plain(*shape: tuple[int, int, int]) -> nn.Sequential:
    """Convolutions (inputs, outputs, kernel) with ReLU between."""
    parts = [(nn.Conv2d(a, b, size, padding=size // 2), nn.ReLU()) for a, b, size in shape]
    return nn.Sequential(*[layer for part in parts for layer in part][:-1])


def _denoiser() -> nn.Module:
    """Zhang et al., DnCNN, 2017."""
    middle = [layer for _ in range(15) for layer in normed(64, 64, 3)]
    return nn.Sequential(nn.Conv2d(1, 64, 3, 1, 1), nn.ReLU(), *middle, nn.Conv2d(64, 1, 3, 1, 1))


def _fast_resolution() -> nn.Module:
    """Dong et al., FSRCNN, 2016."""
    middle = [layer for _ in range(4) for layer in (nn.Conv2d(12, 12, 3, 1, 1), nn.PReLU())]
    first = (nn.Conv2d(1, 56, 5, 1, 2), nn.PReLU(), nn.Conv2d(56, 12, 1), nn.PReLU())
    return nn.Sequential(*first, *middle, nn.Conv2d(12, 56, 1), nn.PReLU(), nn.ConvTranspose2d(56, 1, 9, 3, 3))


def _lenet() -> nn.Module:
    """LeCun et al., LeNet-5, 1998."""
    first = (nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2))
    return nn.Sequential(*first, nn.Flatten(), layers(400, 120, 84, 10))


def _atari() -> nn.Module:
    """Mnih et al., DQN, 2015."""
    first = (nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU())
    return nn.Sequential(*first, nn.Flatten(), layers(3136, 512, 18))


def _all_convolutional() -> nn.Module:
    """Springenberg et al., All-CNN-C, 2015."""
    sizes = ((3, 96, 3, 1), (96, 96, 3, 1), (96, 96, 3, 2), (96, 192, 3, 1), (192, 192, 3, 1), (192, 192, 3, 2))
    rest = ((192, 192, 3, 1), (192, 192, 1, 1), (192, 10, 1, 1))
    parts = [(nn.Conv2d(a, b, k, s, k // 2), nn.ReLU()) for a, b, k, s in (*sizes, *rest)]
    return nn.Sequential(*(layer for part in parts for layer in part), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def _in_network() -> nn.Module:
    """Lin et al., "Network in network", 2014."""

    def block(inputs: int, kernel: int, *widths: int) -> list[nn.Module]:
        found: list[nn.Module] = []
        for index, (a, b) in enumerate(pairwise((inputs, *widths))):
            size = kernel if index == 0 else 1
            found += [nn.Conv2d(a, b, size, padding=size // 2), nn.ReLU()]
        return found

    first = (*block(3, 5, 192, 160, 96), nn.MaxPool2d(3, 2, 1), *block(96, 5, 192, 192, 192), nn.AvgPool2d(3, 2, 1))
    return nn.Sequential(*first, *block(192, 3, 192, 192, 10), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def _small_residual(blocks: int, width: int = 16) -> nn.Module:
    """He et al., ResNet-20 and deeper on images of 32 pixels, 2016."""
    body: list[nn.Module] = [*normed(3, width, 3)]
    inputs = width
    for stage in range(3):
        for index in range(blocks):
            outputs = width * 2**stage
            body.append(Shortcut(inputs, outputs, 2 if stage and index == 0 else 1))
            inputs = outputs
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 10))


def _key_words(width: int) -> nn.Module:
    """Zhang et al., "Hello Edge", 2017: depthwise separable convolutions over MFCC features."""
    body: list[nn.Module] = [nn.Conv2d(1, width, (10, 4), 2, (5, 1)), nn.BatchNorm2d(width), nn.ReLU()]
    for _ in range(4):
        body += [*normed(width, width, 3, groups=width), *normed(width, width, 1)]
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 12))


def _characters() -> nn.Module:
    """Zhang et al., "Character-level convolutional networks", 2015."""
    body: list[nn.Module] = []
    for inputs, kernel, pooled in ((70, 7, True), (256, 7, True), (256, 3, False), (256, 3, False), (256, 3, False)):
        body += [nn.Conv1d(inputs, 256, kernel), nn.ReLU(), *([nn.MaxPool1d(3)] if pooled else [])]
    return nn.Sequential(*body, nn.Conv1d(256, 256, 3), nn.ReLU(), nn.MaxPool1d(3), nn.Flatten(), layers(8704, 1024, 4))


def _radiance() -> nn.Module:
    """Mildenhall et al., NeRF, 2020, without its skip: encoded places -> colour and density."""
    return layers(63, *(256,) * 8, 4)


# By name: the network, and its inputs (name, shape behind the batch, numbers that it holds or None).
NAMES: dict[str, tuple[Callable[[], nn.Module], tuple[tuple[str, tuple[int, ...], int | None], ...]]] = {
    "lenet5": (_lenet, (("x", (1, 28, 28), None),)),
    "dqn": (_atari, (("x", (4, 84, 84), None),)),
    "alphazero-10x128": (lambda: Player(17, 19, 128, 10), (("x", (17, 19, 19), None),)),
    "srcnn": (lambda: _plain((1, 64, 9), (64, 32, 1), (32, 1, 5)), (("x", (1, 256, 256), None),)),
    "fsrcnn": (_fast_resolution, (("x", (1, 128, 128), None),)),
    "vdsr": (lambda: _plain((1, 64, 3), *((64, 64, 3),) * 18, (64, 1, 3)), (("x", (1, 128, 128), None),)),
    "dncnn": (_denoiser, (("x", (1, 128, 128), None),)),
    "text-cnn": (lambda: Texts(20_000, 300, (3, 4, 5), 100), (("tokens", (64,), 20_000),)),
    "averaged-words": (lambda: Texts(50_000, 300, (), 0), (("tokens", (64,), 50_000),)),
    "char-cnn": (_characters, (("x", (70, 1014), None),)),
    "deep-and-cross": (lambda: Crossed(100_000, 39, 16), (("sparse", (39,), 100_000),)),
    "two-towers": (lambda: Towers(100_000, 50_000), (("user", (), 100_000), ("item", (), 50_000))),
    "autorec": (lambda: layers(17_770, 500, 17_770), (("x", (17_770,), None),)),
    "autoencoder-mnist": (lambda: layers(784, 1000, 500, 250, 30, 250, 500, 1000, 784), (("x", (784,), None),)),
    "autoencoder-sound": (lambda: layers(640, *(128,) * 4, 8, *(128,) * 4, 640), (("x", (640,), None),)),
    "gan-mnist": (lambda: layers(100, 256, 512, 1024, 784), (("x", (100,), None),)),
    "n-beats": (lambda: Forecast(60, 12, 30), (("x", (60,), None),)),
    "deep-o-net": (Operator, (("function", (100,), None), ("place", (2,), None))),
    "nerf": (_radiance, (("x", (1024, 63), None),)),
    "policy-mlp": (lambda: layers(376, 256, 256, 17), (("x", (376,), None),)),
    "all-cnn": (_all_convolutional, (("x", (3, 32, 32), None),)),
    "network-in-network": (_in_network, (("x", (3, 32, 32), None),)),
    "resnet20-cifar": (lambda: _small_residual(3), (("x", (3, 32, 32), None),)),
    "resnet56-cifar": (lambda: _small_residual(9), (("x", (3, 32, 32), None),)),
    "resnet32-cifar": (lambda: _small_residual(5), (("x", (3, 32, 32), None),)),
    "wide-resnet-10-8": (lambda: _small_residual(1, 128), (("x", (3, 32, 32), None),)),
    "alphazero-5x64": (lambda: Player(17, 9, 64, 5), (("x", (17, 9, 9), None),)),
    "lenet-300-100": (lambda: layers(784, 300, 100, 10), (("x", (784,), None),)),
    "autorec-ml1m": (lambda: layers(3_706, 500, 3_706), (("x", (3_706,), None),)),
    "two-towers-large": (lambda: Towers(500_000, 200_000), (("user", (), 500_000), ("item", (), 200_000))),
    "averaged-words-large": (lambda: Texts(400_000, 300, (), 0), (("tokens", (64,), 400_000),)),
    "text-cnn-wide": (lambda: Texts(100_000, 300, (2, 3, 4, 5), 256), (("tokens", (64,), 100_000),)),
    "n-beats-small": (lambda: Forecast(24, 6, 10), (("x", (24,), None),)),
    "policy-mlp-large": (lambda: layers(376, 2048, 2048, 2048, 17), (("x", (376,), None),)),
    "gan-mnist-large": (lambda: layers(100, 1024, 2048, 4096, 3072), (("x", (100,), None),)),
    "deep-and-cross-large": (lambda: Crossed(1_000_000, 26, 32), (("sparse", (26,), 1_000_000),)),
    "dssm": (lambda: layers(30_000, 300, 300, 128), (("x", (30_000,), None),)),
    "deep-and-cross-small": (lambda: Crossed(10_000, 39, 16), (("sparse", (39,), 10_000),)),
    "two-towers-small": (lambda: Towers(20_000, 10_000), (("user", (), 20_000), ("item", (), 10_000))),
    "ratings-vae": (lambda: layers(20_108, 600, 200, 600, 20_108), (("x", (20_108,), None),)),
    "ratings-denoiser": (lambda: layers(5_000, 200, 5_000), (("x", (5_000,), None),)),
    "topics-mlp": (lambda: layers(20_000, 1024, 256, 20), (("x", (20_000,), None),)),
    "averaged-words-small": (lambda: Texts(20_000, 100, (), 0), (("tokens", (64,), 20_000),)),
    "higgs-mlp": (lambda: layers(28, *(300,) * 5, 1), (("x", (28,), None),)),
    "mnist-800": (lambda: layers(784, 800, 10), (("x", (784,), None),)),
    "mnist-six-layers": (lambda: layers(784, 2500, 2000, 1500, 1000, 500, 10), (("x", (784,), None),)),
    "phones-dnn": (lambda: layers(440, *(2048,) * 6, 2000), (("x", (440,), None),)),
    "burgers-pinn": (lambda: layers(2, *(20,) * 9, 1), (("x", (256, 2), None),)),
    "ddpg-actor": (lambda: layers(17, 400, 300, 6), (("x", (17,), None),)),
    "qsar-mlp": (lambda: layers(4_000, 4_000, 2_000, 1_000, 1_000, 1), (("x", (4_000,), None),)),
    "n-beats-weekly": (lambda: Forecast(168, 24, 30), (("x", (168,), None),)),
    "nerf-coarse": (lambda: layers(63, *(128,) * 4, 4), (("x", (4096, 63), None),)),
    "vae-mnist": (lambda: layers(784, 400, 20, 400, 784), (("x", (784,), None),)),
    "autoencoder-deep": (lambda: layers(4_096, 2_048, 1_024, 256, 1_024, 2_048, 4_096), (("x", (4_096,), None),)),
    "alexnet-head": (lambda: layers(9_216, 4_096, 4_096, 1_000), (("x", (9_216,), None),)),
    "vgg-head": (lambda: layers(25_088, 4_096, 4_096, 1_000), (("x", (25_088,), None),)),
    "point-mlp": (lambda: layers(3, 64, 64, 128, 1_024), (("x", (2_048, 3), None),)),
    "words-mlp": (lambda: Texts(200_000, 200, (), 0), (("tokens", (128,), 200_000),)),
    "wide-resnet-16-4": (lambda: _small_residual(2, 64), (("x", (3, 32, 32), None),)),
    "key-words-small": (lambda: _key_words(64), (("x", (1, 49, 10), None),)),
    "key-words-large": (lambda: _key_words(276), (("x", (1, 49, 10), None),)),
}
