"""Time of graphs on CPUs by their operators: arithmetic, caches, memory and the runtime's own part, with few constants.

Every operator takes the slower of its arithmetic (a share of the device's peak, by family and runtime) and its bytes:
tensors from the caches and weights from memory where those of all layers exceed the last cache. All terms grow with the
batch, so that the time does. Constants were fitted on one CPU (perfpass.training.inference.cpu); another one enters by
its own peak, clock, caches, bandwidth and cores.

n cores divide an operator's time w on one by n^(1 - c) and wait for each other s log2(n), the depth of a tree of them
(Mellor-Crummey and Scott, 1991). It runs on as many as help, as runtimes do that give a thread no less than a grain of
work; so the time does not grow with the cores. Memory's bandwidth is there once.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.devices.spec import CORE_BYTES_PER_CYCLE
from perfpass.errors import ArtefactError
from perfpass.graph import OPERATORS
from perfpass.late import dataclass
from perfpass.predictors.inference import cpu_halves, operators
from perfpass.predictors.inference.fusion import FUSING
from perfpass.predictors.learned import artefacts
from perfpass.predictors.roofline import SMOOTHNESS, smooth_maximum

if TYPE_CHECKING:
    from perfpass.graph.table import OperatorColumns, Tables
    from perfpass.predictors.way import Way

FAMILIES = (*operators.FAMILIES, "vector", "conv_transpose", "function", "conv1d_ragged", "dense_8bit")
FAMILY = {name: i for i, name in enumerate(FAMILIES)}
# Constants of a runtime beside its families' shares of the peak: bytes a cycle and core of tensors, of those of
# pointwise operators, of weights in the caches; the share of what memory brings; memory's time that eager PyTorch takes
# to pack a convolution's weights; seconds an operator and a call; how arithmetic without a schedule slows with the
# length of a column over the lines of the cache that it can use ("sets"), and once it does not fit ("inner"); how
# products slow with the lanes that TVM's tiles leave unused, and where a tile is no vector's size; what of the cores is
# lost, as an exponent, and the seconds that an operator waits for each doubling of its cores ("sync").
TERMS = (
    "tensors", "elementwise", "weights", "memory", "packing", "issue", "call",
    "sets", "inner", "tile", "ragged", "cores", "sync",
)  # fmt: skip
SLOWING = ("sets", "inner", "tile", "ragged")
NAMES = (*FAMILIES, *TERMS)
TERM = {name: i for i, name in enumerate(NAMES)}
RUNTIMES = ("onnxruntime", "torch", "tvm", "relax")
# TVM's default schedules (Relay's) leave these to plain loops; all of a network ran on one core.
UNSCHEDULED = (
    "dense", "matmul", "attention", "attention_vector", "conv1d", "conv1d_ragged", "conv_transpose", "recurrent",
)  # fmt: skip
# What Relax builds for CPUs without records is plain loops throughout, an operator a function.
_PLAIN = (*UNSCHEDULED, "conv", "conv3x3", "conv_grouped", "conv_depthwise", "vector")
ON_ONE_CORE = ("tvm", "relax")
_STRIDED = ("dense", "matmul", "attention", "attention_vector")
_STREAMED = np.array([n.startswith(("conv", "dense", "vector", "matmul", "recurrent")) for n in FAMILIES])
_CONVOLUTION = np.array([n.startswith("conv") for n in FAMILIES])
_POINTWISE = np.isin(FAMILIES, ("pointwise", "norm", "softmax", "function"))
_FUNCTIONS = [
    i for i, name in enumerate(OPERATORS)
    if name in ("elu", "selu", "celu", "gelu", "sigmoid", "silu", "mish", "tanh", "softplus", "exp", "log", "erf",
                "trigonometric", "pow", "glu")
]  # fmt: skip
_TIMED_IN_8_BITS = "onnxruntime"
_NARROWED = [FAMILY[n] for n in ("conv", "conv1d", "conv3x3", "conv_grouped", "dense", "matmul", "vector")]
_TILED = np.isin(FAMILIES, ("conv", "conv3x3", "vector", "conv1d", "conv1d_ragged"))
_FOLDED = [i for i, name in enumerate(OPERATORS) if name in ("batch_norm", "relu", "leaky_relu", "clip")]
_TRANSPOSED = OPERATORS.index("conv_transpose")
EIGHT_BITS = [OPERATORS.index(name) for name in ("quantized_matmul", "quantized_conv")]
_ELEMENTWISE = OPERATORS.index("quantized_elementwise")
_LEAST_S = 1e-18  # of an operator without work
_UNSTATED_CLOCK_HZ = 2.5e9  # of a device file that has none
# Bytes that a first cache's sets span (64 sets of 64 bytes on x86 of 2006 to 2026), and its ways (8 to 12).
_SETS_BYTES, _LINE_BYTES, _WAYS = 4096, 64, 12
# TVM's default tiles: the largest divisor of the channels of at most a vector of fp32 (AVX-512), of columns two. LLVM
# makes no vectors of what is longer than one and no power of two.
_LANES = 16
_FUNCTION_FLOPS = 4.0  # of an exponential or the like, an element


@dataclass(frozen=True, eq=False)
class Work:
    """What R operators have to do once, as seconds of one core where every constant is 1; ``times`` [R] counts their
    executions.

    ``sets`` and ``inner`` [R] are logarithms that slow what has no schedule, ``tile`` and ``ragged`` [R] those that
    slow products; ``cores`` that of the cores in use. ``shared`` [R]: what memory needs however many cores ask.
    """

    family: np.ndarray
    times: np.ndarray
    compute: np.ndarray
    tensors: np.ndarray
    elementwise: np.ndarray
    weights: np.ndarray
    memory: np.ndarray
    shared: np.ndarray
    packing: np.ndarray
    sets: np.ndarray
    inner: np.ndarray
    tile: np.ndarray
    ragged: np.ndarray
    cores: float | np.ndarray


@dataclass(frozen=True, eq=False)
class Parts:
    """Seconds of R operators: ``row``, ``packing`` and ``issue`` of all executions, the rest of one.

    ``alone`` on one core, by its ``compute`` and ``bytes``; ``spread`` over the cores that help (``used``, a
    logarithm), of which ``waited`` for each other; ``shared`` by memory.
    """

    row: np.ndarray
    compute: np.ndarray
    bytes: Mapping[str, np.ndarray]
    alone: np.ndarray
    used: np.ndarray
    waited: np.ndarray
    spread: np.ndarray
    shared: np.ndarray
    packing: np.ndarray
    issue: np.ndarray


def families(tables: Tables, batch: np.ndarray, way: Way) -> np.ndarray:
    """[R] index into FAMILIES.

    Products with one row a sample (``batch`` [N]) or one column are "vector"; convolutions are "conv1d" where no kernel
    of the graph is a square of an odd side, and some are of an odd length that is none or all are of one tap
    ("conv1d_ragged" in TVM, whose schedule makes a vector of the whole row, where that is no power of two).
    "dense_8bit" are products in 8 bits in ONNX Runtime, and convolutions but depthwise ones, which it makes such
    products of (im2col); other runtimes, of which none was timed so, are told those of single precision.
    """
    table = tables.table
    found = operators.families(table, way)
    side = np.sqrt(np.asarray(table.kernel_area))
    whole = np.abs(side - np.round(side)) < 1e-6
    convolution = _CONVOLUTION[found] & (found != FAMILY["conv_depthwise"]) & (found != FAMILY["conv_grouped"])
    odd = np.asarray(table.kernel_area) % 2 == 1
    direct = convolution & (np.asarray(table.op) != _TRANSPOSED)
    square = tables.any(direct & whole & (side > 1) & odd)
    flat = ~square & (tables.any(direct & ~whole & odd) | ~tables.any(direct & (side > 1)))
    plain = np.where(found == FAMILY["conv1d"], FAMILY["conv"], found)
    found = np.where(convolution, np.where(flat[tables.graph], FAMILY["conv1d"], plain), found)
    product = np.isin(found, (FAMILY["dense"], FAMILY["matmul"]))
    samples = np.asarray(batch)[tables.graph]
    single = (np.asarray(table.b) * table.m <= samples) | (np.asarray(table.n) <= 1)
    found = np.where(product & single, FAMILY["vector"], found)
    found = np.where(np.isin(table.op, _FUNCTIONS), FAMILY["function"], found)
    if way.runtime == "tvm":
        row = np.maximum(np.asarray(table.m, dtype=np.int64) // np.maximum(samples, 1).astype(np.int64), 1)
        found = np.where((found == FAMILY["conv1d"]) & (row & (row - 1) > 0), FAMILY["conv1d_ragged"], found)
    found = np.where(in_8_bits(table.op, found, way), FAMILY["dense_8bit"], found)
    return np.where(np.asarray(table.op) == _TRANSPOSED, FAMILY["conv_transpose"], found)


def in_8_bits(op: np.ndarray, family: np.ndarray, way: Way) -> np.ndarray:
    """[R] whether operators multiply matrices in 8 bits as ONNX Runtime was timed to: those of a quantised file, and in
    int8 all products.
    """
    quantised = np.isin(op, _narrowed(way)) & (family != FAMILY["conv_depthwise"])
    return quantised | (np.isin(family, _NARROWED) & (way.precision == "int8") & (way.runtime == _TIMED_IN_8_BITS))


def _narrowed(way: Way) -> list[int]:
    """Operators of a quantised file that are "dense_8bit", but for depthwise convolutions."""
    return EIGHT_BITS if way.runtime == _TIMED_IN_8_BITS else []


def work(tables: Tables, batch: np.ndarray, way: Way, widened: np.ndarray | float | None = None) -> Work:
    """What every row of ``tables`` (counted at the width of ``way``) has to do on the CPU of ``way``.

    ``widened`` [R]: elements over those that so many bytes hold in fp32 (default: those of the precision).
    """
    table, device, family = tables.table, way.device, families(tables, batch, way)
    widened = cpu_halves.widened(way.precision) if widened is None else widened
    narrow = (np.asarray(table.op) == _ELEMENTWISE) | (way.precision == "int8")
    one_by_one = widened * np.where(narrow, 4.0, 1.0)  # widened to 32 bits in registers
    cores, clock, memory, alone, cache = _figures(way)
    times = np.where(np.asarray(table.view) == 0, tables.count, 0.0)
    if _folds(way):
        times = np.where(np.isin(table.op, _FOLDED), 0.0, times)
    weights = np.where(_STREAMED[family], np.minimum(table.weight_bytes, table.bytes_read), 0).astype(np.float64)
    moved = np.add(table.bytes_read, table.bytes_written, dtype=np.float64) - weights
    of_graph = tables.sums(weights * times)[tables.graph]
    rows = np.asarray(table.m, dtype=np.float64) / np.maximum(np.asarray(batch)[tables.graph], 1)
    strided, over = _strided(table, rows, family, way.runtime)
    tile, ragged = _tiles(table.n, rows, family)
    tiled = way.runtime == "tvm"
    flops = np.where(
        family == FAMILY["function"],
        _FUNCTION_FLOPS * np.asarray(table.output_elements, dtype=np.float64),
        np.asarray(table.flops, dtype=np.float64),
    )
    missed = weights * _missed(of_graph / cache) + moved * _missed(moved / cache)
    return Work(
        family=family,
        times=times,
        compute=flops / (device.peak_flops["fp32"] / max(device.sm_count, 1)) / _instructions(way)[family],
        tensors=np.where(_POINTWISE[family], 0.0, moved * widened) / clock,
        elementwise=np.where(_POINTWISE[family], moved * one_by_one, 0.0) / clock,
        weights=weights / clock,
        memory=missed / alone,
        shared=missed / memory,
        packing=np.where(_CONVOLUTION[family], weights, 0.0) / memory,
        sets=np.where(strided, 0.5 * np.log1p(over**2), 0.0),
        inner=np.where(strided, over**4 / (1.0 + over**4), 0.0),
        tile=np.where(_TILED[family] & tiled, tile, 0.0),
        ragged=np.where(_TILED[family] & tiled, ragged, 0.0),
        cores=float(np.log(cores)),
    )


def _instructions(way: Way) -> np.ndarray:
    """[FAMILIES] rate of a CPU's instructions over those of the CPU whose products were timed in 8 bits."""
    found = np.ones(len(FAMILIES))
    if way.runtime == _TIMED_IN_8_BITS:
        found[FAMILY["dense_8bit"]] = cpu_halves.of_8_bits(way.device) / cpu_halves.DOT_PRODUCT
    return found


def _figures(way: Way) -> tuple[int, float, float, float, float]:
    """Cores in use, their clock in Hz, byte/s of memory that they and one alone ask for, bytes of the last cache."""
    device = way.device
    cores = 1 if way.runtime in ON_ONE_CORE else max(device.sm_count, 1)
    clock = device.base_clock_hz or device.clock_hz or _UNSTATED_CLOCK_HZ
    memory, alone = (min(device.memory_bandwidth_bytes_s, n * CORE_BYTES_PER_CYCLE * clock) for n in (cores, 1))
    return cores, clock, memory, alone, float(max(device.l3_bytes, device.l2_bytes, 1 << 20))


def _folds(way: Way) -> bool:
    """Whether the runtime folds what `_FOLDED` names into the products before."""
    return way.runtime in FUSING and way.runtime != "relax"


def _strided(
    table: OperatorColumns, rows: np.ndarray, family: np.ndarray, runtime: str
) -> tuple[np.ndarray, np.ndarray]:
    """[R] whether loops without a schedule walk a column, and its lines over those that the first cache has for it.

    A column of a product strides by its columns; one of a convolution in Relax's loops by the pixels (``rows`` [R]) of
    a channel, and has a line a row of the kernel.
    """
    stride, length = np.asarray(table.n, dtype=np.int64), np.asarray(table.k, dtype=np.float64)
    strided = np.isin(family, [FAMILY[n] for n in _STRIDED]) & (runtime in ON_ONE_CORE)
    if runtime == "relax":
        of_pixels = _CONVOLUTION[family]
        strided |= of_pixels | (family == FAMILY["vector"])
        stride = np.where(of_pixels, rows, stride).astype(np.int64)
        length = np.where(of_pixels, length / np.sqrt(np.maximum(table.kernel_area, 1)), length)
    sets = _SETS_BYTES / np.maximum(np.gcd(4 * np.maximum(stride, 1), _SETS_BYTES), _LINE_BYTES)
    return strided, length / (sets * _WAYS)


def _tiles(columns: np.ndarray, rows: np.ndarray, family: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[R] logarithm of the lanes of TVM's default tiles over those that ``columns`` [R] fill, and [R] whether a tile is
    longer than a vector and no power of two.

    Convolutions of one dimension are a vector of all ``rows`` [R] of a sample: the logarithm of those over what the
    registers hold (32 of a vector), or over a few where LLVM has to take the vector apart.
    """
    sizes, at = np.unique(np.maximum(np.asarray(columns, dtype=np.int64), 1), return_inverse=True)
    tile = {
        most: np.max([np.where(sizes % size == 0, size, 1) for size in range(1, most + 1)], axis=0)[at]
        for most in (_LANES, 2 * _LANES)
    }
    found = np.where(family == FAMILY["vector"], tile[2 * _LANES], tile[_LANES])
    unused = np.log(np.ceil(found / _LANES) * _LANES / found)
    held = np.where(family == FAMILY["conv1d"], 32 * _LANES, 4 * _LANES)
    flat = np.isin(family, (FAMILY["conv1d"], FAMILY["conv1d_ragged"]))
    unused = np.where(flat, np.log(np.maximum(rows / held, 1.0)), unused)
    return unused, ~flat & (found > _LANES) & (found & (found - 1) > 0)


def _missed(ratio: np.ndarray) -> np.ndarray:
    """Share that a cache does not hold of ``ratio`` times its size."""
    return np.asarray(ratio**2 / (1.0 + ratio**2))


def parts(done: Work, constants: np.ndarray, way: Way | None = None) -> Parts:
    """Seconds under ``constants`` [NAMES]: logarithms, but for the exponents SLOWING and "cores".

    ``way``: of another precision than the single one that constants were fitted in.
    """

    def at(name: str) -> float:
        return float(constants[TERM[name]])

    slowed = np.exp(sum(at(name) * getattr(done, name) for name in SLOWING))
    shares = np.exp(constants[: len(FAMILIES)])
    compute = done.compute * slowed / shares[done.family]
    if way is not None and way.precision != "fp32":
        compute = compute * cpu_halves.over_fp32(way, FAMILIES, shares)[done.family]
    each = {name: getattr(done, name) / np.exp(at(name)) for name in ("tensors", "elementwise", "weights", "memory")}
    alone = smooth_maximum(compute, np.maximum(sum(each.values()), _LEAST_S))
    used, waited, spread = _spread(alone, done.cores, constants)
    shared = done.shared / np.exp(at("memory"))
    row = smooth_maximum(spread, shared) * done.times
    packing = done.packing * done.times * np.exp(at("packing"))
    issue = done.times * np.exp(at("issue"))
    return Parts(row, compute, each, alone, used, waited, spread, shared, packing, issue)


def _spread(
    alone: np.ndarray, cores: np.ndarray | float, constants: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """[R] logarithm of the cores, at most ``cores`` (a logarithm), on which ``alone`` [R] seconds of one take least;
    seconds that these wait for each other, and those that it takes there.

    Of w / n^a + s log2(n) the least has n^a = a w ln(2) / s.
    """
    lost, sync = float(constants[TERM["cores"]]), float(constants[TERM["sync"]])
    gained = max(1.0 - lost, 1e-3)
    used = np.clip((np.log(gained * np.log(2.0) * alone) - sync) / gained, 0.0, cores)
    waited = np.exp(sync) * used / np.log(2.0)
    return used, waited, alone * np.exp((lost - 1.0) * used) + waited


def on_cores(alone: np.ndarray, way: Way) -> np.ndarray:
    """[R] seconds on the cores of ``way`` that help of operators that take ``alone`` [R] on one."""
    runtime = way.as_measured.runtime
    constants = CpuTimes.load().constants[runtime if runtime in RUNTIMES else "torch"]
    return _spread(np.maximum(alone, _LEAST_S), float(np.log(_figures(way)[0])), constants)[2]


@dataclass(frozen=True, eq=False)
class Seconds:
    """Seconds of N runs: ``total`` and the runtime's own part of it ``host`` [N], each row's [R], and the share of the
    time that runs without a schedule [N].
    """

    total: np.ndarray
    host: np.ndarray
    row: np.ndarray
    unscheduled: np.ndarray


@dataclass(frozen=True)
class CpuTimes:
    """Time of graphs on CPUs; ``constants``: [NAMES] by runtime (`parts`)."""

    constants: Mapping[str, np.ndarray]

    def rows(self, tables: Tables, batch: np.ndarray, way: Way) -> tuple[np.ndarray, np.ndarray]:
        """Seconds of every row without the call [R], and its family [R]."""
        done = work(tables, batch, way)
        found = parts(done, self.constants[way.runtime], way)
        return found.row + found.packing + found.issue, done.family

    def for_core(self, way: Way) -> dict[str, Any]:
        """What `seconds` reads of ``way``, as numbers (cpp_kernels/src/prediction/cpu.cpp)."""
        constants, cores, clock, memory, alone, cache_bytes = self.constants[way.runtime], *_figures(way)
        unscheduled = {"tvm": UNSCHEDULED, "relax": _PLAIN}.get(way.runtime, ())
        operators_of = np.arange(len(OPERATORS))
        return {
            "rate": constants[: len(FAMILIES)] + np.log(_instructions(way)),
            "constants": {name: constants[TERM[name]] for name in TERMS},
            "streamed": _STREAMED,
            "convolution": _CONVOLUTION,
            "pointwise": _POINTWISE,
            "tiled": _TILED & (way.runtime == "tvm"),
            "strided": np.isin(FAMILIES, _STRIDED) & (way.runtime in ON_ONE_CORE),
            "unscheduled": np.isin(FAMILIES, unscheduled),
            "functions": np.isin(operators_of, _FUNCTIONS),
            "folded": np.isin(operators_of, _FOLDED if _folds(way) else []),
            "narrowed": np.isin(operators_of, _narrowed(way)),
            "ragged_rows": way.runtime == "tvm",
            "pixels": way.runtime == "relax",
            "flops": way.device.peak_flops["fp32"] / max(way.device.sm_count, 1),
            "clock_hz": clock,
            "memory_bytes_s": memory,
            "core_memory_bytes_s": alone,
            "cache_bytes": cache_bytes,
            "log_cores": np.log(cores),
            "least_s": _LEAST_S,
            "smoothness": SMOOTHNESS,
            "function_flops": _FUNCTION_FLOPS,
            "sets_bytes": _SETS_BYTES,
            "line_bytes": _LINE_BYTES,
            "ways": _WAYS,
            "lanes": _LANES,
        }

    def seconds(self, tables: Tables, batch: np.ndarray, way: Way) -> Seconds:
        """The time of N graphs at ``batch`` [N]."""
        done = work(tables, batch, way)
        constants = self.constants[way.runtime]
        found = parts(done, constants, way)
        row = found.row + found.packing + found.issue
        call = np.exp(constants[TERM["call"]])
        sums = tables.sums(row)
        total = sums + call
        unscheduled = {"tvm": UNSCHEDULED, "relax": _PLAIN}.get(way.runtime, ())
        plain = np.isin(done.family, [FAMILY[n] for n in unscheduled])
        scaled = row * (total / np.maximum(sums, 1e-300))[tables.graph]
        return Seconds(total, tables.sums(found.issue) + call, scaled, tables.sums(np.where(plain, row, 0.0)) / total)

    @staticmethod
    @cache
    def load() -> CpuTimes:
        """The shipped constants, read once per process. Raises ArtefactError."""
        return CpuTimes.from_dict(artefacts.Artefact(artefacts.shipped("cpu")).manifest["constants"])

    def behind_libraries(self) -> np.ndarray:
        """[len(operators.FAMILIES)] logarithm of the rate of ONNX Runtime's products over that of TVM's schedules.

        0 for what multiplies nothing, and where TVM's are as fast.
        """
        library, schedules = (self.constants[r][: len(operators.FAMILIES)] for r in ("onnxruntime", "tvm"))
        product = [name.startswith(("conv", "dense", "matmul", "attention")) for name in operators.FAMILIES]
        return np.where(product, np.maximum(library - schedules, 0.0), 0.0)

    def to_dict(self) -> dict[str, dict[str, float]]:
        """Strict JSON."""
        return {
            runtime: {name: round(float(v), 5) for name, v in zip(NAMES, values, strict=True)}
            for runtime, values in self.constants.items()
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> CpuTimes:
        """The inverse. Raises ArtefactError for what is none."""
        try:
            found = {r: np.array([float(values[r][name]) for name in NAMES]) for r in RUNTIMES}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ArtefactError(
                f"an artefact's constants cannot be read ({error}); run `perfpass train` again"
            ) from None
        return cls(found)
