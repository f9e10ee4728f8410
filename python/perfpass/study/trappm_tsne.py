"""t-SNE of embeddings and its picture (van der Maaten and Hinton, "Visualizing data using t-SNE", JMLR 9, 2008)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from perfpass.errors import ArgumentError
from perfpass.whole_file import replacing


def tsne(points: np.ndarray, *, perplexity: float = 30.0, iterations: int = 500, seed: int = 0) -> np.ndarray:
    """[N, 2] places in the plane for ``points`` [N, D]; exact, so O(N^2) an iteration.

    Early exaggeration 12 for the first fifth of the iterations; momentum 0.5, then 0.8; the step grows with N.
    """
    n = len(points)
    if n < 3 * perplexity:
        raise ArgumentError(f"t-SNE of {n} points needs a perplexity of at most {n // 3}, got {perplexity:g}")
    joint = affinities(points, perplexity)
    places = np.random.default_rng(seed).normal(0.0, 1e-4, (n, 2))
    velocity = np.zeros_like(places)
    early, rate = iterations // 5, max(n / 12.0, 10.0)
    for step in range(iterations):
        near = 1.0 / (1.0 + _squared_distances(places))
        np.fill_diagonal(near, 0.0)
        pull = ((12.0 if step < early else 1.0) * joint - near / near.sum()) * near
        gradient = 4.0 * (pull.sum(axis=1)[:, None] * places - pull @ places)
        velocity = (0.5 if step < early else 0.8) * velocity - rate * gradient
        places = places + velocity
        places -= places.mean(axis=0)
    return places


def affinities(points: np.ndarray, perplexity: float) -> np.ndarray:
    """[N, N] symmetric, summing to 1: Gaussian neighbours whose widths give every point the same perplexity."""
    squared = _squared_distances(np.asarray(points, dtype=np.float64))
    n, wanted = len(points), np.log(perplexity)
    found = np.zeros((n, n))
    for i in range(n):
        others = np.delete(squared[i], i)
        low, high, beta = 0.0, np.inf, 1.0 / max(float(np.median(others)), 1e-12)
        for _ in range(60):
            share = np.exp(-(others - others.min()) * beta)
            share /= share.sum()
            entropy = -float((share * np.log(np.maximum(share, 1e-300))).sum())
            if abs(entropy - wanted) < 1e-4:
                break
            low, high = (beta, high) if entropy > wanted else (low, beta)
            beta = beta * 2.0 if np.isinf(high) else (low + high) / 2.0
        found[i, np.arange(n) != i] = share
    return (found + found.T) / (2.0 * n)


def _squared_distances(points: np.ndarray) -> np.ndarray:
    lengths = (points**2).sum(axis=1)
    return np.maximum(lengths[:, None] + lengths[None] - 2.0 * points @ points.T, 0.0)


def neighbours_alike(points: np.ndarray, names: Sequence[str]) -> float:
    """The share of points whose nearest other point has the same name."""
    squared = _squared_distances(np.asarray(points, dtype=np.float64))
    np.fill_diagonal(squared, np.inf)
    nearest, given = squared.argmin(axis=1), np.asarray(names)
    return float((given[nearest] == given).mean())


def picture(places: np.ndarray, names: Sequence[str], file: Path, *, shown: int = 10) -> None:
    """Points coloured by name: the ``shown`` most frequent, the others grey."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    frequent = [name for name, _ in Counter(names).most_common(shown)]
    given = np.asarray(names)
    figure, axes = plt.subplots(figsize=(7, 5))
    rest = ~np.isin(given, frequent)
    axes.scatter(places[rest, 0], places[rest, 1], s=5, color="0.8", label="others")
    for i, name in enumerate(frequent):
        at = places[given == name]
        axes.scatter(at[:, 0], at[:, 1], s=9, color=plt.get_cmap("tab10")(i % 10), label=name)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    figure.tight_layout()
    file.parent.mkdir(parents=True, exist_ok=True)
    with replacing(file) as picture:
        figure.savefig(picture, format=Path(file).suffix.removeprefix("."), dpi=110)
    plt.close(figure)
