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
from perfpass.training.comparison.graphs import Graphs, Key

if TYPE_CHECKING:
    import pandas

TASKS: tuple[str, ...] = ("latency", "training_step", "memory", "energy")
# Offline generation by language models; its rows say more of the workload, and other predictors are made for it.
LANGUAGE_TASK = "llm"
# Shares of the groups that are judged on and that settings are chosen on.
_TEST, _VALID = 0.2, 0.1
# Fewer rows than this on a device say little of how well an unseen device is predicted.
_LEAST_DEVICE_ROWS = 150
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
    inference), architecture, family; of language models also n_devices, output_tokens, software_stack (of `Batch`) and
    model_name. ``value`` [N] above 0, in ``unit``.
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
        """Random rows; architectures apart; families apart; each well-measured device unseen."""
        rows = self.rows
        yield self._by_group("random", np.arange(len(self)).astype(str), seed)
        for name in ("architecture", "family"):
            if rows[name].nunique() >= 5:
                yield self._by_group(name, rows[name].to_numpy(str), seed)
        for device in self.devices():
            yield self.without_device(device, seed)

    def devices(self) -> list[str]:
        """Devices with enough rows to be judged on, if others remain to learn from."""
        counts = self.rows.device.value_counts()
        return sorted(d for d, n in counts.items() if n >= _LEAST_DEVICE_ROWS and len(self) - n >= _LEAST_DEVICE_ROWS)

    def without_device(self, device: str, seed: int = 0) -> Split:
        """No row of ``device`` to learn from; families of the others are set aside to choose on."""
        is_test = (self.rows.device == device).to_numpy()
        if not is_test.any() or is_test.all():
            raise ArgumentError(
                f"{self.name}: no rows on {device} beside others; {', '.join(self.devices())} have some"
            )
        rest = np.flatnonzero(~is_test)
        group = _drawn(self.rows.family.to_numpy(str)[rest], seed) < _VALID
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
        test, valid = at < _TEST, (at >= _TEST) & (at < _TEST + _VALID)
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
    root = (Path(folder) if folder else data_directory()) / "records"
    if name == "latency":
        return _vision(root, "inference", "latency")
    if name == "training_step":
        return _vision(root, "training", "training_step")
    if name == "memory":
        return _training_memory(root)
    if name == "energy":
        return _training_energy(root)
    if name == LANGUAGE_TASK:
        return _generation(folder)
    raise ArgumentError(f"unknown task {name!r}; allowed are {', '.join((*TASKS, LANGUAGE_TASK))}")


def _vision(root: Path, mode: str, name: str) -> Task:
    from perfpass.records import vision

    rows = vision.load(root / "vision.parquet")
    rows = rows[(rows["mode"] == mode) & (rows.n_devices == 1) & rows.latency_ms.notna()].reset_index(drop=True)
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
_POWER_NETWORKS: dict[str, Key] = {
    "resnet50": ("torchvision", "resnet50", 224),
    "shufflenetv2": ("torchvision", "shufflenet_v2_x1_0", 224),
    "bert_base_uncased": ("huggingface", "bert-base/BertForSequenceClassification", 512),
}


def _training_memory(root: Path) -> Task:
    from perfpass.records import schema
    from perfpass.records.memory_benches import BENCHES

    rows = schema.read(root / "training_memory.parquet", "training")
    rows = rows[rows.model.isin([b for b in BENCHES if BENCHES[b].model in _BENCH_NETWORKS])].reset_index(drop=True)
    keys = [_BENCH_NETWORKS[BENCHES[m].model] for m in rows.model]
    rows = rows.assign(
        precision=[BENCHES[m].precision for m in rows.model], optimizer=[BENCHES[m].optimizer for m in rows.model]
    )
    return _task("memory", "byte", _placed(rows, keys), rows.peak_memory_bytes)


def _training_energy(root: Path) -> Task:
    from perfpass.records import schema

    rows = schema.read(root / "training_power.parquet", "training")
    rows = rows[rows.model.isin(list(_POWER_NETWORKS))].reset_index(drop=True)
    return _task("energy", "J", _placed(rows, [_POWER_NETWORKS[m] for m in rows.model]), rows.energy_j)


def _generation(folder: Path | str | None) -> Task:
    from perfpass.llm.names import resolve
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
    *("architecture", "family"),
)


def _task(name: str, unit: str, rows: Any, value: Any, more: tuple[str, ...] = ()) -> Task:
    measured = np.asarray(value, dtype=np.float64)
    kept = np.isfinite(measured) & (measured > 0)
    table = rows.loc[kept, [*_COLUMNS, *more]].reset_index(drop=True)
    table["optimizer"] = table.optimizer.fillna("").astype(str)
    return Task(name, unit, table, measured[kept])
