"""What the trees of the serving predictor see: ratios and shapes of the base, and how measured neighbours came out.

Two sets of columns. The *portable* one has nothing that names a model or a device; what it holds of them are ratios to
the roofline. The *known* one adds what identifies both, and the residuals of the nearest measured workloads.
"""

from __future__ import annotations

import re
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
# The column of `Neighbours.features` that holds the distance to the nearest.
NEAREST = 5
# Requests in flight that nineteen in twenty records have at least.
_LEAST_LOAD = 4.0
# A correction speaks whole up to this distance of what was measured, and for 1/e of it one further: by hand, as `_NEAR`
# of `order`.
_SPEAKS = 1.0
_FEW = 16.0  # requests in flight; by hand, on random records alone


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
) -> Workloads:
    """One workload, or N loads of one deployment (``sizes``). ``family``: the measured architecture that the model has,
    or its own name.

    ``assumed``: the layout that the base takes where ``serving`` does not tell its workers, which then no feature sees.
    ``drafts``, ``looks``, ``server``: as `base.terms`.
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
        terms(model, device, serving, sizes, unstated=not workers_known, drafts=drafts, looks=looks, server=server),
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


def portable(w: Workloads, constants: dict[str, float]) -> np.ndarray:
    """[N, F] features that name neither model nor device."""
    t, seconds = w.terms, times(w.terms, constants)
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
    return np.hstack([portable(w, constants), np.stack(columns, axis=1).astype(np.float32)])


@dataclass(frozen=True)
class Neighbours:
    """Measured workloads: ``place`` [M, C] coordinates, ``labels`` [M, K] texts, ``weight`` [M] and residuals [M].

    ``residual``: log(measured / base).
    """

    place: np.ndarray
    labels: np.ndarray
    weight: np.ndarray
    residual: np.ndarray

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
    def of(cls, w: Workloads, weight: np.ndarray, residual: np.ndarray) -> Neighbours:
        """The neighbours that a table of workloads is to others."""
        return cls(*position(w), weight, residual)

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
        """[N, 9] of workloads, as `nearness` gives them of the own residuals; ``apart`` as there."""
        return self.nearness(w, apart).of(self.residual)

    def nearness(self, w: Workloads, apart: np.ndarray | None = None) -> Nearness:
        """How near workloads are to those measured. ``apart`` [N, M]: pairs that must not know of each other."""
        place, labels = position(w)
        labels, others = self._codes(labels), self._coded[1]
        distance = np.zeros((len(place), len(self.place)), dtype=np.float32)
        for c in range(place.shape[1]):
            distance += np.abs(_once(place[:, c, None]) - self.place[None, :, c])
        for k, cost in enumerate(_TEXTS.values()):
            distance += np.float32(cost) * (_once(labels[:, k, None]) != others[None, :, k])
        if apart is not None:
            distance[apart] = np.inf
        nearest = distance.min(axis=1, keepdims=True)
        kernels = [np.exp(-(distance - nearest) / width) * self.weight for width in _BANDWIDTHS]
        order = np.argpartition(distance, 2, axis=1)[:, :3]
        far = np.take_along_axis(distance, order, axis=1)
        inner = np.argsort(far, axis=1, kind="stable")
        first = np.take_along_axis(order, inner, axis=1)
        return Nearness(kernels, first, np.take_along_axis(far, inner, axis=1).clip(max=_FARTHEST))


@dataclass(frozen=True, eq=False)
class Nearness:
    """Of N workloads: what each of M measured counts for (``kernels``, [N, M] each), the ``first`` [N, 3] of them, and
    how ``far`` [N, 3] those are. It says nothing of what was measured, so one serves for all residuals.
    """

    kernels: list[np.ndarray]
    first: np.ndarray
    far: np.ndarray

    def of(self, residual: np.ndarray) -> np.ndarray:
        """[N, 9] from ``residual`` [M]: two averages, the three nearest, distances, extremes."""
        out = [kernel @ residual / kernel.sum(axis=1) for kernel in self.kernels]
        found, far = residual[self.first], self.far
        out += [found[:, 0], found[:, 1], found[:, 2], far[:, 0], far[:, 2], found.min(axis=1), found.max(axis=1)]
        return np.stack(out, axis=1).astype(np.float32)


def _once(column: np.ndarray) -> np.ndarray:
    """A column [N, 1] of equal values as one [1, 1]."""
    return column[:1] if (column == column[0]).all() else column


def position(w: Workloads) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates [N, C] and labels [N, K] of workloads, for distances."""
    place = np.stack([w.numbers[name] * weight for name, weight in _NUMBERS.items()], axis=1)
    return place.astype(np.float32), np.stack([w.texts[name] for name in _TEXTS], axis=1)
