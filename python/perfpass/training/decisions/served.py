"""Choices among measured deployments of language models: our held-out predictions, a roofline, a copy, and a peer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.deploy import money
from perfpass.errors import DeviceError
from perfpass.predictors.serving.predictor import EVIDENCE, TARGETS, ServingPredictor
from perfpass.records.location import data_directory
from perfpass.training.decisions import elsewhere
from perfpass.training.decisions.offers import Method, Offers, graded, questions
from perfpass.training.serving import outside, widths
from perfpass.training.serving.baselines import copied, roofline
from perfpass.training.serving.dataset import Dataset, load, set_aside
from perfpass.training.serving.held_out import HeldOut, held_out

PEER = "peers/aiconfigurator.csv"
LEVELS = {"measured": "random measurements", "model unseen": "model", "device unseen": "device"}
# Limits in ms that servers are held to: answers of 10 to 50 ms a token, first tokens of half a second to two.
LIMITS: tuple[dict[str, float], ...] = (
    *({"tpot": tpot} for tpot in (10.0, 20.0, 30.0, 50.0)),
    *({"tpot": tpot, "ttft": ttft} for tpot in (10.0, 20.0, 30.0, 50.0) for ttft in (500.0, 1000.0, 2000.0)),
)


def decisions(folder: Path | str | None = None, seed: int = 0) -> Iterator[dict[str, Any]]:
    """The lines of a table, by what was held out. Raises FileError, FormatError."""
    data = load(folder)
    usd = _usd_per_hour(data)
    # What `choose` offers: prefill and decode on the same GPUs, each measurement once.
    graded_rows = data.aggregated & np.isfinite(usd) & ~data.rows.configuration.duplicated().to_numpy()
    graded_rows &= ~set_aside(data.rows)
    offers = _offers(data, usd)
    held = {level: held_out(data, level, seed) for level in EVIDENCE}
    asked, _ = outside.load(folder)
    others = {target: outside.answers(ServingPredictor.load(), asked, target) for target in TARGETS}
    bounds = _bounds(data, held, others, seed)
    peer = _peer(data, folder)
    for level, split in LEVELS.items():
        found = held[level]
        own = Method("perfpass", _ms(found.seconds), bounds[level])
        beside = [
            Method("perfpass, medians alone", _ms(found.seconds)),
            Method("roofline", _ms(roofline(data))),
            Method("nearest record, copied and scaled", _ms(copied(data, level, seed))),
        ]
        rows = graded_rows & (found.fold >= 0)
        of = questions(offers, rows & np.logical_and.reduce([m.answers for m in (own, *beside)]), LIMITS)
        yield from graded(offers, [own, *beside], of, split, "all")
        if peer is not None:
            of = questions(offers, rows & peer.answers, LIMITS)
            yield from graded(offers, [own, *beside, peer], of, split, "rows that the peer answers")
    errors = [widths.held_out_errors(data, found, level, "tpot", seed)[0] for level, found in held.items()]
    yield from elsewhere.without_a_server(others["tpot"], errors, folder)
    yield from elsewhere.on_a_loaded_server(seed, folder)


def _usd_per_hour(data: Dataset) -> np.ndarray:
    """[N] of all GPUs of a row at the shipped prices; NaN where a device has none."""
    prices, known = money.read_prices(), {}
    for name in data.rows.device.unique():
        try:
            known[name] = money.price(name, prices).usd_per_hour
        except DeviceError:
            known[name] = np.nan
    return np.asarray(data.rows.device.map(known).to_numpy(float) * data.rows.n_devices.to_numpy(float))


def _offers(data: Dataset, usd: np.ndarray) -> Offers:
    rows = data.rows
    answers, load = rows.output_tokens.to_numpy(float), rows.concurrency.to_numpy(float)

    def price(ms: Mapping[str, np.ndarray]) -> np.ndarray:
        """USD of a million output tokens in a closed loop."""
        per_s = 1e3 * load * answers / (ms["ttft"] + (answers - 1) * ms["tpot"])
        return np.asarray(usd / 3600 / per_s * 1e6)

    group = rows[["family", "input_tokens", "output_tokens"]].astype(str).agg("|".join, axis=1)
    times = {t: 1e3 * data.measured_s(t) for t in TARGETS}
    return Offers(group.to_numpy(dtype=str), rows.family.to_numpy(dtype=str), times, price)


def _ms(seconds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {target: 1e3 * seconds[target] for target in TARGETS}


def _bounds(
    data: Dataset, held: Mapping[str, HeldOut], others: Mapping[str, outside.Answers], seed: int
) -> dict[str, dict[str, tuple[np.ndarray, np.ndarray]]]:
    """Log bounds by level and target, from errors on other records, as `perfpass.training.serving` has them."""
    out: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]] = {level: {} for level in held}
    for target in TARGETS:
        for level, found in widths.graded(data, held, others[target], target, seed).items():
            out[level][target] = found
    return out


def _peer(data: Dataset, folder: Path | str | None) -> Method | None:
    """What aiconfigurator answered of the rows that it was asked (benchmarks/serving_peer.py); None without answers."""
    import pandas

    path = (Path(folder) if folder else data_directory()) / "results" / PEER
    if not path.is_file():
        return None
    table = pandas.read_csv(path).drop_duplicates("run").set_index("run")
    return Method("aiconfigurator", {t: table[f"{t}_ms"].reindex(data.rows.run).to_numpy(float) for t in TARGETS})
