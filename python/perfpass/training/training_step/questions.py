"""Steps of other laboratories and of our own CPU: what each record asks, and what was measured.

Newer devices, other frameworks, MIG slices, other domains than vision. Nothing of it trains a tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.devices import device
from perfpass.graph import OPERATOR_CLASS_OF, OPERATORS
from perfpass.graph.step import StepOptions, Steps
from perfpass.graph.table import OperatorColumns, Tables
from perfpass.predictors.training_step.predictor import Derivation
from perfpass.predictors.training_step.predictor import options as present
from perfpass.predictors.way import Way
from perfpass.records import schema, tables
from perfpass.records.location import data_directory
from perfpass.training.ratio_trees import bits_of
from perfpass.training.tasks import named
from perfpass.training.tasks.tasks import POWER_NETWORKS, STEP_OPTIMIZERS, joules_of_step, steps_of_epoch
from perfpass.training.training_step.dataset import options as early

OWN = "measured on a 2-core EPYC"
# Sources in other frameworks, whose kernels and host are not PyTorch's. MISO ran Keras in TensorFlow 2.6 without XLA.
OTHER_FRAMEWORKS = {"miso": "tensorflow"}
# There GELU is a division, an error function, a sum and two products (transformers 4.10, activations_tf.py).
_GELU, _GELU_KERNELS = OPERATORS.index("gelu"), 5
# Keras' ResNet-50 has a bias in each of its convolutions (keras.applications, resnet.py), torchvision's has none.
_BIASED = ("resnet",)
_CONV, _ADD = OPERATORS.index("conv"), OPERATORS.index("add")
# A limit that is set this far below the board's own hardly slows a step; the V100 there stops at 250 of 300 W.
_UNLIMITED = 0.8
_ZEUS_TORCH = "1.12"  # it is of 2022
# A step of Zeus is the mean over an epoch, which starts its four workers anew and waits for the batch that the first of
# them makes: of few steps it says little of one. Its times per picture fall up to 49 steps, and rise from 25 on.
_LEAST_STEPS = 40
# Zeus' script on CIFAR-100 hands its loader no pinned memory, and copies each batch as it comes (examples/cifar100).
_PAGEABLE = ("cifar100",)
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
_LANGUAGE = ("huggingface",)
# (source, network) of scripts that are not eager PyTorch on sequences of the stated length: since January 2022 they are
# compiled by NVFuser, and the second phase reads sequences in bins of 64 tokens (its README's changelog).
_NOT_AS_ASKED = (("deeplearningexamples", "bert-large/pretraining+eager"),)


@dataclass(frozen=True, eq=False)
class Question:
    """What one record asks, and what was measured: seconds, watts, joules of a step, NaN where it was not.

    ``table``: of the forward pass. ``options``: how the step of the source ran.
    """

    source: str
    domain: str
    model: str
    table: OperatorColumns
    batch: int
    way: Way
    options: StepOptions
    input_elements: float
    measured_s: float
    measured_w: float = np.nan
    measured_j: float = np.nan

    @property
    def derived(self) -> Derivation:
        """How its step follows from its forward table."""
        width = bits_of(self.way.precision if self.way.precision != "tf32" else "fp32") / 8
        return Derivation(self.options, np.array([self.input_elements]), width)

    @property
    def steps(self) -> Steps:
        """The step, as N = 1."""
        return self.derived.steps(Tables.one(self.table))


def questions(folder: Path | None = None) -> list[Question]:
    """Every record whose network is known. Raises FileError, FormatError."""
    graphs = folder / "graphs" if folder else None
    known, vision = tables.load(graphs, "outside"), tables.load(graphs)
    found = []
    for source, rows in (*_public(folder), ("zeus", _powered(folder)), (OWN, _own())):
        for r in rows.itertuples():
            key = (r.table_source, r.network, r.size)
            if table_of := known if key in known else vision if key in vision else None:
                found.append(_question(source, table_of, key, r))
    return [*found, *_named(folder)]


def _question(source: str, known: tables.RecordedTables, key: tuple[str, str, int], row: Any) -> Question:
    board = device(row.device)
    if np.isfinite(limit := getattr(row, "power_limit_w", np.nan)):
        board = replace(board, power_limit_w=float(limit))
    way = Way(board, row.precision, optimizer=row.optimizer, torch_version=_ZEUS_TORCH if source == "zeus" else None)
    table = known.table(*key, row.batch, 32 if row.precision in ("fp32", "tf32") else 16)
    elements = float(table.statics["input_elements_per_sample"] * row.batch)
    if getattr(row, "dataset", "") in _PAGEABLE:
        way = replace(way, copied_bytes=4.0 * elements)
    how = early(source, row.precision, row.optimizer) if source == "zeus" else present(way.device, *_how(row))
    if source in OTHER_FRAMEWORKS:
        table = _biased(table) if row.model in _BIASED else table
        table, way, how = _in_tensorflow(table, way, how)
    measured = [float(getattr(row, name, np.nan)) for name in ("measured", "measured_w", "measured_j")]
    domain = "language" if key[0] in _LANGUAGE else "vision"
    return Question(
        source, domain, row.model, table, int(row.batch), way, how, elements, measured[0] * 1e-3, *measured[1:]
    )


def _how(row: Any) -> tuple[str, str]:
    return row.precision, row.optimizer


def _biased(table: tables.RecordedTable) -> tables.RecordedTable:
    """The same with a bias behind each convolution, which TensorFlow adds with a kernel of its own."""
    made = np.asarray(table.op) == _CONV
    own = {f.name: np.asarray(getattr(table, f.name))[made] for f in fields(OperatorColumns)}
    elements, bias = own["output_elements"], own["n"] * own["groups"].clip(1) * 4.0
    none = np.zeros_like(elements)
    added = own | {
        "op": np.full(len(elements), _ADD),
        "op_class": np.full(len(elements), OPERATOR_CLASS_OF[_ADD]),
        "flops": elements,
        "bytes_read": own["bytes_written"] + bias,
        "weight_bytes": bias,
        "input_elements": elements,
        **dict.fromkeys(("macs", "b", "m", "n", "k", "kernel_area", "stride", "groups"), none),
    }
    both: dict[str, Any] = {name: np.concatenate([getattr(table, name), column]) for name, column in added.items()}
    return replace(table, **both)


def _in_tensorflow(
    table: tables.RecordedTable, way: Way, how: StepOptions
) -> tuple[tables.RecordedTable, Way, StepOptions]:
    """The same as TensorFlow runs it: attention in products and a softmax, GELU written out, Adam a kernel a tensor.

    It multiplies in TF32 on an A100 unless told not to.
    """
    count = np.asarray(table.count) * np.where(np.asarray(table.op) == _GELU, _GELU_KERNELS, 1)
    how = replace(how, optimizer="keras adam", foreach=False, separate_attention=True)
    return replace(table, count=count), replace(way, runtime="tensorflow", optimizer=how.optimizer), how


def _named(folder: Path | None) -> Iterator[Question]:
    """Networks of other laboratories by name, in PyTorch on one GPU; times that no roofline allows are left out."""
    root = folder or data_directory()
    if not (root / "records" / "networks.parquet").is_file():
        return
    frame, _, known = named.measured(folder)
    frame = frame[(frame["mode"] == "training") & (frame.runtime == "torch") & ~frame.above_peak]
    for way, part in named.ways(frame):
        for row in part.itertuples():
            if (row.source, row.table_model) in _NOT_AS_ASKED:
                continue
            bits = 32 if way.precision in ("fp32", "tf32") else 16
            table = known.table(row.table_source, row.table_model, row.table_size, row.batch, bits)
            elements = float(table.statics["input_elements_per_sample"] * row.batch)
            how = present(way.device, way.precision, way.optimizer or "")
            yield Question(
                row.source, row.domain, row.table_model, table, int(row.batch), way, how, elements, row.measured_s
            )


def _public(folder: Path | None) -> Iterator[tuple[str, Any]]:
    """Both public sources: milabench by median of equal points, MISO with its slices as devices."""
    rows = schema.read((folder or data_directory()) / "records" / "training_outside.parquet", "training")
    keys = list(zip(rows.source, rows.model, strict=True))
    rows = rows[[k in NETWORKS for k in keys]].reset_index(drop=True)
    rows = rows[rows.precision != ""]
    measured = rows.latency_ms.fillna(1e3 * rows.batch / rows.throughput_per_s)
    slices = rows.device + (":" + rows.mig_profile).where(rows.mig_profile != "", "")
    rows = rows.assign(measured=measured, device=slices)
    for source, part in rows.groupby("source"):
        if source in OTHER_FRAMEWORKS:
            part = part.assign(precision="tf32")
        points = part.groupby(["device", "model", "precision", "batch"], as_index=False).measured.median()
        network = [NETWORKS[str(source), m] for m in points.model]
        names = ("table_source", "network", "size", "optimizer")
        yield str(source), points.assign(**dict(zip(names, zip(*network, strict=True), strict=True)))


def _powered(folder: Path | None) -> Any:
    """Zeus: mean watts of training, and of pictures, whose epochs have a known length, joules and time of a step."""
    rows = schema.read((folder or data_directory()) / "records" / "training_power.parquet", "training")
    full = rows.device.map({name: device(name).power_limit_w for name in rows.device.unique()})
    rows = rows[rows.model.isin(list(POWER_NETWORKS)) & (rows.power_limit_w >= _UNLIMITED * full)]
    joules = joules_of_step(rows).where(~(steps_of_epoch(rows) < _LEAST_STEPS))
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
