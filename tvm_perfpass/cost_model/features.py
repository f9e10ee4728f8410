"""What a candidate costs and how it treats the machine: ratios from TVM's counts of its loop nests.

TVM (PerStoreFeature of MetaSchedule, features_from_primfunc of the auto scheduler; both after Ansor, Zheng et al., OSDI
2020, section 5.2) counts one row of 164 numbers for every buffer that a program writes: operations, bytes, cache lines,
reuse. Here these rows become one vector per candidate. Its entries are ratios to the machine (elements per register
file, bytes per cache, seconds per bound) and tell operands by what they are (accumulator, contiguous or strided read),
not by the order in which TVM lists them, so that what is learned on one workload says something about the next.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tvm_perfpass.cost_model.hardware import Hardware

SCHEMA_VERSION = 1
ROW = 164
# Where TVM puts what (src/meta_schedule/feature_extractor/per_store_feature.cc).
_VECTOR, _UNROLL, _PARALLEL, _BUFFERS, _CURVE, _ALLOC, _OUTER = 16, 27, 38, 57, 147, 157, 161
_PER_BUFFER, _BUFFER_COUNT = 18, 5
_READ, _WRITE, _READ_WRITE, _BYTES, _UNIQUE, _LINES, _UNIQUE_LINES, _LOOP_REUSE = 0, 1, 2, 3, 4, 5, 6, 7
_SERIAL_REUSE, _NO_REUSE, _REUSE_ITERATIONS, _REUSE_BYTES, _REUSE_COUNT, _STRIDE = 8, 9, 10, 11, 12, 17
_LINE = 64.0
# Operations that a core spends on one of TVM's float classes: multiply-add, add, multiply, divide, compare, math
# function, other. A vector division takes some eight issue slots and a polynomial exp some twenty (Agner Fog's
# instruction tables; the polynomial in TVM's llvm legalization).
_OPERATION_COST = np.array([2.0, 1.0, 1.0, 8.0, 1.0, 20.0, 20.0])
# Cycles of latency of a dependent multiply-add (Agner Fog, Zen 3 to 5 and Intel since Skylake), and of a call of expf.
_ADD_CYCLES, _CALL_CYCLES = 4.0, 8.0
# Length of a reduction that LLVM unrolls as a whole (its own threshold is one of code size; found by trying).
_UNROLLED = 32
_STORES = 2

_STORE_FEATURES = (
    *("flops_share", "time_share", "vector_lanes", "vector_prod", "vectorized", "explicit_unroll", "auto_unroll"),
    *("parallel", "loops", "outer", "flops_per_iteration", "integer_per_float", "select_per_float"),
    *("accumulator_iterations", "accumulator_registers", "accumulator_count", "accumulator_stride", "accumulates"),
    *("accumulator_l1", "accumulator_unique_l2"),
)
_OPERAND_FEATURES = (
    *("present", "stride", "broadcast", "contiguous", "strided", "lines_per_flop", "unique_l1", "unique_l2"),
    *("unique_l3", "reuse_l1", "reuse_l2", "reuse_iterations", "reuse_count", "serial", "no_reuse"),
)
_OPERANDS = ("first", "second", "target")
_LEVELS = ("compute", "l2", "l3", "memory")
NAMES: tuple[str, ...] = (
    *("stores", "log_bound_s", "intensity_per_ridge", "analytic", *(f"bound_{level}" for level in _LEVELS)),
    *("recomputed", "small_stores", "alloc_l1", "alloc_l2", "parallel_per_core"),
    *(f"store{s}_{name}" for s in range(_STORES) for name in _STORE_FEATURES),
    *(f"store{s}_{o}_{name}" for s in range(_STORES) for o in _OPERANDS for name in _OPERAND_FEATURES),
    *(f"curve{i}" for i in range(0, 10, 2)),
)
ANALYTIC = NAMES.index("analytic")
COUNT = len(NAMES)


def candidate_features(
    rows: Sequence[np.ndarray], hardware: Hardware, least_flops: float | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """One vector per candidate from its rows of TVM's counts, [stores, 164] each.

    Returns the features, float32 [candidates, COUNT], and the seconds that each takes if every store runs at what its
    vectorisation and its cache traffic allow, float64 [candidates]. A candidate without rows (nothing is stored but
    constants) or with counts that are no numbers gets NaN in both. ``least_flops`` is what the computation needs; the
    least of the candidates if None.
    """
    n = len(rows)
    features = np.full((n, COUNT), np.nan, dtype=np.float32)
    seconds = np.full(n, np.nan)
    usable = [
        i for i, x in enumerate(rows) if x.ndim == 2 and x.shape[0] and x.shape[1] >= ROW and np.isfinite(x).all()
    ]
    if not usable:
        return features, seconds
    counts = np.array([rows[i].shape[0] for i in usable])
    owner = np.repeat(np.arange(len(usable)), counts)
    stores = _Stores(np.concatenate([rows[i][:, :ROW] for i in usable]).astype(np.float64), hardware)

    def total(values: np.ndarray) -> np.ndarray:
        return np.bincount(owner, weights=values, minlength=len(usable))

    flops, time = total(stores.flops), total(stores.seconds)
    least = least_flops if least_flops else float(flops.min())
    unique = total(stores.unique_bytes)
    bound = np.maximum(least / (hardware.core_flop_s * hardware.cores), 1e-9)
    columns = [
        counts.astype(float),
        np.full(len(usable), np.log2(bound / 1e-6)),
        np.log2((flops + 1) / (unique + 1) / (hardware.core_flop_s / hardware.memory_bytes_s)),
        -np.log2(time / bound),
        *(np.log2(total(part) / bound + 1e-3) for part in stores.parts),
        np.log2((flops + 1) / (least + 1)),
        total(stores.flops == 0) / counts,
        np.log2(total(stores.alloc_bytes) / hardware.l1_bytes + 1e-3),
        np.log2(total(stores.alloc_bytes) / hardware.l2_bytes + 1e-3),
        np.log2((total(stores.parallel * stores.seconds) / time + 1) / hardware.cores),
    ]
    # The stores that take longest, most first; a candidate with one store repeats nothing: its second is zeros.
    order = np.lexsort((-stores.seconds, owner))
    first = np.concatenate(([0], np.cumsum(counts)[:-1]))
    chosen = [order[first], order[np.minimum(first + 1, first + counts - 1)]]
    exists = [np.ones(len(usable), dtype=bool), counts > 1]
    for pick, there in zip(chosen, exists, strict=True):
        block = stores.own(pick, flops, time)
        columns += [np.where(there, column, 0.0) for column in block]
    for pick, there in zip(chosen, exists, strict=True):
        columns += [np.where(there, column, 0.0) for column in stores.operands(pick)]
    columns += [stores.rows[chosen[0], _CURVE + i] for i in range(0, 10, 2)]
    # Half precision has eleven bits for a log2 ratio: enough, and what is saved is what was scored.
    features[usable] = np.stack(columns, axis=1).astype(np.float16)
    seconds[usable] = time
    return features, seconds


def total_flops(rows: np.ndarray) -> float:
    """Weighted operations of one program's rows, [stores, 164]."""
    return float((_counts(rows[:, :7]) @ _OPERATION_COST).sum()) if rows.size else 0.0


def unscheduled_seconds(rows: np.ndarray, hardware: Hardware) -> float:
    """Seconds of a program as it came, on one core: what a compiler makes of plain loops.

    An accumulator in a long innermost loop makes a chain of dependent additions, which no compiler may reorder; a short
    reduction is unrolled; contiguous stores become vectors, strided ones do not; calls of math functions stay calls.
    """
    return _Stores(np.asarray(rows, dtype=np.float64)[:, :ROW], hardware).unscheduled()


def bound_seconds(rows: np.ndarray, hardware: Hardware) -> float:
    """Seconds that no schedule goes below: operations at peak on all cores, or every byte once from where it fits."""
    stores = _Stores(np.asarray(rows, dtype=np.float64)[:, :ROW], hardware)
    compute = stores.flops.sum() / (hardware.core_flop_s * hardware.cores)
    moved = stores.unique_bytes.sum()
    level = hardware.l3_bytes_s * hardware.cores if moved <= hardware.l3_bytes else hardware.memory_bytes_s
    if moved <= hardware.l2_bytes:
        level = hardware.l2_bytes_s * hardware.cores
    return float(max(compute, moved / level, 1e-9))


class _Stores:
    """TVM's rows of many candidates at once, [stores, 164], and what each store costs on the hardware."""

    def __init__(self, rows: np.ndarray, hardware: Hardware) -> None:
        self.rows, self.hardware = rows, hardware
        operations = _counts(rows[:, :7])
        self.flops = operations @ _OPERATION_COST
        self.integers = _counts(rows[:, 7:14]).sum(axis=1)
        self.selects = _counts(rows[:, 14:16]).sum(axis=1)
        self.parallel = np.maximum(_counts(rows[:, _PARALLEL + 1]), 1.0)
        self.vector = np.maximum(_counts(rows[:, _VECTOR + 2]), 1.0)
        self.outer = np.maximum(_counts(rows[:, _OUTER]), 1.0)
        self.alloc_bytes = _counts(rows[:, _ALLOC])
        buffers = rows[:, _BUFFERS : _BUFFERS + _PER_BUFFER * _BUFFER_COUNT].reshape(-1, _BUFFER_COUNT, _PER_BUFFER)
        self.buffers = buffers
        self.present = buffers[:, :, : _READ_WRITE + 1].any(axis=2)
        self.amount = _counts(buffers)
        self.unique_bytes = self.amount[:, :, _UNIQUE].sum(axis=1)
        self._charge()

    def _charge(self) -> None:
        """Seconds of a store: the slowest of its arithmetic and of what it moves out of each level of the memory."""
        h = self.hardware
        cores = np.minimum(self.parallel, h.cores)
        lanes = np.clip(self.vector, 1.0, h.lanes)
        # A contiguous access per vector; a strided one is gathered element by element.
        stride = self.amount[:, :, _STRIDE]
        gathers = ((stride > 1.5) & self.present).sum(axis=1)
        effective = np.where(gathers > 0, np.maximum(1.0, lanes / (1.0 + lanes / 4 * gathers)), lanes)
        work = np.maximum(self.flops, self.outer)
        compute = work / (h.core_flop_s * effective / h.lanes * cores)
        lines = self.amount[:, :, _LINES] * _LINE
        distance, count = self.amount[:, :, _REUSE_BYTES], np.maximum(self.amount[:, :, _REUSE_COUNT], 1.0)
        unique = self.amount[:, :, _UNIQUE]
        parts = [compute]
        for size, rate in (
            (h.l1_bytes, h.l2_bytes_s * cores),
            (h.l2_bytes, h.l3_bytes_s * cores),
            (h.l3_bytes, np.full(len(cores), h.memory_bytes_s)),
        ):
            kept = np.where(distance <= size, lines / count, lines)
            # What fits as a whole is fetched once.
            moved = np.where(unique <= size / 2, np.minimum(unique, kept), np.maximum(np.minimum(unique, kept), kept))
            parts.append((moved * self.present).sum(axis=1) / rate)
        self.parts = parts
        self.seconds = np.maximum(np.max(parts, axis=0), 1e-12)

    def unscheduled(self) -> float:
        """Seconds of all stores in plain loops on one core."""
        h = self.hardware
        write = self._slot(np.arange(len(self.rows)), "target")
        at = np.arange(len(self.rows)), write
        stride = self.amount[:, :, _STRIDE] * self.present
        target = self.amount[at]
        short = self.outer / np.maximum(target[:, _UNIQUE] / 4, 1.0) <= _UNROLLED
        chained = (self.buffers[at][:, _READ_WRITE] > 0) & (target[:, _STRIDE] < 0.5) & ~short
        vectors = ((stride < 1.5).all(axis=1) | short) & ~chained
        calls = _counts(self.rows[:, 5:7]).sum(axis=1)
        arithmetic = np.maximum(self.flops - calls * _OPERATION_COST[5], self.outer) / h.core_flop_s
        compute = arithmetic * np.where(vectors, 2.0, h.lanes) + calls * _CALL_CYCLES / h.clock_hz
        chain = np.where(chained, self.outer * _ADD_CYCLES / h.clock_hz, 0.0)
        return float(np.maximum(np.maximum(compute, chain), np.max(self.parts[1:], axis=0)).sum())

    def own(self, pick: np.ndarray, flops: np.ndarray, time: np.ndarray) -> list[np.ndarray]:
        """_STORE_FEATURES of the stores picked, each [candidates]."""
        h, rows = self.hardware, self.rows[pick]
        work = self.flops[pick]
        write = self._slot(pick, "target")
        at = np.arange(len(pick)), write
        amount, flags = self.amount[pick][at], self.buffers[pick][at]
        accumulates = flags[:, _READ_WRITE]
        iterations = amount[:, _REUSE_ITERATIONS]
        return [
            (work + 1) / (flops + 1),
            self.seconds[pick] / time,
            np.log2(self.vector[pick] / h.lanes),
            rows[:, _VECTOR + 1],
            (self.vector[pick] > 1).astype(float),
            rows[:, _UNROLL + 1],
            rows[:, _OUTER + 2],
            np.log2(self.parallel[pick]),
            rows[:, _OUTER + 1],
            np.log2(self.outer[pick]),
            np.log2(work / self.outer[pick] + 1e-2),
            np.log2((self.integers[pick] + 1) / (work + 1)),
            np.log2((self.selects[pick] + 1) / (work + 1)),
            np.log2(iterations + 1),
            np.log2((iterations + 1) / (h.lanes * h.vector_registers)),
            np.log2(amount[:, _REUSE_COUNT] + 1),
            np.log2(amount[:, _STRIDE] + 1),
            accumulates,
            np.log2((amount[:, _REUSE_BYTES] + 1) / h.l1_bytes),
            np.log2((amount[:, _UNIQUE] + 1) / h.l2_bytes),
        ]

    def operands(self, pick: np.ndarray) -> list[np.ndarray]:
        """_OPERAND_FEATURES of the two largest reads and of what is written, each [candidates]."""
        h = self.hardware
        columns: list[np.ndarray] = []
        everything, buffers, work = self.amount[pick], self.buffers[pick], np.maximum(self.flops[pick], 1.0)
        for role in _OPERANDS:
            slot = self._slot(pick, role)
            at = np.arange(len(pick)), np.maximum(slot, 0)
            amount, flags, there = everything[at], buffers[at], slot >= 0
            stride = amount[:, _STRIDE]
            block = [
                there.astype(float),
                np.log2(stride + 1),
                stride < 0.5,
                (stride > 0.5) & (stride < 1.5),
                stride > 1.5,
                np.log2(amount[:, _LINES] * _LINE / work + 1e-4),
                np.log2((amount[:, _UNIQUE] + 1) / h.l1_bytes),
                np.log2((amount[:, _UNIQUE] + 1) / h.l2_bytes),
                np.log2((amount[:, _UNIQUE] + 1) / h.l3_bytes),
                np.log2((amount[:, _REUSE_BYTES] + 1) / h.l1_bytes),
                np.log2((amount[:, _REUSE_BYTES] + 1) / h.l2_bytes),
                np.log2(amount[:, _REUSE_ITERATIONS] + 1),
                np.log2(amount[:, _REUSE_COUNT] + 1),
                flags[:, _SERIAL_REUSE],
                flags[:, _NO_REUSE],
            ]
            columns += [np.where(there, column, 0.0) for column in block]
        return columns

    def _slot(self, pick: np.ndarray, role: str) -> np.ndarray:
        """Which of TVM's five buffers plays the role; -1 where none does."""
        buffers = self.buffers[pick]
        if role == "target":
            flags = buffers[:, :, _WRITE] + buffers[:, :, _READ_WRITE]
            return np.where(flags.any(axis=1), flags.argmax(axis=1), 0)
        reads = buffers[:, :, _READ] > 0
        # The read that costs most first: strided before contiguous before broadcast, then by lines.
        rank = np.where(reads, np.minimum(buffers[:, :, _STRIDE], 4) * 100 + buffers[:, :, _LINES] + 1, 0.0)
        slots = np.argsort(-rank, axis=1, kind="stable")[:, 0 if role == "first" else 1]
        return np.where(np.take_along_axis(rank, slots[:, None], axis=1)[:, 0] > 0, slots, -1)


def _counts(logarithms: np.ndarray) -> np.ndarray:
    """The counts behind TVM's log2(1 + x)."""
    return np.exp2(np.clip(logarithms, 0.0, 60.0)) - 1.0
