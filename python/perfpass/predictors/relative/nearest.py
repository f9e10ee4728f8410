"""The measured records nearest to a question, and what each would say: copied, and scaled by physics.

A copy is the measured figure times the ratio of what both runs take at least (`work`): of time for times, of bytes for
memory, of time and power limit for energy. How far a record is, is a sum over `DIMENSIONS`, in units of about the
natural logarithm of the factor by which such a copy errs: 0.1 is some ten per cent. The weights are set by hand; how
far copies err is in data/results/accuracy/relative.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from perfpass.errors import ArgumentError
from perfpass.predictors.relative import scope
from perfpass.predictors.relative.question import Question, plain
from perfpass.predictors.roofline import sustained_bandwidth, sustained_flops
from perfpass.text import unknown

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.predictors.relative.relatives import Coded, Relatives

DIMENSIONS = ("device", "software", "precision", "model", "batch", "scope")
# Beyond these a record says little: the nearest is no evidence then, and is called so.
FAR = 1.0
FAR_FACTOR = 10.0
LEAVE_OUT = ("source", "device", "model")


class Quantity(NamedTuple):
    """What is copied: the measured column, the work it is scaled by, its unit, whether with the power limit too."""

    figure: str
    work: str
    unit: str
    powered: bool = False


_MEMORY = "peak_memory_bytes"
QUANTITIES: dict[str, Quantity] = {
    "time": Quantity("time_ms", "run_ms", "ms"),
    "first token": Quantity("ttft_ms", "prompt_ms", "ms"),
    "token": Quantity("tpot_ms", "token_ms", "ms"),
    "memory": Quantity(_MEMORY, "held_bytes", "byte"),
    "energy": Quantity("energy_j", "run_ms", "J", powered=True),
    "request energy": Quantity("request_energy_j", "request_ms", "J", powered=True),
}
# What is measured in the same way may answer: a phase of a batch without a server for one of a server.
ANSWERED_BY: dict[str, tuple[str, ...]] = {
    "inference": ("inference",),
    "step": ("step",),
    "serving": ("serving", "generation"),
    "generation": ("generation", "serving"),
    # Of a model that cannot be read: whatever bears its name.
    "named": ("inference", "step", "serving", "generation", "pipeline"),
}
QUANTITIES_OF: dict[str, tuple[str, ...]] = {
    "inference": ("time", "memory", "energy"),
    "step": ("time", "memory", "energy"),
    "serving": ("first token", "token", "request energy", "memory"),
    "generation": ("time", "first token", "token", "request energy", "memory"),
    "named": ("time", "first token", "token", "memory", "energy", "request energy"),
}

# Distances; see the module.
_OTHER_BOARD, _OTHER_SLICE, _OTHER_ARCHITECTURE, _OTHER_VENDOR, _OTHER_KIND = 0.10, 0.05, 0.10, 0.30, 1.0
_PER_LOG_RATE, _PER_LOG_DEVICES, _UNKNOWN_DEVICE = 0.10, 0.20, 1.0
_OTHER_RUNTIME, _SAME_FRAMEWORK, _OTHER_VERSION, _OTHER_LAYOUT, _OTHER_SERVICE = 0.50, 0.25, 0.03, 0.10, 0.30
_SAME_BITS, _PER_LOG2_BITS, _PRECISION_UNKNOWN = 0.15, 0.30, 0.30
_PER_FINGERPRINT, _OTHER_LANGUAGE_MODEL, _PER_LOG_SIZE, _UNCOUNTED, _ALIKE = 1.0, 0.03, 0.10, 0.05, 0.50
_PER_LOG_BATCH, _PER_LOG_TOKENS, _PER_LOG_PROCESSES = 0.08, 0.08, 0.15
_BITS = {"fp64": 64, "fp32": 32, "tf32": 32, "fp16": 16, "bf16": 16, "amp": 16, "amp_bf16": 16}
# Runtimes that run the same kernels, by the word they share.
_FRAMEWORKS = ("torch", "tensorrt", "onnxruntime", "tensorflow", "paddle", "vllm", "trtllm", "sglang")


@dataclass(frozen=True, eq=False)
class Nearest:
    """The K records nearest to a question: ``rows`` [K], ``distances`` [K, len(DIMENSIONS)], ``copied`` [K] (NaN where
    it cannot be scaled) and ``factor`` [K] of the scaling.
    """

    quantity: str
    rows: np.ndarray
    distances: np.ndarray
    copied: np.ndarray
    factor: np.ndarray

    @property
    def total(self) -> np.ndarray:
        """[K] the sum of each record's distances."""
        return np.asarray(self.distances.sum(axis=1))


def nearest(
    question: Question,
    relatives: Relatives,
    quantity: str,
    *,
    limit: int | None = 5,
    leave_out: Mapping[str, Collection[str]] | None = None,
) -> Nearest:
    """The records nearest to ``question`` that have measured ``quantity``, one of `QUANTITIES`.

    ``leave_out``: values that do not count, by "source", "device" (an id, with its slices) or "model" (a name as the
    records have it, or its plain form). Some 5 ms for 70,000 records. Raises ArgumentError.
    """
    what = _quantity(quantity)
    if limit is not None and limit < 1:
        raise ArgumentError(f"limit must be at least 1, got {limit}")
    known = _candidates(question, relatives, what) & ~_left_out(relatives, leave_out or {})
    rows = np.flatnonzero(known)
    apart = distances(question, relatives, rows, what)
    order = np.argsort(apart.sum(axis=1), kind="stable")[:limit]
    rows, apart = rows[order], apart[order]
    factor = scaling(question, relatives, rows, what)
    return Nearest(quantity, rows, apart, relatives.numbers[what.figure][rows] * factor, factor)


def copies(
    relatives: Relatives, quantity: str, rows: np.ndarray, *, leave_out: Collection[str] = ()
) -> tuple[np.ndarray, np.ndarray]:
    """The baseline "copy the nearest measured relative and scale" for the own questions of ``rows`` [K].

    Gives the copies [K] and how far their records are [K]; NaN where no record is left. ``leave_out``: of "source",
    "device" and "model", what the record itself has and no relative may have; the record is never its own relative.
    One search of some milliseconds for each row, so 10,000 rows take about a minute.
    """
    for name in leave_out:
        if name not in LEAVE_OUT:
            raise ArgumentError(unknown("leave_out", name, LEAVE_OUT))
    found, far = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    for i, row in enumerate(np.asarray(rows).tolist()):
        own = {
            "source": relatives.texts["source"][row],
            "device": relatives.texts["device"][row],
            "model": relatives.names[row],
        }
        question = relatives.question(row)
        near = nearest(question, relatives, quantity, limit=None, leave_out={n: {own[n]} for n in leave_out})
        use = (near.rows != row) & np.isfinite(near.copied)
        if use.any():
            first = int(np.argmax(use))
            found[i], far[i] = near.copied[first], near.total[first]
    return found, far


def scaling(question: Question, relatives: Relatives, rows: np.ndarray, what: Quantity) -> np.ndarray:
    """[K] what the figures of ``rows`` are multiplied by; NaN where one of the two was not counted."""
    asked = question.work.get(what.work, np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        factor = asked / relatives.numbers[what.work][rows]
    if what.powered:
        factor = factor * question.device.power_limit_w * question.devices / _power_limits(relatives, rows)
    return np.asarray(factor, dtype=np.float64)


def distances(question: Question, relatives: Relatives, rows: np.ndarray, what: Quantity) -> np.ndarray:
    """[K, len(DIMENSIONS)] how far each of ``rows`` is; see the module."""
    parts = (_device, _software, _precision, _model, _batch)
    with np.errstate(invalid="ignore", divide="ignore"):
        apart = [part(question, relatives, rows) for part in parts]
    return np.column_stack([*apart, _scope(question, relatives, rows, what)])


def _quantity(name: str) -> Quantity:
    if name not in QUANTITIES:
        raise ArgumentError(unknown("quantity", name, QUANTITIES))
    return QUANTITIES[name]


def _candidates(question: Question, relatives: Relatives, what: Quantity) -> np.ndarray:
    """[N] records of the right kind with the figure, that can be scaled or are of the very model."""
    kinds = _among(relatives.texts["kind"], ANSWERED_BY[question.kind])
    if what.figure == _MEMORY:
        kinds = kinds & _of_like_memory(question, relatives)
    named = _among(relatives.names, question.names)
    scaled = np.isfinite(relatives.numbers[what.work]) & (what.work in question.work)
    return np.asarray(kinds & np.isfinite(relatives.numbers[what.figure]) & (scaled | named))


def _of_like_memory(question: Question, relatives: Relatives) -> np.ndarray:
    """[N] records whose memory is that of the kind of device asked for.

    A process's memory on a host says nothing of what a GPU has in use, and a phone's nothing of either.
    """

    def kind(name: str) -> float:
        found = relatives.device(name)
        return float(found is not None and found.kind == question.device.kind)

    of_host = _among(relatives.texts["memory_kind"], {scope.HOST})
    if question.device.kind == "cpu":
        return of_host
    return ~of_host & (_by_text(relatives.texts["device"], None, kind) > 0)


def _left_out(relatives: Relatives, leave_out: Mapping[str, Collection[str]]) -> np.ndarray:
    """[N] whether a record is not to count."""
    out = np.zeros(len(relatives), dtype=bool)
    for name, values in leave_out.items():
        if name not in LEAVE_OUT:
            raise ArgumentError(unknown("leave_out", name, LEAVE_OUT))
        if name == "model":
            out |= _among(relatives.names, {plain(value) for value in values})
        elif name == "device":
            out |= _among(relatives.texts["device"], {_parent(value) for value in values}, _parent)
        else:
            out |= _among(relatives.texts["source"], values)
    return out


def _parent(device: str) -> str:
    """The device of a slice."""
    return device.partition(":")[0]


def _by_text(column: Coded, rows: np.ndarray | None, value_of: Callable[[str], float]) -> np.ndarray:
    """[K] a number by text, of some rows or of all."""
    values = np.array([value_of(text) for text in column.values], dtype=np.float64)
    codes = column.code if rows is None else column.code[rows]
    return values[codes] if len(values) else np.zeros(0)


def _among(column: Coded, wanted: Collection[str], key: Callable[[str], str] = str) -> np.ndarray:
    """[N] whether a text is one of ``wanted``."""
    return _by_text(column, None, lambda text: float(key(text) in wanted)) > 0


def _power_limits(relatives: Relatives, rows: np.ndarray) -> np.ndarray:
    def limit(name: str) -> float:
        found = relatives.device(name)
        return found.power_limit_w if found else np.nan

    return _by_text(relatives.texts["device"], rows, limit) * _devices(relatives, rows)


def _devices(relatives: Relatives, rows: np.ndarray) -> np.ndarray:
    """[K] devices that took part; one where it is not stated."""
    return np.fmax(relatives.numbers["devices"][rows], 1.0)


def _device(question: Question, relatives: Relatives, rows: np.ndarray) -> np.ndarray:
    def apart(name: str) -> float:
        found = relatives.device(name)
        return _UNKNOWN_DEVICE if found is None else between(question.device, found)

    own = _by_text(relatives.texts["device"], rows, apart)
    others = _devices(relatives, rows)
    return own + _PER_LOG_DEVICES * np.abs(np.log(others / max(question.devices, 1)))


@lru_cache(maxsize=65536)
def between(a: Device, b: Device) -> float:
    """How far one device is from another."""
    if a.id == b.id:
        return 0.0
    rates = (sustained_bandwidth(a) / sustained_bandwidth(b), *(_rate(a, p) / _rate(b, p) for p in ("fp32", "fp16")))
    speed = _PER_LOG_RATE * float(np.mean(np.abs(np.log(rates))))
    if (a.parent or a.id) == (b.parent or b.id):
        return _OTHER_SLICE + speed
    other = _OTHER_BOARD + _OTHER_ARCHITECTURE * (a.architecture != b.architecture)
    return other + speed + _OTHER_VENDOR * (a.vendor != b.vendor) + _OTHER_KIND * (a.kind != b.kind)


def _rate(device: Device, precision: str) -> float:
    return max(sustained_flops(device, precision), 1.0)


def _software(question: Question, relatives: Relatives, rows: np.ndarray) -> np.ndarray:
    def runtime(name: str) -> float:
        if name == question.runtime or not question.runtime:
            return 0.0
        shared = any(word in name and word in question.runtime for word in _FRAMEWORKS)
        return _SAME_FRAMEWORK if shared else _OTHER_RUNTIME

    def unlike(asked: str, weight: float) -> Callable[[str], float]:
        return lambda stated: weight * float(bool(asked) and bool(stated) and asked != stated)

    texts = relatives.texts
    return (
        _by_text(texts["runtime"], rows, runtime)
        + _by_text(texts["runtime_version"], rows, unlike(question.version, _OTHER_VERSION))
        + _by_text(texts["layout"], rows, unlike(question.layout, _OTHER_LAYOUT))
        + _by_text(texts["kind"], rows, unlike("" if question.kind == "named" else question.kind, _OTHER_SERVICE))
    )


def bits(precision: str) -> float:
    """Bits of a stored number of a precision; NaN for one that is not known."""
    from perfpass.llm.costs import ELEMENT_BYTES

    if precision in _BITS:
        return float(_BITS[precision])
    if precision in ELEMENT_BYTES:
        return 8.0 * ELEMENT_BYTES[precision]
    return {"fp8": 8.0, "int8": 8.0, "int4": 4.0, "fp4": 4.0}.get(precision, np.nan)


def _scope(question: Question, relatives: Relatives, rows: np.ndarray, what: Quantity) -> np.ndarray:
    """What the figure holds: of memory its kind, of times and energies the timed region, of requests what they are."""
    if what.figure == _MEMORY:
        kinds = relatives.texts["memory_kind"]
        return _by_text(kinds, rows, lambda stated: scope.between_memories(question.memory_kind, stated))
    if question.timed == scope.REQUESTS_OF_TEXT:
        images = _by_text(relatives.texts["task"], rows, scope.of_request)
        if question.kind != "serving":  # a batch's tokens are timed apart from its prompts
            return images
        return images + scope.of_prompt(question.input_tokens, relatives.numbers["input_tokens"][rows])
    timed = relatives.texts["timing"]
    return _by_text(timed, rows, lambda text: scope.between_timings(question.timed, scope.of_timing(text)))


def _precision(question: Question, relatives: Relatives, rows: np.ndarray) -> np.ndarray:
    def apart(stated: str) -> float:
        if stated == question.precision or not question.precision:
            return 0.0
        ratio = bits(stated) / bits(question.precision)
        if not np.isfinite(ratio):
            return _PRECISION_UNKNOWN
        return _SAME_BITS + _PER_LOG2_BITS * abs(float(np.log2(ratio)))

    return _by_text(relatives.texts["precision"], rows, apart)


def _model(question: Question, relatives: Relatives, rows: np.ndarray) -> np.ndarray:
    named = _by_text(relatives.names, rows, lambda name: float(name in question.names)) > 0
    found = np.full(len(rows), np.inf)
    if question.size is not None:
        parameters, active = question.size
        ratios = (
            relatives.numbers["parameters"][rows] / parameters,
            relatives.numbers["active_parameters"][rows] / active,
        )
        sized = _OTHER_LANGUAGE_MODEL * ~named + _PER_LOG_SIZE * sum(np.abs(np.log(r)) for r in ratios)
        found = np.where(np.isfinite(sized), sized, np.inf)
    elif question.fingerprint is not None and len(relatives.fingerprints):
        apart = np.linalg.norm(relatives.fingerprints - question.fingerprint, axis=1) / np.sqrt(2.0)
        network = relatives.network[rows]
        found = np.where(network >= 0, _PER_FINGERPRINT * apart[np.maximum(network, 0)], np.inf)
    own = plain(question.model)
    by_name = _by_text(relatives.names, rows, lambda name: _UNCOUNTED if own in name else _ALIKE)
    uncounted = by_name if question.kind == "named" else _UNCOUNTED
    return np.minimum(np.where(np.isinf(found) & named, uncounted, found), 10.0)


def _batch(question: Question, relatives: Relatives, rows: np.ndarray) -> np.ndarray:
    def apart(name: str, asked: float, weight: float) -> np.ndarray:
        stated = relatives.numbers[name][rows]
        known = np.isfinite(stated) & (stated > 0) & np.isfinite(asked) & (asked > 0)
        return np.asarray(
            np.where(known, weight * np.abs(np.log(np.where(known, stated, 1.0) / max(asked, 1e-9))), 0.0)
        )

    return (
        apart("batch", question.batch, _PER_LOG_BATCH)
        + apart("input_tokens", question.input_tokens, _PER_LOG_TOKENS)
        + apart("output_tokens", question.output_tokens, _PER_LOG_TOKENS)
        + apart("processes", float(question.processes), _PER_LOG_PROCESSES)
    )
