"""An ensemble from stored predictions: a geometric mean whose weights are chosen on validation rows alone."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

# Weights are shares of as many draws: each draw adds the member that lowers the validation error most (Caruana et al.,
# Ensemble selection from libraries of models, ICML 2004).
DRAWS = 10


def mape_pct(predicted: np.ndarray, measured: np.ndarray) -> float:
    """Mean absolute percentage error."""
    return 100.0 * float(np.mean(np.abs(predicted / measured - 1.0)))


def choose(predicted: Mapping[str, np.ndarray], measured: np.ndarray) -> dict[str, float]:
    """Weights by name that sum to 1, from predictions [N] and measurements [N] of validation rows."""
    names = sorted(predicted)
    logs = {name: np.log(np.maximum(predicted[name], 1e-300)) for name in names}
    total, counts = np.zeros(len(measured)), dict.fromkeys(names, 0)
    for draw in range(DRAWS):
        errors = {name: mape_pct(np.exp((total + logs[name]) / (draw + 1)), measured) for name in names}
        best = min(names, key=lambda name: errors[name])
        total += logs[best]
        counts[best] += 1
    return {name: counts[name] / DRAWS for name in names if counts[name]}


def mix(predicted: Mapping[str, np.ndarray], weights: Mapping[str, float]) -> np.ndarray:
    """[N] the weighted geometric mean."""
    return np.asarray(np.exp(sum(w * np.log(np.maximum(predicted[name], 1e-300)) for name, w in weights.items())))


def validated_pct(predicted: Mapping[str, np.ndarray], measured: np.ndarray, group: np.ndarray) -> float:
    """The error on validation rows with weights from the other half of their groups: an estimate without hindsight."""
    names, inverse = np.unique(group.astype(str), return_inverse=True)
    half = np.random.default_rng(0).permutation(len(names))[inverse] % 2 == 0
    if half.all() or not half.any():
        half = np.random.default_rng(0).permutation(len(measured)) % 2 == 0
    out = np.empty(len(measured))
    for chosen_on, judged_on in ((half, ~half), (~half, half)):
        weights = choose({name: values[chosen_on] for name, values in predicted.items()}, measured[chosen_on])
        out[judged_on] = mix({name: values[judged_on] for name, values in predicted.items()}, weights)
    return mape_pct(out, measured)
