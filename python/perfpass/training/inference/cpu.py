"""Fits and grades the constants of `perfpass.predictors.inference.cpu_operators` and the widths of `CpuPredictor`.

Least squares on logarithms of the time, by Gauss and Newton with Huber's weights: every constant has a prior (what a
CPU of that vector width can do), so that families that few networks have stay near it. The machine with two threads may
be off as a whole; that ships nothing. Widths stand on networks whose whole family was left out.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.devices import Device
from perfpass.graph.table import Tables
from perfpass.measure.configuration import Configuration
from perfpass.measure.journal import read
from perfpass.predictors.inference.cpu import CAUSES, CpuPredictor
from perfpass.predictors.inference.cpu_operators import (
    FAMILIES,
    FAMILY,
    NAMES,
    RUNTIMES,
    SLOWING,
    TERM,
    UNSCHEDULED,
    CpuTimes,
    Work,
    parts,
    work,
)
from perfpass.predictors.learned import artefacts
from perfpass.predictors.learned.spread import Spread
from perfpass.predictors.roofline import SMOOTHNESS, smooth_maximum
from perfpass.predictors.way import Way
from perfpass.records.measured import journals
from perfpass.training import spread
from perfpass.training.inference import host_tables, quantized, tvm_kernels
from perfpass.training.inference.tvm_kernels import Kernels
from perfpass.training.memory.host_plans import size_of
from perfpass.training.section import Section
from perfpass.training.spread import Errors

if TYPE_CHECKING:
    import pandas

AREA = "cpu"
MACHINE = "AMD EPYC"  # what a virtual machine says of its processor
_CLOCK_HZ = 2.596e9
FOLDS = 10
_NOISE, _HUBER, _STEPS = 0.1, 1.5, 25
_LEAST_S = 1e-18  # of an operator without work
_METRIC = "latency ms"
# Architectures and families: what is asked of each runtime, in % of MAPE.
AIMS = {"onnxruntime": 12.0, "torch": 12.0, "tvm": 15.0, "relax": 15.0}
# Log half-widths that fits are drawn to. No error shows those of another machine (its caches, memory and clock; by
# hand), nor of more cores than two (by hand, of a doubling; those of several add in squares).
PRIOR = {"network": 0.2, "host": 0.2, "unscheduled": 0.4, "parallel": 0.3, "machine": 0.4, "cores": 0.12}
# Slower, of a doubling beyond the cores of any run: pools whose threads are not pinned, or share cores and sockets with
# others, lose what a doubling brings. By hand, with published runs on 8 threads in sight (docs/decisions.md).
_SLOWER_BY_CORES = 0.65
# TVM may well use more cores than it did.
_CORES = {"tvm": {"cores": 0.9}, "relax": {"cores": 0.9}}
_PRODUCTS = [i for i, name in enumerate(FAMILIES) if name.startswith(("conv", "dense", "matmul", "att", "rec", "vec"))]
_BYTES = ("tensors", "elementwise", "weights", "memory")


@dataclass(frozen=True, eq=False)
class Rows:
    """N measurements: their networks, how they ran (``frame``), and their work, cores apart."""

    frame: pandas.DataFrame
    tables: list[Tables]

    def __len__(self) -> int:
        return len(self.tables)

    def take(self, kept: np.ndarray) -> Rows:
        """Some of the rows."""
        return Rows(self.frame.iloc[kept].reset_index(drop=True), [self.tables[i] for i in kept])

    @property
    def seconds(self) -> np.ndarray:
        """[N] measured."""
        return self.frame.seconds.to_numpy(np.float64)


def machine(cores: int) -> Device:
    """The CPU of the journals with so many of its cores, as `perfpass.devices.host` describes such a machine."""
    rate = 64 * _CLOCK_HZ * cores
    return Device(
        id="host-cpu",
        name=MACHINE,
        kind="cpu",
        vendor="AMD",
        architecture="x86_64",
        peak_flops={"fp64": rate / 2, "fp32": rate, "fp16": rate / 2, "bf16": 2 * rate, "int8": 4 * rate},
        memory_bytes=25 << 30,
        memory_type="",
        memory_bandwidth_bytes_s=40e9,
        l2_bytes=cores << 20,
        l3_bytes=32 << 20,
        sm_count=cores,
        clock_hz=_CLOCK_HZ,
        base_clock_hz=_CLOCK_HZ,
        power_limit_w=20.0 + 5.0 * cores,
        idle_power_w=5.0 + 1.25 * cores,
        pcie_bandwidth_bytes_s=0.0,
    )


def load(folder: Path | None = None) -> Rows:
    """Every network and size that ran in fp32: the median of its records. Raises FileError, FormatError."""
    import pandas

    known = host_tables.load(folder)
    found = []
    for path in journals():
        for record in read(path).records:
            asked, size = record["configuration"], None
            if record["status"] == "ok" and asked["mode"] == "inference" and asked["runtime"] in RUNTIMES:
                size = size_of(Configuration.from_dict(asked))
            plain = asked["precision"] == "fp32" and asked["layout"] == "nchw"
            # A process of its own is timed between two references, which were steady throughout.
            steady = asked.get("own_process") or "contended" not in record["flags"]
            if size in known and plain and steady:
                cores = asked.get("threads") or record.get("ran", {}).get("threads") or 2
                runtime = record.get("ran", {}).get("dialect", asked["runtime"])
                found.append((runtime, *size, cores, known[size][0], record["latency_ms"]["median"] / 1e3))
    names = ["runtime", *host_tables.SIZES, "cores", "family"]
    frame = pandas.DataFrame(found, columns=[*names, "seconds"])
    frame = frame.groupby(names, as_index=False, sort=True).seconds.median()
    tables = []
    for row in frame.itertuples():
        _, loaded, eager = known[(row.model, row.batch, row.image_size, row.sequence_length)]
        tables.append(Tables.one(eager if row.runtime == "torch" else loaded))
    return Rows(frame, tables)


def prior(runtime: str) -> tuple[np.ndarray, np.ndarray]:
    """[NAMES] logarithms (exponents as they are) that the constants are drawn to, and how strongly: deviations."""
    eager, plain, loops = runtime == "torch", runtime in ("tvm", "relax"), runtime == "relax"
    mean, deviation = np.full(len(NAMES), np.log(0.5)), np.full(len(NAMES), 0.5)
    for name in ("pointwise", "softmax", "norm", "other", "gather", "move"):  # no products: loads and functions
        mean[FAMILY[name]], deviation[FAMILY[name]] = np.log(0.05), 0.6
    mean[FAMILY["conv_depthwise"]] = np.log(0.3)
    mean[FAMILY["function"]], deviation[FAMILY["function"]] = np.log(0.05), 0.8
    for name in (*UNSCHEDULED, "vector") if plain else ():
        mean[FAMILY[name]], deviation[FAMILY[name]] = np.log(0.05), 0.8
    if runtime == "tvm":  # vectors of a row: in registers, or taken apart by LLVM
        mean[FAMILY["conv1d"]], mean[FAMILY["conv1d_ragged"]] = np.log(0.4), np.log(0.15)
    if loops:
        mean[_PRODUCTS] = np.log(0.01)
    terms = {
        "tensors": (np.log(8.0), 0.5),
        "elementwise": (np.log(8.0 if eager else 16.0), 0.6),
        "weights": (np.log(32.0), 0.4),
        "memory": (0.0, 0.3),
        "packing": (np.log(0.5 if eager else 0.05), 0.8),
        "issue": (np.log(3e-6 if eager else 0.5e-6), 0.7),
        "call": (np.log(20e-6 if eager else 3e-6), 0.8),
        "sets": (0.55, 0.2) if plain else (0.0, 1e-3),
        "inner": (0.7, 0.3) if plain else (0.0, 1e-3),
        "tile": (0.7, 0.3) if plain else (0.0, 1e-3),
        "ragged": (2.3, 0.6) if runtime == "tvm" else (0.0, 1e-3),
        "cores": (0.1, 0.1),
        # Strong: on two cores of which the other was busy at times, threads waited for more than each other.
        "sync": (np.log(5e-6), 0.25),
    }
    for name, (value, apart) in terms.items():
        mean[TERM[name]], deviation[TERM[name]] = value, apart
    return mean, deviation


class _Model:
    """The work of N rows of one runtime, and the time under constants; the last are ``kernels`` without a call."""

    def __init__(self, rows: Rows, runtime: str, kernels: Kernels | None = None) -> None:
        self.cores = rows.frame.cores.to_numpy(np.int64)
        self.called = np.ones(len(rows))
        asked = zip(rows.tables, rows.frame.batch.to_numpy(), self.cores, strict=True)
        done = [work(t, np.array([b]), Way(machine(int(c)), runtime=runtime)) for t, b, c in asked]
        if kernels is not None:
            done += kernels.work(Way(machine(1), runtime=runtime))
            apart = len(done) - len(rows)
            self.cores, self.called = (
                np.append(self.cores, np.ones(apart, np.int64)),
                np.append(self.called, np.zeros(apart)),
            )
        each = [{k: np.broadcast_to(v, w.family.shape) for k, v in vars(w).items()} for w in done]
        columns = {name: np.concatenate([w[name] for w in each]) for name in each[0]}
        self.work = Work(**columns)
        self.run = np.repeat(np.arange(len(done)), [len(w.family) for w in done])

    def evaluate(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """[N] log seconds and their Jacobian [N, P]; the last parameter is the machine with two threads."""
        n, size = len(self.cores), len(NAMES)
        whole = np.exp(np.where(self.cores > 1, theta[size], 0.0))
        found, constants = parts(self.work, theta[:size]), theta[:size]

        def sums(values: np.ndarray) -> np.ndarray:
            return np.bincount(self.run, values, n)

        device = sums(found.row) * whole
        call = np.exp(constants[TERM["call"]]) * self.called
        total = device + sums(found.packing) + sums(found.issue) + call
        # Which cores help is where the time is least, so that it moves with nothing.
        of_spread = (self.work.times * _weight(found.spread, found.shared)) * whole[self.run]
        of_shared = (self.work.times * _weight(found.shared, found.spread)) * whole[self.run]
        of_alone = of_spread * np.exp((constants[TERM["cores"]] - 1.0) * found.used)
        moved = np.sum(list(found.bytes.values()), axis=0)
        by_compute = of_alone * _weight(found.compute, moved) * found.compute
        by_bytes = of_alone * _weight(moved, found.compute)
        jacobian = np.zeros((n, size + 1))
        key = self.run * len(FAMILIES) + self.work.family
        jacobian[:, : len(FAMILIES)] = -np.bincount(key, by_compute, n * len(FAMILIES)).reshape(n, -1)
        for name in _BYTES:
            jacobian[:, TERM[name]] = -sums(by_bytes * found.bytes[name])
        jacobian[:, TERM["memory"]] -= sums(of_shared * found.shared)
        for name in SLOWING:
            jacobian[:, TERM[name]] = sums(by_compute * getattr(self.work, name))
        jacobian[:, TERM["cores"]] = sums(of_spread * (found.spread - found.waited) * found.used)
        jacobian[:, TERM["sync"]] = sums(of_spread * found.waited)
        jacobian[:, TERM["packing"]] = sums(found.packing)
        jacobian[:, TERM["issue"]] = sums(found.issue)
        jacobian[:, TERM["call"]] = call
        jacobian[:, size] = np.where(self.cores > 1, device, 0.0)
        return np.log(total), jacobian / total[:, None]


def _weight(value: np.ndarray, other: np.ndarray) -> np.ndarray:
    """[R] derivative of `smooth_maximum` by ``value``."""
    return (value / smooth_maximum(value, np.maximum(other, _LEAST_S))) ** (SMOOTHNESS - 1.0)


def fit_runtime(rows: Rows, runtime: str, kernels: Kernels | None = None) -> np.ndarray:
    """[NAMES] constants of one runtime, from its rows; a family of networks counts by the root of its rows.

    ``kernels``: of TVM, which count alike by their heaviest operators.
    """
    mean, deviation = (np.append(v, last) for v, last in zip(prior(runtime), (0.0, 0.1), strict=True))
    own = rows.take(np.flatnonzero(rows.frame.runtime.to_numpy() == runtime))
    if not len(own):
        return mean[:-1]
    kernels = kernels if runtime == "tvm" else None
    model, target, theta = _Model(own, runtime, kernels), np.log(own.seconds), mean.copy()
    base = 1.0 / np.sqrt(own.frame.groupby("family").family.transform("size").to_numpy(np.float64))
    if kernels is not None:
        target, base = (
            np.append(target, np.log(kernels.seconds)),
            np.append(base, kernels.weights(Way(machine(1), runtime=runtime))),
        )
    for _ in range(_STEPS):
        found, jacobian = model.evaluate(theta)
        residual = target - found
        weight = base * np.minimum(1.0, _HUBER * _NOISE / np.maximum(np.abs(residual), 1e-9)) / _NOISE**2
        left = (jacobian * weight[:, None]).T @ jacobian + np.diag(deviation**-2.0)
        right = jacobian.T @ (weight * residual) - (theta - mean) / deviation**2
        step = np.clip(np.linalg.solve(left, right), -0.4, 0.4)
        theta = theta + step
        if np.abs(step).max() < 1e-3:
            break
    return np.asarray(theta[:-1])


def fit(rows: Rows, kernels: Kernels) -> CpuTimes:
    """The constants of every runtime."""
    return CpuTimes({runtime: fit_runtime(rows, runtime, kernels) for runtime in RUNTIMES})


def held_out(rows: Rows, kernels: Kernels, split: str, seed: int = 0) -> pandas.DataFrame:
    """The rows with ``median_s`` and ``lacks``, by constants that have not seen their ``split`` ("family", "model")."""
    of = rows.frame[split].to_numpy(dtype=str)
    names = np.random.default_rng(seed).permutation(np.unique(of))
    part = {name: i % FOLDS for i, name in enumerate(names)}
    fold = np.array([part[name] for name in of])
    median, lacks = np.zeros(len(rows)), np.zeros((len(rows), len(CAUSES)))
    for i in range(FOLDS):
        left = {name for name, of_fold in part.items() if of_fold == i}
        times = fit(rows.take(np.flatnonzero(fold != i)), kernels.without(split, left))
        for j in np.flatnonzero(fold == i):
            way = Way(machine(int(rows.frame.cores[j])), runtime=rows.frame.runtime[j])
            found = times.seconds(rows.tables[j], np.array([rows.frame.batch[j]]), way)
            median[j], lacks[j] = found.total[0], CpuPredictor.lacks(found, way, (MACHINE,))[0]
    return rows.frame.assign(median_s=median, lacks=list(lacks))


def errors(found: pandas.DataFrame) -> Errors:
    """For the fit of widths; a source is a family of networks."""
    residual = np.log(found.seconds / found.median_s).to_numpy(np.float64)
    return Errors(CAUSES, residual, np.stack(found.lacks.tolist()), ("family:" + found.family).to_numpy(dtype=object))


def widths(found: pandas.DataFrame) -> dict[str, Spread]:
    """By runtime; more cores than any run had may bring less, and by hand so far."""
    parts = {str(name): part for name, part in found.groupby("runtime")}
    fitted = {name: spread.fit(errors(part), PRIOR | _CORES.get(name, {})) for name, part in parts.items()}
    cores = np.arange(len(CAUSES)) == CAUSES.index("cores")
    return {
        name: replace(one, high=tuple(np.where(cores, np.maximum(one.high, _SLOWER_BY_CORES), one.high).tolist()))
        for name, one in fitted.items()
    }


def train(folder: str | None = None, output: str | None = None, *, seed: int = 0, quiet: bool = False) -> Path:
    """Fit constants and widths, write them to ``output`` (default: where they ship from), return that folder.

    ``seed`` draws which families are left out together. Raises FileError, FormatError.
    """
    rows = load(Path(folder) if folder else None)
    kernels = tvm_kernels.load(Path(folder) if folder else None)
    found = held_out(rows, kernels, "family", seed)
    times = quantized.with_8_bits(
        fit(rows, kernels), Way(machine(1), runtime="onnxruntime"), Path(folder) if folder else None
    )
    manifest: dict[str, Any] = {
        "predictor": AREA,
        "constants": times.to_dict(),
        "spread": {name: value.to_dict() for name, value in widths(found).items()},
        "machines": [MACHINE],
        "corpus": {"rows": len(rows), "networks": int(rows.frame.model.nunique()), "kernels": len(kernels.name)},
    }
    place = Path(output) if output else artefacts.shipped(AREA)
    artefacts.write(place, manifest, {})
    if not quiet:
        print(f"wrote {place}", file=sys.stderr, flush=True)
    return place


_INTRO = """Networks in fp32 on a server CPU with AVX-512, in processes of their own with one thread (a core) and, on
another day, with two: constants are fitted without the network (split `architecture`) or without its whole family
(split `family`), widths without the family. On CPUs of the vision records PyTorch is the trees'."""


def evaluate(folder: str | None = None, seed: int = 0, *, quiet: bool = False) -> Section:
    """Networks and families left out: lines by runtime and cores."""
    rows = load(Path(folder) if folder else None)
    kernels = tvm_kernels.load(Path(folder) if folder else None)
    section = Section(AREA, "CPU runtimes, latency", _INTRO, {"rows": len(rows)})
    for split, column in (("architecture", "model"), ("family", "family")):
        found = held_out(rows, kernels, column, seed)
        low, high = np.zeros(len(found)), np.zeros(len(found))
        for runtime in RUNTIMES:
            own = np.flatnonzero(found.runtime.to_numpy() == runtime)
            low[own], high[own] = spread.left_out(errors(found.iloc[own]), PRIOR)
        at, measured = 1e3 * found.median_s.to_numpy(), 1e3 * found.seconds.to_numpy()
        below, above = at * np.exp(low), at * np.exp(high)
        for (runtime, cores), part in found.groupby(["runtime", "cores"]):
            kept, aim = part.index.to_numpy(), AIMS[str(runtime)]
            said = f"{runtime}, {cores} thread{'s' if cores > 1 else ''}"
            section.add(
                _METRIC, split, "perfpass", said, at[kept], measured[kept], below[kept], above[kept], aim_pct=aim
            )
            if split == "family":
                section.add_worst_groups(_METRIC, said, "family", part.family.tolist(), at[kept], measured[kept])
    return section
