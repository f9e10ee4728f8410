"""Steps that no split contains: newer devices, other frameworks, MIG slices, a CPU. Zero-shot, and after one factor.

Where a source measured power, watts and joules of the shipped predictor are graded too; it learned from none of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.devices import device
from perfpass.features import Tables
from perfpass.predictors.energy.power import PowerModel
from perfpass.predictors.estimate import Bounds, energy_j
from perfpass.predictors.learned.ratio_trees import CAUSES
from perfpass.predictors.training_step.predictor import Derivation, StepPredictor
from perfpass.predictors.training_step.predictor import options as present
from perfpass.predictors.way import Way
from perfpass.records import tables
from perfpass.training import time_widths
from perfpass.training.section import Section
from perfpass.training.spread import Errors
from perfpass.training.tasks.tasks import POWER_NETWORKS, STEP_OPTIMIZERS, joules_of_step
from perfpass.training.training_step.dataset import options as early

METRIC = "step ms"
# Metric -> the columns of measured and predicted, and of its bounds.
METRICS = {
    METRIC: ("measured", "predicted", "low", "high"),
    "power W": ("measured_w", "predicted_w", "low_w", "high_w"),
    "energy J": ("measured_j", "predicted_j", "low_j", "high_j"),
}
_COLUMNS = ("device", "model", "batch", *(name for names in METRICS.values() for name in names))
# A limit that is set this far below the board's own hardly slows a step; the V100 there stops at 250 of 300 W.
_UNLIMITED = 0.8
CALIBRATION_SIZE = 10
# (source, model of the record) -> (source, network, size, optimizer) of its table in data/graphs/outside_*.parquet.
# milabench's ResNet-50 reads its images from disk but for "-noio", and is bound by that.
NETWORKS = {
    ("milabench", "resnet50-noio"): ("torchvision", "resnet50", 224, "sgd"),
    ("milabench", "convnext_large"): ("torchvision", "convnext_large", 224, "sgd"),
    ("milabench", "regnet_y_128gf"): ("timm", "regnety_1280", 224, "sgd"),
    ("milabench", "bert"): ("huggingface", "bert-base/BertForMaskedLM", 512, "adam"),
    ("miso", "resnet"): ("torchvision", "resnet50", 32, "adam"),
    ("miso", "mobilenet"): ("torchvision", "mobilenet_v2", 32, "adam"),
    ("miso", "bert"): ("huggingface", "bert-base/BertForSequenceClassification", 512, "adam"),
}
_CONFIGURED = {"hf:bert-tiny": "bert-tiny/BertModel", "hf:minilm-l6": "minilm-l6/BertModel"}
_CONFIGURED["hf:pythia-70m"] = "pythia-70m/GPTNeoXForCausalLM"


@dataclass(frozen=True)
class Outside:
    """Rows of one source: measured, predicted and bounds [N] in ms, W and J; what each was, for groups and cases."""

    source: str
    rows: Any  # pandas: _COLUMNS; NaN where a source did not measure

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def every(self) -> Errors:
        """The lacks of every row, whether its time was measured or not."""
        return Errors(CAUSES, np.zeros(len(self)), np.stack(self.rows.lacks.tolist()), np.full(len(self), self.source))

    @property
    def errors(self) -> Errors:
        """Of the time, for the fit of widths: the laboratory is left out whole, its devices are parts."""
        known = self.rows[self.rows.measured.notna()]
        names = f"source:{self.source}/" + known.device.astype(str)
        residual = np.log(known.measured / known.predicted).to_numpy(np.float64)
        return Errors(CAUSES, residual, np.stack(known.lacks.tolist()), names.to_numpy(dtype=object))


def outside(folder: Path | None = None, predictor: StepPredictor | None = None) -> list[Outside]:
    """Every outside record whose network is known, by the shipped predictor or ``predictor`` as for any caller."""
    import pandas

    known = tables.load(folder / "graphs" if folder else None, "outside")
    vision = tables.load(folder / "graphs" if folder else None)
    found = []
    sources = (*_public(folder), ("zeus", _powered(folder)), ("measured on a 2-core EPYC", _own()))
    for source, rows in sources:
        predicted = []
        for r in rows.itertuples():
            key = (r.table_source, r.network, r.size)
            table_of = known if key in known else vision if key in vision else None
            if table_of is not None:
                ms, watts, lacks = _predict(table_of, key, r, source, predictor or StepPredictor.load())
                joules = energy_j(ms, watts)
                values: list[float] = []
                for name, bounds in (("measured", ms), ("measured_w", watts), ("measured_j", joules)):
                    values.append(float(getattr(r, name, np.nan)))
                    values += [float(part[0]) for part in (bounds.median, bounds.low, bounds.high)]
                predicted.append((r.device, r.model, r.batch, *values, lacks))
        found.append(Outside(source, pandas.DataFrame(predicted, columns=[*_COLUMNS, "lacks"])))
    return found


def _predict(
    known: tables.RecordedTables, key: tuple[str, str, int], row: Any, source: str, predictor: StepPredictor
) -> tuple[Bounds, Bounds, np.ndarray]:
    """Milliseconds, watts and lacks of one step, as for any caller, but of the PyTorch that the source ran; N = 1."""
    target = device(row.device)
    bits = 32 if row.precision in ("fp32", "tf32") else 16
    table = known.table(*key, row.batch, bits)
    options = present(target, row.precision, row.optimizer)
    if source == "zeus":  # of 2022, before torch 2.0
        options = early(source, row.precision, row.optimizer)
    elements = np.array([table.statics["input_elements_per_sample"] * row.batch])
    way = Way(target, row.precision)
    derived = Derivation(options, elements, bits / 8)
    columns, _, _, _ = predictor.columns_of(Tables.one(table), np.array([row.batch]), way, derived)
    seconds = predictor.latency_s(columns)
    uses = (np.minimum(columns[part] / seconds.median, 1.0) for part in ("compute_s", "memory_s"))
    watts = PowerModel.from_dict(predictor.manifest["power"]).predict(target, *uses)
    return Bounds(1e3 * seconds.median, 1e3 * seconds.low, 1e3 * seconds.high), watts, columns["lacks"][0]


def _public(folder: Path | None) -> Iterator[tuple[str, Any]]:
    """Both public sources: milabench by median of equal points, MISO with its slices as devices."""
    from perfpass.records import schema
    from perfpass.records.location import data_directory

    path = (folder or data_directory()) / "records" / "training_outside.parquet"
    rows = schema.read(path, "training")
    keys = list(zip(rows.source, rows.model, strict=True))
    rows = rows[[k in NETWORKS for k in keys]].reset_index(drop=True)
    rows = rows[rows.precision != ""]
    measured = rows.latency_ms.fillna(1e3 * rows.batch / rows.throughput_per_s)
    slices = rows.device + (":" + rows.mig_profile).where(rows.mig_profile != "", "")
    rows = rows.assign(measured=measured, device=slices)
    for source, part in rows.groupby("source"):
        points = part.groupby(["device", "model", "precision", "batch"], as_index=False).measured.median()
        network = [NETWORKS[str(source), m] for m in points.model]
        names = ("table_source", "network", "size", "optimizer")
        yield str(source), points.assign(**dict(zip(names, zip(*network, strict=True), strict=True)))


def _powered(folder: Path | None) -> Any:
    """Zeus: mean watts of training, and of pictures, whose epochs have a known length, joules and time of a step."""
    from perfpass.records import schema
    from perfpass.records.location import data_directory

    rows = schema.read((folder or data_directory()) / "records" / "training_power.parquet", "training")
    full = rows.device.map({name: device(name).power_limit_w for name in rows.device.unique()})
    rows = rows[rows.model.isin(list(POWER_NETWORKS)) & (rows.power_limit_w >= _UNLIMITED * full)]
    joules = joules_of_step(rows)
    source, network, size = zip(*(POWER_NETWORKS[m] for m in rows.model), strict=True)
    return rows.assign(
        table_source=source,
        network=network,
        size=size,
        optimizer=rows.optimizer.replace(STEP_OPTIMIZERS),
        measured=1e3 * joules / rows.power_w,
        measured_w=rows.power_w,
        measured_j=joules,
    )


def _own() -> Any:
    """Our own measured steps on CPUs."""
    from perfpass.records import measured

    rows = measured.load()
    rows = rows[(rows["mode"] == "training") & (rows.status == "ok") & (rows.runtime == "torch")]
    size = rows.ran_image_size.fillna(rows.ran_sequence_length).astype(int)
    name = rows.model.map(lambda m: _CONFIGURED.get(m, m.partition(":")[2]))
    return rows.assign(
        table_source=rows.model.map(lambda m: "huggingface" if m in _CONFIGURED else m.partition(":")[0]),
        network=name,
        size=size,
        device=rows.catalogue_id,
        measured=rows.latency_ms,
        optimizer=rows.optimizer.map(lambda o: "momentum" if o == "sgd" else o),
    )


def grade(section: Section, found: list[Outside], parts: list[Errors], seed: int = 0) -> None:
    """Lines for every source and device: zero-shot, and after one factor.

    Bounds of the time come from ``parts`` (networks and devices held out) and from the other sources.

    milabench and the CPU: the factor is the median of ten records drawn. MISO (another framework): of the other
    networks, so that no network's own records help it.
    """
    generator = np.random.default_rng(seed)
    for part in found:
        others = [p.errors for p in found if p.source != part.source and len(p)]
        if len(part):
            low, high = time_widths.bounds([*parts, *others], part.every)
            at = part.rows.predicted
            part = Outside(part.source, part.rows.assign(low=at * np.exp(low), high=at * np.exp(high)))
        for name, own in part.rows.groupby("device"):
            judged = f"{part.source}, {name}"
            for metric, columns in METRICS.items():
                there = own[own[columns[0]].notna()]
                if len(there):
                    measured, predicted, low, high = (there[c].to_numpy() for c in columns)
                    section.add(metric, "outside", "perfpass, zero-shot", judged, predicted, measured, low, high)
            own = own[own.measured.notna()]
            ratio = np.log(own.measured / own.predicted).to_numpy()
            if part.source == "miso":
                models = own.model.to_numpy()
                factor = np.array([np.median(ratio[models != m]) for m in models])
                kept, method = np.ones(len(own), dtype=bool), "perfpass, scaled by the other networks"
            else:
                drawn = generator.permutation(len(own))[:CALIBRATION_SIZE]
                kept, method = np.ones(len(own), dtype=bool), f"perfpass, {CALIBRATION_SIZE} records"
                kept[drawn] = False
                factor = np.full(len(own), np.median(ratio[drawn]))
            if kept.sum() < CALIBRATION_SIZE:
                continue
            scaled = (own.predicted * np.exp(factor)).to_numpy()[kept]
            section.add(METRIC, "outside", method, judged, scaled, own.measured.to_numpy()[kept])
