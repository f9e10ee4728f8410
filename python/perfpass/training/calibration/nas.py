"""Search spaces on many devices (HELP): how well the roofline orders networks, and how few records scale it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from perfpass import features
from perfpass.devices import Device, device
from perfpass.errors import DeviceError
from perfpass.graph import costs
from perfpass.graph.table import Tables
from perfpass.predictors.calibration.posterior import TRAIT_COLUMNS, Prior, learn, shipped
from perfpass.predictors.inference.predictor import InferencePredictor
from perfpass.predictors.learned.intervals import pooled_width
from perfpass.predictors.roofline import Workload
from perfpass.records import nas_graphs, schema
from perfpass.records.location import data_directory
from perfpass.training.calibration.experiments import PRIOR, SIZES
from perfpass.training.metrics import kendall_tau
from perfpass.training.section import Section

__all__ = ["evaluate"]

_METRIC, _UNIT, _DRAWS = "latency", "ms", 5
# Whose figures stand in for a device that no catalogue has: a calibration only needs a roofline of some shape.
_STAND_IN = "core-i7-12700h"
# H2: the runtime of this phone leaves out what has no effect.
_OPTIMISING = ("Google Pixel 3",)
_PHONES = ("Essential PH-1", "Google Pixel 2", "Google Pixel 3", "Samsung Galaxy A50", "Samsung Galaxy S7")
_INTRO = """HELP's latencies of NAS-Bench-201 cells and FBNet networks (CIFAR), a sample of 300 of each space, on GPUs,
Xeons, phones and an FPGA, at batch 1 (GPUs up to 256). No latency of these networks trains anything: the shipped vision
predictor answers for the operator graph of each, with the figures of a laptop CPU in place of those of phones and the
FPGA, which no catalogue has; then a calibration learns the device (at one batch size) from 10 or 32 networks of the
same space, drawn five times. Bounds come from the other devices. "MACs, scaled" and "scale only": one factor from the
same records."""


@dataclass(frozen=True, eq=False)
class Target:
    """One device at one batch size in one space: N networks."""

    name: str
    space: str
    kind: str
    listed: bool
    z: np.ndarray  # [N, T]
    predicted_ms: np.ndarray
    measured_ms: np.ndarray
    macs: np.ndarray

    @property
    def log_ratio(self) -> np.ndarray:
        """[N] log(measured / predicted)."""
        return np.asarray(np.log(self.measured_ms / self.predicted_ms))


def targets(folder: Path | str | None = None) -> list[Target]:
    """Every device, batch size and space of data/records/nas.parquet. Raises FileError, FormatError."""
    root = Path(folder) if folder else data_directory()
    rows = schema.read(root / "records" / "nas.parquet", "nas")
    standard, _ = shipped()
    predictor = InferencePredictor.load()
    counted: dict[tuple[str, str, int, bool], tuple[features.OperatorTable, float]] = {}
    cached: dict[tuple[tuple[str, str, int, bool], str], tuple[float, np.ndarray]] = {}
    out = []
    for (space, name, batch), group in rows.groupby(["space", "device", "batch"]):
        found, kind = _device(str(name))
        workload = Workload(int(batch), "fp32", "torch" if found.kind == "gpu" else "torch.compile")
        predicted, traits, macs = [], [], []
        for row in group.itertuples():
            key = (space, row.architecture, int(batch), name in _OPTIMISING)
            if key not in counted:
                graph = nas_graphs.graph(space, tuple(row.architecture.split(",")), int(batch), optimised=key[3])
                counts = costs.count(graph)
                counted[key] = features.operator_table(graph, counts), float(counts.totals["macs"])
            table, work = counted[key]
            if (key, found.id) not in cached:
                answer = predictor.predict(table, found, workload).median_s * 1e3
                found_traits = predictor.traits(Tables.one(table), found, workload, np.array([workload.batch]))
                cached[key, found.id] = answer, found_traits[0, TRAIT_COLUMNS]
            predicted.append(cached[key, found.id][0])
            traits.append(cached[key, found.id][1])
            macs.append(work)
        out.append(
            Target(
                name=f"{name}, batch {batch}",
                space=str(space),
                kind=kind,
                listed=kind in ("GPUs", "Xeons"),
                z=standard(np.stack(traits)),
                predicted_ms=np.array(predicted),
                measured_ms=group.latency_ms.to_numpy(),
                macs=np.array(macs),
            )
        )
    return out


def _device(name: str) -> tuple[Device, str]:
    """The device whose figures count, and what it is among."""
    try:
        found = device(name)
        return found, "GPUs" if found.kind == "gpu" else "Xeons"
    except DeviceError:
        return device(_STAND_IN), "phones" if name in _PHONES else "FPGA"


def evaluate(folder: str | None = None, seed: int = 0, *, quiet: bool = False) -> Section:
    """Grade zero-shot and after 10 and 32 records, by space and kind of device. Raises FileError."""
    every = targets(folder)
    if not quiet:
        print(f"evaluate nas: {len(every)} devices, batch sizes and spaces", file=sys.stderr, flush=True)
    section = Section("nas", "Search spaces on many devices", _INTRO)
    section.corpus = {"records": int(sum(len(t.measured_ms) for t in every)), "targets": len(every)}
    draws = {(t.space, t.name, size): _draws(t, size, seed) for t in every for size in SIZES}
    for space, kind in sorted({(t.space, t.kind) for t in every}):
        among = [t for t in every if (t.space, t.kind) == (space, kind)]
        judged_on = f"{space}, {kind}"
        if among[0].listed:
            columns = np.concatenate([t.predicted_ms for t in among]), np.concatenate([t.measured_ms for t in among])
            section.add(_METRIC, "device, zero-shot", "perfpass", judged_on, *columns)
        for size in SIZES:
            _grade(section, judged_on, size, among, every, draws)
    for size in SIZES:
        section.notes.append(_orders(every, size, draws))
    worst = [(t, d) for t in every for d in draws[t.space, t.name, SIZES[0]]]
    names = [f"{t.space}, {t.name}" for t, d in worst for _ in d.asked]
    at = np.concatenate([t.predicted_ms[d.asked] * np.exp(d.mean) for t, d in worst])
    measured = np.concatenate([t.measured_ms[d.asked] for t, d in worst])
    section.add_worst_groups(_METRIC, f"device, {SIZES[0]} records", "device", names, at, measured)
    section.add_points(_METRIC, _UNIT, f"device, {SIZES[0]} records", [n.split(",")[0] for n in names], at, measured)
    return section


@dataclass(frozen=True, eq=False)
class _Draw:
    seen: np.ndarray
    asked: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray


def _draws(target: Target, size: int, seed: int, prior: Prior = PRIOR) -> list[_Draw]:
    out = []
    for i in range(_DRAWS):
        order = np.random.default_rng(1000 * (seed + 1) + i).permutation(len(target.measured_ms))
        seen, asked = order[:size], order[size:]
        software = np.full(len(order), "one", dtype=object)
        learned = learn(prior, target.z[seen], software[seen], target.log_ratio[seen])
        out.append(_Draw(seen, asked, *learned.predict(target.z[asked], software[asked])))
    return out


def _grade(
    section: Section, judged_on: str, size: int, among: Sequence[Target], every: Sequence[Target],
    draws: dict[tuple[str, str, int], list[_Draw]],
) -> None:  # fmt: skip
    parts: list[tuple[np.ndarray, ...]] = []
    for target in among:
        others = [t for t in every if t.name.split(",")[0] != target.name.split(",")[0]]
        normed = [
            (t.log_ratio[d.asked] - d.mean) / d.deviation for t in others for d in draws[t.space, t.name, size]
        ]  # every other device, whatever its kind: phones are too few to vouch for each other
        bound = pooled_width(normed)
        for d in draws[target.space, target.name, size]:
            at, width = target.predicted_ms[d.asked] * np.exp(d.mean), np.exp(bound * d.deviation)
            scale = np.exp(np.median(target.log_ratio[d.seen]))
            rate = np.median(target.measured_ms[d.seen] / target.macs[d.seen])
            others_at = target.predicted_ms[d.asked] * scale, target.macs[d.asked] * rate
            parts.append((at, target.measured_ms[d.asked], at / width, at * width, *others_at))
    at, measured, low, high, scaled, by_macs = (np.concatenate(column) for column in zip(*parts, strict=True))
    split = f"device, {size} records"
    section.add(_METRIC, split, "MACs, scaled", judged_on, by_macs, measured)
    section.add(_METRIC, split, "scale only", judged_on, scaled, measured)
    section.add(_METRIC, split, "perfpass", judged_on, at, measured, low, high)


def _orders(every: Sequence[Target], size: int, draws: dict[tuple[str, str, int], list[_Draw]]) -> str:
    """Rank correlations within a device, which is what a search needs: means over targets and draws."""
    out = []
    for space in nas_graphs.SPACES:
        tau, rho, unscaled = [], [], []
        for t in every:
            if t.space != space:
                continue
            unscaled.append(_spearman(t.predicted_ms, t.measured_ms))
            for d in draws[space, t.name, size]:
                at, measured = t.predicted_ms[d.asked] * np.exp(d.mean), t.measured_ms[d.asked]
                tau.append(kendall_tau(at, measured))
                rho.append(_spearman(at, measured))
        out.append(
            f"{space} Spearman {np.mean(rho):.3f}, Kendall {np.mean(tau):.3f} (without records {np.mean(unscaled):.3f} "
            "Spearman)"
        )
    return f"Order of networks within a device after {size} records, mean over devices: " + "; ".join(out) + "."


def _spearman(a: np.ndarray, b: np.ndarray) -> float:
    from scipy.stats import spearmanr

    return float(spearmanr(a, b).statistic)
