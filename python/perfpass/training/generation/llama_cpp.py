"""Fits the shares of the peak rates that llama.cpp's backends reach, and how wide its times are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.devices import device as find_device
from perfpass.llm.configuration import language_model
from perfpass.llm.costs import peak_flops
from perfpass.predictors.generation.llama_cpp import (
    CAUSES,
    PIECE_TOKENS,
    Rates,
    Seconds,
    backend_of,
    is_packed,
    prompt,
    token,
)
from perfpass.predictors.learned.spread import Spread
from perfpass.records import schema
from perfpass.records.location import data_directory
from perfpass.training import spread
from perfpass.training.generation import dataset
from perfpass.training.spread import Errors

# Log half-widths that fits are drawn to. By hand: a laboratory's software may be a third faster or slower.
PRIOR = {
    "measurement": 0.1, "model": 0.15, "device": 0.25, "laboratory": 0.3, "backend": 0.5, "file type": 0.2,
    "prompts": 0.8, "depth": 0.3,
}  # fmt: skip
# The longest pieces of a prompt in LLM-Inference-Bench.
_LONGEST_PIECE = 64
# The laboratory whose builds are the newest: kernels are issued as there.
_NEWEST = "strix_halo"
# Shares are drawn to these where records do not tell, weakly; seconds a kernel.
_START = Rates(weights=0.6, cache=0.5, flops=0.15, again=1.0, launch_s=5e-6)
_PULL = 3e-3
_WIDTH_ROWS = 200


@dataclass(frozen=True)
class Run:
    """A measured time of a token or of a prompt, and its parts at the peak rates."""

    kind: str
    source: str
    backend: str
    model: str
    device: str
    packed: bool
    parts: Seconds
    seconds: float


def load(folder: Path | str | None = None) -> list[Run]:
    """All measured times. Raises FileError, FormatError."""
    root = (Path(folder) if folder else data_directory()) / "records"
    return [*_strix_halo(root), *_argonne(folder)]


def _strix_halo(root: Path) -> list[Run]:
    table = schema.read(root / "generation_outside.parquet", "generation")
    table = table[(table.source == "strix_halo") & ~table.caveats.str.contains("mean_rate_and_mean_time_differ")]
    table = table.assign(backend=np.where(table.variant.str.startswith("Vulkan"), "Vulkan", ""))
    keys = ["network", "device", "precision", "backend", "mode", "input_tokens", "output_tokens", "context_tokens"]
    out: list[Run] = []
    models = {name: language_model(name) for name in table.network.unique()}
    devices = {name: find_device(name) for name in table.device.unique()}
    for key, part in table.groupby(keys, sort=True):
        network, board, precision, stack, mode, inputs, outputs, context = key
        model, device, past = models[network], devices[board], max(int(context), 0)
        common = ("strix_halo", backend_of(device, stack), model.name, device.id, is_packed(precision))
        # Drivers and kernels differ: the quartiles stand for them.
        for seconds in np.quantile(part.latency_ms / 1e3, (0.1, 0.5, 0.9)):
            if mode == "prefill":
                parts = prompt(model, device, precision, int(inputs), min(PIECE_TOKENS, int(inputs)), past)
                out.append(Run("prompt" if inputs > 1 else "token", *common, parts, float(seconds)))
            else:
                parts = token(model, device, precision, past + outputs / 2)
                out.append(Run("token", *common, parts, float(seconds / outputs)))
    return out


def _argonne(folder: Path | str | None) -> list[Run]:
    """Its runs hold a prompt and as many tokens. Token by token, both are tokens; of longer pieces nothing is told: the
    tokens that are written take longer than those that are read, by more than the prompt does.
    """
    data = dataset.load(str(folder) if folder else None)
    rows = [
        (b, float(seconds))
        for b, seconds in zip(data.batches, data.quantity.measured, strict=True)
        if b.runtime == "llama.cpp" and not b.stack and b.input_tokens == b.output_tokens
    ]
    fewest: dict[tuple[str, str], int] = {}
    for b, _ in rows:
        key = (b.model.name, b.device.id)
        fewest[key] = min(fewest.get(key, b.devices), b.devices)
    out: list[Run] = []
    for b, seconds in rows:
        tokens, name, board = b.input_tokens, b.model.name, b.device.id
        common = ("argonne", backend_of(b.device), name, board, is_packed(b.precision))
        if b.devices != fewest[name, board]:
            continue
        # Several devices share the rows of matrices where a piece is one token; else they hold layers each.
        if b.batch == 1 and b.devices == 1:
            found = token(b.model, b.device, b.precision, tokens)
            out.append(Run("token", *common, found, seconds / (2 * tokens)))
        elif b.batch == _LONGEST_PIECE and b.devices > 1:
            found = token(b.model, b.device, b.precision, 1.5 * tokens)
            out.append(Run("token", *common, found, seconds / tokens))
    return out


def _in_16_bits(folder: Path | str | None) -> set[tuple[str, bool]]:
    """Devices of which the learned predictor knows 16-bit runs, the two stacks of Intel's board among them."""
    batches = dataset.load(str(folder) if folder else None).batches
    return {(b.device.id, is_packed(b.precision)) for b in batches if b.runtime == "llama.cpp"}


def reached_by_others(folder: Path | str | None = None) -> float:
    """The median share of the peak that NVIDIA's boards reach in prompts with vLLM (splitwise-sim; two devices, one
    prompt of 512 tokens or more).
    """
    root = (Path(folder) if folder else data_directory()) / "records"
    table = schema.read(root / "generation.parquet", "generation")
    table = table[(table.source == "splitwise") & (table.batch == 1) & (table.n_devices == 2)]
    table = table[table.input_tokens >= PIECE_TOKENS]
    shares = []
    for row in table.itertuples():
        one = prompt(language_model(row.model), find_device(row.device), "fp16", row.input_tokens, row.input_tokens)
        shares.append(one.flops / row.n_devices / (row.ttft_ms / 1e3))
    return float(np.median(shares))


def fit_rates(runs: Sequence[Run], start: Rates = _START) -> Rates:
    """The shares with the least absolute errors of logarithms; each model and device counts alike."""
    from scipy.optimize import minimize

    columns = dict(zip((f.name for f in fields(Seconds)), np.array([astuple(r.parts) for r in runs]).T, strict=True))
    measured = np.log([r.seconds for r in runs])
    names = np.array([f"{r.kind}|{r.model}|{r.device}" for r in runs])
    _, inverse, count = np.unique(names, return_inverse=True, return_counts=True)
    weight = 1.0 / (count[inverse] * len(count))
    origin = _coordinates(start)

    def loss(theta: np.ndarray) -> float:
        seconds = Seconds(**columns).at(_rates(theta))
        off = theta - origin
        return float(weight @ np.abs(np.log(seconds) - measured)) + _PULL * float(off @ off)

    found = origin
    for _ in range(3):  # a simplex that is started again does not stay in a corner of the absolute errors
        found = minimize(loss, found, method="Nelder-Mead", options={"maxiter": 800, "xatol": 1e-4, "fatol": 1e-7}).x
    return _rates(found)


def _coordinates(rates: Rates) -> np.ndarray:
    shares = np.array([rates.weights, rates.cache, rates.flops])
    return np.append(np.log(shares / (1 - shares)), np.log([rates.again, rates.launch_s]))


def _rates(theta: np.ndarray) -> Rates:
    shares = 1.0 / (1.0 + np.exp(-np.clip(theta[:3], -8.0, 3.0)))
    again, launch_s = np.exp(np.clip(theta[3:], (-5.0, -16.0), (3.0, -7.0)))
    weights, cache, flops = (float(s) for s in shares)
    return Rates(weights, cache, flops, float(again), float(launch_s))


def by_backend(runs: Sequence[Run], others: float) -> dict[str, Rates]:
    """`fit_rates` of each backend. Of one whose prompts were not timed, those of the others; NVIDIA's boards reach more
    in vLLM (``others``): the middle of both.
    """
    timed = {r.backend for r in runs if r.kind == "prompt"}
    found = {n: fit_rates([r for r in runs if r.backend == n]) for n in sorted({r.backend for r in runs})}
    known = middle([found[n] for n in timed]) if timed else _START
    for name in set(found) - timed:
        flops = float(np.sqrt(known.flops * max(others, known.flops))) if name == "CUDA" else known.flops
        found[name] = replace(found[name], flops=flops, again=known.again)
    return found


def vector_share(rates: dict[str, Rates], runs: Sequence[Run]) -> float:
    """The median share of the fp32 peak that backends reach in prompts, none above 1: what devices without matrix
    units reach.
    """
    out = []
    for backend in sorted(rates):
        peaks = [find_device(board).peak_flops for board in sorted({r.device for r in runs if r.backend == backend})]
        own = [min(rates[backend].flops * peak_flops(p, "fp16") / p["fp32"], 1.0) for p in peaks]
        out.append(float(np.median(own)))
    return float(np.median(out))


def middle(rates: Sequence[Rates]) -> Rates:
    """What is taken of a backend without records: the median of each share."""
    return Rates(*(float(v) for v in np.median([astuple(r) for r in rates], axis=0)))


def newest(rates: dict[str, Rates], runs: Sequence[Run]) -> dict[str, Rates]:
    """All with the time to issue a kernel of the newest builds: what software of years ago took is not asked for."""
    recent = {r.backend for r in runs if r.source == _NEWEST}
    own = [rates[name].launch_s for name in recent & set(rates)]
    if not own:
        return rates
    now = float(np.median(own))
    return {name: r if name in recent else replace(r, launch_s=min(now, r.launch_s)) for name, r in rates.items()}


Held = tuple[Run, float, dict[str, float], str]


def held_out(runs: Sequence[Run], beyond: float) -> list[Held]:
    """Each run with what was said of it by others, what that lacked, and what was left out: models, devices, backends
    of a laboratory, laboratories.
    """
    out: list[Held] = []

    def judge(own: Sequence[Run], rates: Rates, name: str, **lacks: float) -> None:
        for r in own:
            out.append((r, r.parts.at(rates), {**dict.fromkeys(CAUSES, 0.0), "measurement": 1.0, **lacks}, name))

    for backend in sorted({r.backend for r in runs}):
        own = [r for r in runs if r.backend == backend]
        rates = fit_rates(own)
        judge(own, rates, f"known:{backend}")
        for kind, key in (("model", "model"), ("device", "device")):
            for name in sorted({getattr(r, key) for r in own}):
                others = [r for r in own if getattr(r, key) != name]
                if len(others) > 20:
                    found = fit_rates(others)
                    left = [r for r in own if getattr(r, key) == name]
                    judge(left, found, f"{kind}:{backend} {name}", **{kind: 1.0})
    for backend in sorted({r.backend for r in runs}):
        others = [r for r in runs if r.backend != backend]
        pooled = middle(list(newest(by_backend(others, beyond), others).values()))
        judge([r for r in runs if r.backend == backend], pooled, f"backend:{backend}", backend=1.0)
    sources = sorted({r.source for r in runs})
    for source in sources if len(sources) > 1 else ():
        others = [r for r in runs if r.source != source]
        pooled = middle(list(newest(by_backend(others, beyond), others).values()))
        for backend in sorted({r.backend for r in runs if r.source == source}):
            left = [r for r in runs if r.source == source and r.backend == backend]
            judge(left, pooled, f"source:{source}/{backend}", laboratory=1.0, backend=1.0)
    return out


def errors_of(held: Sequence[Held], kind: str) -> Errors:
    """Errors of a kind of time."""
    own = [h for h in held if h[0].kind == kind]
    lacks = {cause: np.array([h[2][cause] for h in own]) for cause in CAUSES}
    residual = np.log([h[0].seconds / h[1] for h in own])
    return Errors.of(residual, lacks, np.array([h[3] for h in own], dtype=object))


def widths(held: Sequence[Held], kind: str) -> Spread:
    """The widths that ship, of one kind of time.

    Of models and devices by `spread.fit`. That of a backend is what the least alike of those left out asks for, alone
    or with its laboratory. No backend was measured by two laboratories, so that nothing tells the two apart: of a
    laboratory the width is the prior's.
    """
    errors = errors_of(held, kind)
    part = np.array([name.split(":", 1)[0] for name in errors.source.astype(str)])
    found = spread.fit(errors.take(np.isin(part, ("known", "model", "device"))).thinned(_WIDTH_ROWS), PRIOR)
    outer = errors.take(np.isin(part, ("backend", "source")))
    middles = [np.median(outer.residual[outer.source == name]) for name in np.unique(outer.source.astype(str))]
    at = CAUSES.index("backend")
    least = PRIOR["backend"] / 2
    low = max(-min(middles), least)
    high = max(*middles, least)
    return replace(
        found,
        low=(*found.low[:at], float(low), *found.low[at + 1 :]),
        high=(*found.high[:at], float(high), *found.high[at + 1 :]),
    )


def section(folder: Path | str | None = None) -> dict[str, Any]:
    """The rates and widths that ship, for the artefact's manifest."""
    runs = load(folder)
    beyond = reached_by_others(folder)
    held = held_out(runs, beyond)
    rates = newest(by_backend(runs, beyond), runs)
    spreads = {kind: widths(held, kind) for kind in ("token", "prompt")}

    def written(values: Rates) -> dict[str, float]:
        return {name: float(f"{value:.4g}") for name, value in vars(values).items()}

    return {
        "rates": {name: written(values) for name, values in rates.items()},
        "middle": written(middle(list(rates.values()))),
        "measured": sorted({(r.device, r.packed) for r in runs} | _in_16_bits(folder)),
        "kinds": sorted({(r.backend, r.packed) for r in runs}),
        "prompts": sorted({r.backend for r in runs if r.kind == "prompt"}),
        "vector": round(vector_share(rates, runs), 4),
        "models": sorted({r.model for r in runs}),
        "spread": {kind: found.to_dict() for kind, found in spreads.items()},
        "corpus": {
            "name": "lhl/strix-halo-testing, Apache-2.0; LLM-Inference-Bench (Argonne), BSD-3-Clause",
            "rows": len(runs),
            "models": sorted({r.model for r in runs}),
            "devices": sorted({r.device for r in runs}),
            "runtimes": ["llama.cpp"],
        },
    }
