"""What is compared: five quantities, the records that measured them, and the splits that all predictors share.

A task's rows name a network (`graphs.Key`) and how it ran; graphs come from `graphs.Graphs`. Every method learns from
``Split.train``, may look at ``Split.valid`` (settings, early stopping), and is judged on ``Split.test``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.errors import ArgumentError
from perfpass.records.location import data_directory
from perfpass.training.tasks.graphs import Graphs, Key

if TYPE_CHECKING:
    import pandas

TASKS: tuple[str, ...] = ("latency", "training_step", "memory", "energy", "power")
# Offline generation by language models; its rows say more of the workload, and other predictors are made for it.
LANGUAGE_TASK = "llm"
EVERY_TASK = (*TASKS, LANGUAGE_TASK)
# Shares of the groups that are judged on and that settings are chosen on.
_TEST, _VALID, _LEAST_TRAIN = 0.2, 0.1, 0.4
# Fewer rows on a device than this (and than a share of a small task) say little of how well it is predicted unseen.
_LEAST_DEVICE_ROWS, _LEAST_DEVICE_SHARE = 150, 0.15
# Of so few families none can be spared to choose settings on.
_FEW_FAMILIES = 10
# Measurements of a device that an adaptation may learn from.
ADAPTATION_SIZES: tuple[int, ...] = (0, 8, 16, 32, 64, 128)


@dataclass(frozen=True, eq=False)
class Split:
    """Disjoint indices of the rows to learn from, to choose on, and to be judged on."""

    name: str
    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray


@dataclass(frozen=True, eq=False)
class Task:
    """N measurements of one quantity.

    ``rows`` [N]: source, model, img_size, batch, device (catalogue id), precision, runtime, layout, optimizer ("" for
    inference), power_limit_w (NaN: the device's own), architecture, family, and record, the place of the row in what
    its area learns from; of language models also n_devices, output_tokens, software_stack (of `Batch`) and model_name.
    ``value`` [N] above 0, in ``unit``.
    """

    name: str
    unit: str
    rows: pandas.DataFrame
    value: np.ndarray

    def __len__(self) -> int:
        return len(self.value)

    @property
    def keys(self) -> list[Key]:
        """[N] the network of each row."""
        r = self.rows
        return list(zip(r.source, r.model, (int(s) for s in r.img_size), strict=True))

    def traced(self, graphs: Graphs, *, quiet: bool = False) -> Task:
        """The rows whose network can be traced."""
        known = set(graphs.ensure(self.keys, quiet=quiet))
        return self.subset(np.flatnonzero([key in known for key in self.keys]))

    def subset(self, index: np.ndarray) -> Task:
        """The task of some of its rows."""
        return replace(self, rows=self.rows.iloc[index].reset_index(drop=True), value=self.value[index])

    def splits(self, seed: int = 0) -> Iterator[Split]:
        """Random rows (repeats stay together); architectures apart; families apart (where those are not the same); each
        well-measured device unseen.
        """
        rows = self.rows
        yield self._by_group("random", self.configurations(), seed)
        for name in ("architecture", "family"):
            if rows[name].nunique() >= 5 and not (name == "family" and (rows.family == rows.architecture).all()):
                found = self._by_group(name, rows[name].to_numpy(str), seed)
                # Few large families may leave too little to learn from.
                if len(found.train) >= _LEAST_TRAIN * len(self):
                    yield found
        for device in self.devices():
            yield self.without_device(device, seed)

    def configurations(self) -> np.ndarray:
        """[N] equal for rows that differ in nothing that a predictor sees."""
        columns = self.rows.drop(columns="record").fillna("").astype(str)
        return np.array(["|".join(row) for row in zip(*(columns[name] for name in columns), strict=True)])

    def devices(self) -> list[str]:
        """Devices with enough rows to be judged on, if others remain to learn from."""
        counts = self.rows.device.value_counts()
        least = min(_LEAST_DEVICE_ROWS, _LEAST_DEVICE_SHARE * len(self))
        return sorted(d for d, n in counts.items() if n >= least and len(self) - n >= least)

    def without_device(self, device: str, seed: int = 0) -> Split:
        """No row of ``device`` to learn from; families of the others are set aside to choose on (of few, rows)."""
        is_test = (self.rows.device == device).to_numpy()
        if not is_test.any() or is_test.all():
            raise ArgumentError(
                f"{self.name}: no rows on {device} beside others; {', '.join(self.devices())} have some"
            )
        rest = np.flatnonzero(~is_test)
        family = self.rows.family.to_numpy(str)[rest]
        if len(np.unique(family)) < _FEW_FAMILIES:
            family = rest.astype(str)
        group = _drawn(family, seed) < _VALID
        return Split(f"device {device}", rest[~group], rest[group], np.flatnonzero(is_test))

    def adaptation(self, device: str, size: int, seed: int = 0) -> Split:
        """``size`` rows of ``device`` to learn from beside all other devices; architectures of the test rows are apart.

        The rows learned from are the first of one order, so that a larger size holds the smaller one. The test rows are
        the same for every size.
        """
        found = self.without_device(device, seed)
        names = self.rows.architecture.to_numpy(str)[found.test]
        pool = found.test[_drawn(names, seed + 1) >= 0.5]
        order = np.random.default_rng(seed).permutation(len(pool))
        if size > len(pool):
            raise ArgumentError(f"{self.name}: {size} rows of {device} asked, {len(pool)} are there to learn from")
        test = np.setdiff1d(found.test, pool)
        return Split(
            f"device {device}, {size} records", np.concatenate([found.train, pool[order[:size]]]), found.valid, test
        )

    def family_adaptation(self, family: str, size: int, seed: int = 0) -> Split:
        """As `adaptation`, for a family of networks of which ``size`` rows were measured."""
        is_family = (self.rows.family == family).to_numpy()
        own, rest = np.flatnonzero(is_family), np.flatnonzero(~is_family)
        pool = own[_drawn(self.rows.architecture.to_numpy(str)[own], seed + 1) >= 0.5]
        if size > len(pool) or len(pool) == len(own):
            raise ArgumentError(f"{self.name}: {size} rows of family {family} asked, {len(pool)} can be learned from")
        order = np.random.default_rng(seed).permutation(len(pool))
        valid = _drawn(self.rows.family.to_numpy(str)[rest], seed) < _VALID
        train = np.concatenate([rest[~valid], pool[order[:size]]])
        return Split(f"family {family}, {size} records", train, rest[valid], np.setdiff1d(own, pool))

    def _by_group(self, name: str, group: np.ndarray, seed: int) -> Split:
        at = _drawn(group, seed)
        test = at < _TEST
        # A large group may reach over the whole share of validation; then the next ones take its place.
        places = np.sort(at[~test])
        enough = places[min(int(len(self) * _VALID / 2), len(places) - 1)]
        valid = ~test & ((at < _TEST + _VALID) | (at <= enough))
        return Split(name, np.flatnonzero(~test & ~valid), np.flatnonzero(valid), np.flatnonzero(test))


def _drawn(group: np.ndarray, seed: int) -> np.ndarray:
    """[N] in [0, 1): the place of each row's group in a random order of the groups, weighted by their rows."""
    names, inverse, counts = np.unique(group, return_inverse=True, return_counts=True)
    order = np.random.default_rng(seed).permutation(len(names))
    place = np.empty(len(names))
    place[order] = (np.cumsum(counts[order]) - counts[order]) / counts.sum()
    return place[inverse]


def load(name: str, folder: Path | str | None = None) -> Task:
    """One of TASKS, or LANGUAGE_TASK, from the records of ``folder`` (default: the repository's).

    Raises FileError, ArgumentError.
    """
    data = Path(folder) if folder else data_directory()
    if name == "latency":
        return _vision(data, "inference", "latency")
    if name == "training_step":
        return _vision(data, "training", "training_step")
    if name == "memory":
        return _training_memory(data)
    if name in ("energy", "power"):
        return _training_power(data, name)
    if name == LANGUAGE_TASK:
        return _generation(folder)
    raise ArgumentError(f"unknown task {name!r}; allowed are {', '.join((*TASKS, LANGUAGE_TASK))}")


def _vision(data: Path, mode: str, name: str) -> Task:
    """The records of networks that have an operator table, so that every predictor can have every row."""
    from perfpass.records import tables, vision

    rows = vision.load(data / "records" / "vision.parquet")
    known = tables.load(data / "graphs")
    rows = rows[(rows["mode"] == mode) & (rows.n_devices == 1) & rows.latency_ms.notna()]
    rows = rows[[key in known for key in zip(rows.source, rows.model, rows.img_size, strict=True)]]
    rows = rows.reset_index(drop=True)
    return _task(name, "ms", rows, rows.latency_ms)


# Networks of the training benchmarks whose definition is public, as `records.build_outside.traces` builds them.
_BENCH_NETWORKS: dict[str, Key] = {
    "torchvision:resnet50": ("torchvision", "resnet50", 224),
    "torchvision:resnet152": ("torchvision", "resnet152", 224),
    "torchvision:convnext_large": ("torchvision", "convnext_large", 224),
    "torchvision:regnet_y_128gf": ("timm", "regnety_1280", 224),
    "timm:focalnet_base_lrf": ("timm", "focalnet_base_lrf", 224),
    "transformers:bert": ("huggingface", "bert-base/BertForMaskedLM", 512),
}
# What its scripts name (ml-energy/zeus, examples/cifar100 and imagenet). BERT's length is not stated: its longest.
POWER_NETWORKS: dict[str, Key] = {
    "resnet50": ("torchvision", "resnet50", 224),
    "shufflenetv2": ("pytorch-cifar100", "shufflenetv2", 32),
    "bert_base_uncased": ("huggingface", "bert-base/BertForSequenceClassification", 512),
}
# Pictures in an epoch: Russakovsky et al., ImageNet Large Scale Visual Recognition Challenge, IJCV 2015 (training set
# of the classification task); Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009. How many
# sequences the text data sets were cut into is not stated, so an epoch of BERT is no known number of steps.
_PICTURES = {"imagenet": 1_281_167, "cifar100": 50_000}
# Adadelta keeps two tensors beside each parameter, as Adam does, which stands for it where memory is asked.
STEP_OPTIMIZERS = {"": "none"}
KEPT_OPTIMIZERS = {"adadelta": "adam", **STEP_OPTIMIZERS}


def steps_of_epoch(rows: Any) -> Any:
    """Steps that an epoch of each row has; NaN where the length of its data set is not known."""
    return np.ceil(rows.dataset.map(_PICTURES) / rows.batch)


def joules_of_step(rows: Any) -> Any:
    """Of rows whose ``energy_j`` is that of an epoch; NaN where the length of the data set is not known."""
    return rows.energy_j / steps_of_epoch(rows)


def _training_memory(data: Path) -> Task:
    from perfpass.records import schema
    from perfpass.records.build.memory_benches import BENCHES
    from perfpass.training.memory.dataset import bench_of

    rows = schema.read(data / "records" / "training_memory.parquet", "training")
    rows = rows[rows.listed & rows.peak_memory_bytes.notna()]
    rows = rows.assign(bench=[bench_of(m, p) for m, p in zip(rows.model, rows.precision, strict=True)])
    rows = rows[rows.bench.isin(list(BENCHES))].reset_index(drop=True)
    rows = rows.assign(
        record=np.arange(len(rows)),
        precision=[BENCHES[b].precision for b in rows.bench],
        optimizer=[BENCHES[b].optimizer for b in rows.bench],
    )
    rows = rows[[BENCHES[b].model in _BENCH_NETWORKS for b in rows.bench]].reset_index(drop=True)
    keys = [_BENCH_NETWORKS[BENCHES[b].model] for b in rows.bench]
    return _task("memory", "byte", _placed(rows, keys), rows.peak_memory_bytes)


def _training_power(data: Path, name: str) -> Task:
    """Joules of a training step, or mean watts while training."""
    from perfpass.records import schema

    rows = schema.read(data / "records" / "training_power.parquet", "training")
    rows = rows.assign(record=np.arange(len(rows)))
    rows = rows[rows.model.isin(list(POWER_NETWORKS))].reset_index(drop=True)
    value = rows.power_w
    if name == "energy":
        rows = rows[rows.dataset.isin(list(_PICTURES))].reset_index(drop=True)
        value = joules_of_step(rows)
    unit = "J" if name == "energy" else "W"
    return _task(name, unit, _placed(rows, [POWER_NETWORKS[m] for m in rows.model]), value)


def _generation(folder: Path | str | None) -> Task:
    from perfpass.importers.configuration_names import resolve
    from perfpass.training.generation import dataset

    data = dataset.load(str(folder) if folder else None)
    rows = data.table.assign(
        source="llm-prefill",
        model=[str(resolve(m)) for m in data.table.model],
        img_size=data.table.input_tokens,
        layout="",
        optimizer="",
        architecture=data.quantity.model,
        software_stack=[b.stack for b in data.batches],
        model_name=data.table.model,
    )
    return _task(
        LANGUAGE_TASK, "s", rows, data.quantity.measured, ("n_devices", "output_tokens", "software_stack", "model_name")
    )


def _placed(rows: Any, keys: list[Key]) -> Any:
    """Rows with the columns that those of vision have."""
    source, model, size = (list(column) for column in zip(*keys, strict=True))
    return rows.assign(source=source, model=model, img_size=size, architecture=model, family=model, layout="nchw")


_COLUMNS = (
    *("source", "model", "img_size", "batch", "device", "precision", "runtime", "layout", "optimizer"),
    *("power_limit_w", "architecture", "family", "record"),
)


def _task(name: str, unit: str, rows: Any, value: Any, more: tuple[str, ...] = ()) -> Task:
    measured = np.asarray(value, dtype=np.float64)
    kept = np.isfinite(measured) & (measured > 0)
    if "record" not in rows:
        rows = rows.assign(record=np.arange(len(rows)))
    table = rows.reindex(columns=[*_COLUMNS, *more])[kept].reset_index(drop=True)
    table["optimizer"] = table.optimizer.fillna("").astype(str)
    return Task(name, unit, table, measured[kept])
