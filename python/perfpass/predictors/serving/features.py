"""What the trees of the serving predictor see: ratios and shapes of the base, and how measured neighbours came out.

Two sets of columns. The *portable* one has nothing that names a model or a device; what it holds of them are ratios to
the roofline. The *known* one adds what identifies both, and the residuals of the nearest measured workloads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from perfpass.devices import Device
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.costs import ELEMENT_BYTES
from perfpass.llm.serving import Serving
from perfpass.predictors.serving.base import KINDS, RUNTIMES, Sizes, Terms, terms, times

# Weights of the distance between two workloads, set by hand on the rows set aside: what differs in kind counts as some
# doublings of the load.
_TEXTS = {"runtime": 3.0, "version": 0.5, "quantization": 1.0, "family": 1.5, "device": 1.0}
_NUMBERS = {
    "split": 3.0,
    "log_input": 1 / 1.5,
    "log_output": 0.5,
    "log_concurrency": 1.0,
    "log_gpus": 1.0,
    "log_data": 1 / 1.5,
    "log_expert": 0.5,
    "log_workers": 1.0,
    "log_prefill_tensor": 1.0,
    "log_prefill_workers": 1.0,
    "drafts": 1.0,
}
_LOAD = ("log_input", "log_output", "log_concurrency")
# Texts that name a model and a device.
_OWN = ("family", "device")
# Widths of the two averages over neighbours, in units of the distance.
_BANDWIDTHS = (0.35, 1.2)
_FARTHEST = 20.0
# Workloads whose distances to all measured ones fit into a core's second cache.
_AT_ONCE = 24
# The column of `Neighbours.features` that holds the distance to the nearest.
NEAREST = 5
# Requests in flight that nineteen in twenty records have at least.
_LEAST_LOAD = 4.0
# A correction speaks whole up to this distance of what was measured, and for 1/e of it one further: by hand, as `_NEAR`
# of `order`.
_SPEAKS = 1.0
_FEW = 16.0  # requests in flight; by hand, on random records alone
# Distance of a set-up from those measured of its model and device (`Neighbours.set_up_apart`) at which trees count for
# 1/e, the base for the rest. Chosen on the rows set aside, with engines, precisions and numbers of GPUs left out.
_REACH = {"tpot": 4.0, "ttft": 1.0}


@dataclass(frozen=True)
class Workloads:
    """N workloads: the terms of their base, ``texts`` and ``numbers`` (columns [N]) of them. Unknown: NaN."""

    terms: Terms
    texts: dict[str, np.ndarray]
    numbers: dict[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.terms)

    def take(self, rows: np.ndarray) -> Workloads:
        """Some of the rows."""
        texts = {name: column[rows] for name, column in self.texts.items()}
        return Workloads(self.terms.take(rows), texts, {name: column[rows] for name, column in self.numbers.items()})

    @classmethod
    def joined(cls, parts: list[Workloads]) -> Workloads:
        """All parts in a row."""
        texts = {name: np.concatenate([p.texts[name] for p in parts]) for name in parts[0].texts}
        numbers = {name: np.concatenate([p.numbers[name] for p in parts]) for name in parts[0].numbers}
        return cls(Terms.joined([p.terms for p in parts]), texts, numbers)


def describe(
    model: LanguageModel,
    family: str,
    device: Device,
    serving: Serving,
    *,
    assumed: Serving | None = None,
    sizes: Sizes | None = None,
    drafts: int = 0,
    looks: int = 1,
    server: bool = True,
    at_rate: bool = False,
) -> Workloads:
    """One workload, or N loads of one deployment (``sizes``). ``family``: the measured architecture that the model has,
    or its own name.

    ``assumed``: the layout that the base takes where ``serving`` does not tell its workers, which then no feature sees.
    ``drafts``, ``looks``, ``server``, ``at_rate``: as `base.terms`.
    """
    workers_known, stated, serving = assumed is None, serving, assumed or serving
    split = serving.parallelism
    sizes = sizes or Sizes.of(serving)
    own = serving.mode == "disagg" and serving.prefill is not None
    prefill = serving.prefill if own and serving.prefill else split
    workers = float(serving.workers) if own and workers_known else np.nan
    prefill_workers = float(serving.prefill_workers) if own and workers_known else np.nan
    numbers: dict[str, float | np.ndarray] = {
        "split": float(own),
        "log_input": np.log2(sizes.input_length),
        "log_output": np.log2(sizes.output_length),
        "log_concurrency": np.log2(np.maximum(sizes.concurrency, 1.0)),
        "log_gpus": np.log2(split.gpus),
        "log_data": np.log2(split.attention_data),
        "log_expert": np.log2(split.expert),
        "log_workers": np.log2(workers) if workers > 0 else -1.0,
        "log_prefill_tensor": np.log2(prefill.tensor) if own else 0.0,
        "log_prefill_workers": np.log2(prefill_workers) if prefill_workers > 0 else -1.0,
        "drafts": float(drafts),
        "tensor": float(split.tensor),
        "stated_tensor": float(stated.parallelism.tensor),
        "stated_data": float(stated.parallelism.attention_data),
        "stated_expert": float(stated.parallelism.expert),
        "prefill_expert": float(stated.prefill.expert) if stated.prefill else np.nan,
        "prefill_data": float(prefill.attention_data) if own else np.nan,
        "workers": workers,
        "prefill_workers": prefill_workers,
        "deployment_gpus": float(serving.gpus) if workers_known or not own else np.nan,
        "gemm_bytes": ELEMENT_BYTES[serving.quantization.gemm],
        "moe_bytes": ELEMENT_BYTES[serving.quantization.moe] if model.is_mixture else 0.0,
        "mixture": float(model.is_mixture),
        "version": version_number(serving.runtime_version),
        "build": build_number(serving.runtime_version),
        "active": model.active_parameters / 1e9,
        "total": model.parameters / 1e9,
        "layers": float(model.layer_count),
        "device_rank": device.memory_bandwidth_bytes_s / 1e12 + device.memory_bytes / 1e12,
    }
    texts = {
        "runtime": serving.runtime,
        "version": serving.runtime_version,
        "quantization": serving.quantization.gemm + "/" + serving.quantization.moe,
        "family": family,
        "device": device.id,
    }
    rows = len(sizes.concurrency)
    return Workloads(
        terms(
            model,
            device,
            serving,
            sizes,
            unstated=not workers_known,
            drafts=drafts,
            looks=looks,
            server=server,
            at_rate=at_rate,
        ),
        {name: np.full(rows, value, dtype=object) for name, value in texts.items()},
        {name: np.array(np.broadcast_to(value, rows), dtype=np.float64) for name, value in numbers.items()},
    )


def of_16_bits(texts: np.ndarray) -> np.ndarray:
    """Texts of precisions with one name for both types of 16 bits, which run alike."""
    return np.char.replace(texts.astype(str), "fp16", "bf16")


def version_number(version: str) -> float:
    """Rising with the version within a stack; NaN for a development build without one."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    return float(found[1]) * 1e4 + float(found[2]) * 1e2 + float(found[3]) if found else np.nan


def build_number(version: str) -> float:
    """The number of a release candidate or post-release; NaN without."""
    found = re.search(r"(?:rc|post)(\d+)(?!.*(?:rc|post)\d)", version)
    return float(found[1]) if found else np.nan


def _portable(w: Workloads, seconds: dict[str, np.ndarray]) -> np.ndarray:
    """[N, F] features that name neither model nor device; ``seconds``: `base.times` of their terms."""
    t = w.terms
    flops, traffic = t.decode[:, : len(KINDS)], t.decode[:, len(KINDS) : 2 * len(KINDS)]
    longer = np.maximum(flops, traffic)
    total = longer.sum(axis=1)
    columns = [1 - seconds["step"] / seconds["tpot"], seconds["prompt"] / seconds["ttft"]]
    for kind in ("attention", "experts", "projections", "dense_mlp"):
        columns.append(longer[:, KINDS.index(kind)] / total)
    columns += [np.log(flops.sum(axis=1) / traffic.sum(axis=1)), t.decode[:, -3] / total]
    columns += [np.log(t.decode[:, -1] * 1e-5 / total), np.log(t.requests) - w.numbers["log_data"] * np.log(2)]
    names = ("log_input", "log_output", "log_concurrency", "log_expert", "log_data", "split", "gemm_bytes", "mixture")
    columns += [w.numbers[name] for name in names]
    columns += [(w.texts["runtime"] == runtime).astype(float) for runtime in RUNTIMES]
    return np.stack(columns, axis=1).astype(np.float32)


def beside(t: Terms) -> np.ndarray:
    """[N] how much a request is beside others on its replica: 0 alone, 1 from the least load of the records on, and as
    the chance goes between.
    """
    return np.asarray(np.minimum((1 - 1 / np.maximum(_in_flight(t), 1.0)) / (1 - 1 / _LEAST_LOAD), 1.0))


def alike(w: Workloads, distance: np.ndarray | float = 0.0) -> np.ndarray:
    """[N] how much of what the records' first tokens waited counts for a workload, 0 to 1.

    As much as a request is `beside` others, and less where the ``distance`` [N] to measured workloads is large. That
    counts for little where many are in flight, whose queue is the same anywhere, and for nothing where prefill has
    replicas of its own, since records seldom say how many.
    """
    light = np.where(w.terms.split, 0.0, np.minimum(_FEW / np.maximum(_in_flight(w.terms), 1.0), 1.0))
    return np.asarray(beside(w.terms) * np.exp(light * np.minimum(_SPEAKS - np.asarray(distance), 0.0)))


def _in_flight(t: Terms) -> np.ndarray:
    """[N] requests on one replica that prefills, those included that find no room."""
    return np.asarray(np.where(t.split, t.prompts, t.requests * (1 + t.waiting)))


def counted(learned: np.ndarray, steady: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Logarithms [N] of times to the first token: of what was ``learned`` from the records, which waits longer than
    ``steady`` arrivals make it, the ``share`` that counts. As learned where that is shorter, so all three keep order.
    """
    least = np.minimum(steady, learned)
    return np.asarray(least + share * (learned - least))


def with_trees(
    w: Workloads,
    base: dict[str, np.ndarray],
    corrections: dict[str, np.ndarray],
    distance: np.ndarray,
    apart: np.ndarray | float,
) -> dict[str, np.ndarray]:
    """Logarithms [N] of times by target. ``base``: those of the base, and of its "steady" first token; ``corrections``
    [N]: what trees add to them; ``distance`` [N] to measured workloads.

    Trees know nothing of engines, precisions and numbers of GPUs that were not measured: as far as a set-up is
    ``apart`` [N] from those that were, the base counts.
    """
    out = {}
    for target, correction in corrections.items():
        plain, learned = base[target], base[target] + correction
        if target == "ttft":
            plain = counted(plain, base["steady"], alike(w))
            learned = counted(learned, base["steady"], alike(w, distance))
        out[target] = plain + np.exp(-np.asarray(apart) / _REACH[target]) * (learned - plain)
    return out


def known(w: Workloads, constants: dict[str, float]) -> np.ndarray:
    """[N, F] features with all that identifies a workload, but for its neighbours."""
    seconds = times(w.terms, constants)
    columns = [np.log(seconds[name]) for name in ("tpot", "ttft", "prompt")]
    columns += [np.log(w.terms.requests), w.terms.waiting, w.terms.decode[:, -2]]
    names = (
        *("log_gpus", "tensor", "log_prefill_tensor", "prefill_data", "workers", "prefill_workers", "deployment_gpus"),
        *("stated_tensor", "stated_data", "stated_expert", "prefill_expert"),
        *("drafts", "moe_bytes", "version", "build", "active", "total", "layers", "device_rank"),
    )
    columns += [w.numbers[name] for name in names]
    return np.hstack([_portable(w, seconds), np.stack(columns, axis=1).astype(np.float32)])


@dataclass(frozen=True)
class Neighbours:
    """Measured workloads: ``place`` [M, C] coordinates, ``labels`` [M, K] texts, ``weight`` [M], and ``residuals``
    [T, M]: log(measured / base) of T figures.
    """

    place: np.ndarray
    labels: np.ndarray
    weight: np.ndarray
    residuals: np.ndarray

    @cached_property
    def _coded(self) -> tuple[dict[str, int], np.ndarray]:
        """Texts of the measured workloads by number, and their ``labels`` [M, K] in these."""
        texts = self.labels.ravel().tolist()
        words = {text: i for i, text in enumerate(dict.fromkeys(texts))}
        return words, np.array([words[t] for t in texts], np.int32).reshape(self.labels.shape)

    @cached_property
    def _alike(self) -> np.ndarray:
        """[M, K] the labels with one name for both types of 16 bits."""
        return of_16_bits(self.labels)

    def _codes(self, labels: np.ndarray) -> np.ndarray:
        """[N, K] texts as numbers of `_coded`, -1 where no measured workload has them."""
        words = self._coded[0]
        return np.array([words.get(t, -1) for t in labels.ravel().tolist()], np.int32).reshape(labels.shape)

    @classmethod
    def of(cls, w: Workloads, weight: np.ndarray, *residuals: np.ndarray) -> Neighbours:
        """The neighbours that a table of workloads is to others; ``residuals``: [M] each."""
        return cls(*position(w), weight, np.array(residuals).reshape(-1, len(w)))

    def apart(self, w: Workloads) -> float:
        """The least distance of the first of ``w`` to a measured workload of any load: how unlike its set-up is."""
        place, labels = position(w)
        labels, others = self._codes(labels[:1]), self._coded[1]
        fixed = [c for c, name in enumerate(_NUMBERS) if name not in _LOAD]
        distance = np.abs(place[0, fixed] - self.place[:, fixed]).sum(axis=1)
        distance += (labels != others) @ np.array(list(_TEXTS.values()))
        return float(distance.min())

    def set_up_apart(self, w: Workloads) -> list[float]:
        """[N] the least distance in what is not a load, model or device; of the same model and device where they were
        measured together, else of the one of them that was, else of any.
        """
        place, labels = position(w)
        fixed = [c for c, name in enumerate(_NUMBERS) if name not in _LOAD]
        names = list(_TEXTS)
        cost = np.array([0.0 if name in _OWN else _TEXTS[name] for name in names])
        out: dict[tuple[bytes, tuple[str, ...]], float] = {}
        found = []
        for own, texts in zip(place[:, fixed], labels, strict=True):
            key = (own.tobytes(), tuple(texts))
            if key not in out:
                # A version that is not stated is any; how old one is counts apart.
                differs = (self._alike != of_16_bits(texts)) @ np.where(np.array(names) == "version", 0.0, cost)
                distance = np.abs(own - self.place[:, fixed]).sum(axis=1) + differs
                same = [self.labels[:, names.index(name)] == texts[names.index(name)] for name in _OWN]
                kept = next(s for s in (same[0] & same[1], same[0], same[1], np.ones(len(distance), bool)) if s.any())
                out[key] = float(distance[kept].min())
            found.append(out[key])
        return found

    def features(self, w: Workloads, apart: np.ndarray | None = None) -> np.ndarray:
        """[T, N, 9] of workloads, of each of the T residuals: two averages, those of the three nearest, how far the
        first and the third of them are, extremes. ``apart`` [N, M]: pairs that must not know of each other.
        """
        out = np.empty((len(self.residuals), len(w), 9), dtype=np.float32)
        kernel = np.empty((min(_AT_ONCE, len(w)), len(self.place)))
        for rows, distance in self._distances(w, apart):
            first = _three_nearest(distance)
            far = np.take_along_axis(distance, first, axis=1).clip(max=_FARTHEST)
            within, counts = distance.min(axis=1, keepdims=True) - distance, kernel[: len(distance)]
            for k, width in enumerate(_BANDWIDTHS):
                counts[:] = np.exp(within / width)
                counts *= self.weight
                total = counts.sum(axis=1)
                for t, residual in enumerate(self.residuals):
                    out[t, rows, k] = counts @ residual / total
            found = self.residuals[:, first]
            out[:, rows, 2:5], out[:, rows, 5:7] = found, far[:, ::2]
            out[:, rows, 7], out[:, rows, 8] = found.min(axis=2), found.max(axis=2)
        return out

    def nearest(self, w: Workloads) -> np.ndarray:
        """[N] which of the measured workloads is the nearest to each."""
        return np.concatenate([_three_nearest(distance)[:, 0] for _, distance in self._distances(w)])

    def _distances(self, w: Workloads, apart: np.ndarray | None = None) -> Iterator[tuple[slice, np.ndarray]]:
        """Distances [n, M] to those measured of a few workloads at a time, which a processor's cache holds."""
        place, labels = position(w)
        labels, others = self._codes(labels), self._coded[1]
        numbers = [(_once(place[:, c, None]), self.place[:, c].copy()) for c in range(place.shape[1])]
        texts = [(_once(labels[:, k, None]), others[:, k].copy()) for k in range(labels.shape[1])]
        for start in range(0, len(place), _AT_ONCE):
            rows = slice(start, min(start + _AT_ONCE, len(place)))
            distance = np.zeros((rows.stop - start, len(self.place)), dtype=np.float32)
            for own, known in numbers:
                distance += np.abs((own if len(own) == 1 else own[rows]) - known)
            for (own, known), cost in zip(texts, _TEXTS.values(), strict=True):
                distance += np.float32(cost) * ((own if len(own) == 1 else own[rows]) != known)
            if apart is not None:
                distance[apart[rows]] = np.inf
            yield rows, distance


def _three_nearest(distance: np.ndarray) -> np.ndarray:
    """[N, 3] places of the least of ``distance`` [N, M], in order; of equal ones the first, on every processor."""
    rest, rows = distance.copy(), np.arange(len(distance))
    first = np.empty((len(distance), 3), dtype=np.intp)
    for k in range(3):
        first[:, k] = rest.argmin(axis=1)
        rest[rows, first[:, k]] = np.inf
    return first


def _once(column: np.ndarray) -> np.ndarray:
    """A column [N, 1] of equal values as one [1, 1]."""
    return column[:1] if (column == column[0]).all() else column


def position(w: Workloads) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates [N, C] and labels [N, K] of workloads, for distances."""
    place = np.stack([w.numbers[name] * weight for name, weight in _NUMBERS.items()], axis=1)
    return place.astype(np.float32), np.stack([w.texts[name] for name in _TEXTS], axis=1)
