"""What the readers of language models share: definitions by name, and rows faster than their device can be.

Records of kind ``generation`` of laboratories that no predictor learned from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.devices import device
from perfpass.errors import PerfPassError
from perfpass.llm.configuration import language_model
from perfpass.llm.costs import ELEMENT_BYTES, PRECISIONS, peak_flops
from perfpass.records import networks
from perfpass.records.sources import add_caveat

if TYPE_CHECKING:
    import pandas

    from perfpass.devices import Device
    from perfpass.records.schema import Reading

KIND = "generation"
FASTER_THAN_DEVICE = "faster_than_the_device_reads_or_computes"
# Below so much of the least time, a figure is not of what its row says (argonne: generation cut short).
_SHARE = 0.9


def add(reading: Reading, rows: pandas.DataFrame, place: tuple[str, ...] = ("run",)) -> None:
    """Keep ``rows`` of kind ``generation``; ``device`` holds the source's names.

    Rows that beat the roofline of their device carry `FASTER_THAN_DEVICE`. Rows that are equal to another but for
    ``place`` are refused; the first is kept.
    """
    defaults = {"n_devices": 1, "mode": "inference", "year_from": "unknown", "task": "text generation"}
    rows = rows.assign(**{name: value for name, value in defaults.items() if name not in rows.columns})
    rows = networks.with_devices_read(rows)
    sizes = ("batch", "n_devices", "input_tokens", "output_tokens", "context_tokens")
    rows = rows.assign(**{n: rows[n].fillna(-1) if n in rows.columns else -1 for n in sizes})
    rows["family"] = rows.network.where(rows.network != "", rows.model).str.split("-").str[0].str.lower()
    rows["caveats"] = add_caveat(rows.caveats, faster_than_device(rows), FASTER_THAN_DEVICE)
    compared = [c for c in rows.columns if c not in place]
    rows = reading.keep(rows, ~rows.duplicated(compared), "repeats another row but for its place")
    reading.add(KIND, rows)


def faster_than_device(rows: pandas.DataFrame) -> np.ndarray:
    """[N] whether a row's time is below what reading its weights and cache and its products take at the peak rates.

    False where the definition, the device or the bits of a weight are not known.
    """
    found: dict[tuple[str, str], tuple[Any, Device] | None] = {}
    out = np.zeros(len(rows), bool)
    for i, r in enumerate(rows.itertuples()):
        key = (r.network, r.device)
        if key not in found:
            found[key] = _read(*key)
        size = bytes_per_weight(str(r.precision))
        known = found[key]
        if known is None or size is None:
            continue
        stated_s, least_s = _seconds(r, *known, size)
        out[i] = stated_s < _SHARE * least_s
    return out


def bytes_per_weight(precision: str) -> float | None:
    """Of the experts' matrices, else of all; None for a precision without a name."""
    names = PRECISIONS.get(precision)
    return ELEMENT_BYTES[names[1]] if names else None


def _read(network: str, name: str) -> tuple[Any, Device] | None:
    try:
        return language_model(network), device(name)
    except PerfPassError:
        return None


def _seconds(r: Any, model: Any, board: Device, size: float) -> tuple[float, float]:
    """Of the row's slowest stated time: what it was, and the least it can be."""
    devices = max(r.n_devices, 1)
    bandwidth = board.memory_bandwidth_bytes_s * devices
    peak = peak_flops(board.peak_flops, PRECISIONS[r.precision][1]) * devices
    body = model.active_parameters - model.hidden * model.vocabulary
    batch, answer = max(r.batch, 1), max(r.output_tokens, 0)
    prompt_s = 2.0 * body * batch * max(r.input_tokens, 0) / peak
    cache = model.cache_elements(max(r.context_tokens, 1), batch)
    token_s = max((model.active_parameters * size + cache) / bandwidth, 2.0 * body * batch / peak)
    whole = prompt_s + answer * token_s
    latency, rate, unit = (getattr(r, n, np.nan) for n in ("latency_ms", "throughput_per_s", "throughput_unit"))
    tpot, ttft = (getattr(r, n, np.nan) for n in ("tpot_ms", "ttft_ms"))
    if latency == latency:
        return latency / 1e3, (prompt_s if r.mode == "prefill" else whole)
    if rate == rate and unit == "output tokens" and answer:
        return batch * answer / rate, whole
    if tpot == tpot:
        return tpot / 1e3, token_s
    return ttft / 1e3, prompt_s
