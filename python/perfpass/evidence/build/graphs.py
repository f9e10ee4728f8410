"""Counted figures of the rows whose network is a graph: of the recorded tables, or traced here without weights."""

from __future__ import annotations

import re
import sys
from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.devices import Device, device
from perfpass.errors import ArgumentError, DeviceError, PerfPassError
from perfpass.features import Tables
from perfpass.graph import costs
from perfpass.predictors.assemble import run_of
from perfpass.predictors.inference.fusion import as_run, folds
from perfpass.predictors.learned.ratios import fingerprint
from perfpass.predictors.relative import work
from perfpass.predictors.training_step.predictor import Derivation, options
from perfpass.predictors.way import Way
from perfpass.predictors.workload import PRECISIONS
from perfpass.records import graph_cache, nas_graphs, tables
from perfpass.records.build import outside, vision_models

if TYPE_CHECKING:
    from perfpass.graph import OpGraph
    from perfpass.graph.table import OperatorColumns
    from perfpass.records.tables import RecordedTables

# A definition: (library, name, pixels or tokens), as the graphs of the records are called.
Key = tuple[str, str, int]
# Sources whose networks all have a recorded table, where one could be made.
_RECORDED = ("timm", "torchvision")
# Encoders whose configuration ships, by our names of definitions.
_ENCODERS = {
    "bert-base": "bert-base", "bert-large": "bert-large", "distilbert-base": "distilbert-base",
    "roberta-base": "roberta-base", "roberta-large": "roberta-large",
}  # fmt: skip
_TORCHVISION = re.compile(r"(resnet(18|34|50|101|152)|vgg(11|13|16|19)|squeezenet1_[01]|inception_v3|mobilenet_v2)$")
_TIMM = re.compile(
    r"(resnet\d+d|resnext\d+_\d+x4d|seresnext101_32x4d|efficientnet_b\d|efficientnetv2_s|swin_\w+|vit_\w+)$"
)
# Pixels where a source states none: those that the definition was made for.
_PIXELS = {"inception_v3": 299, "efficientnetv2_s": 384}
_PIXELS |= {f"efficientnet_b{i}": p for i, p in enumerate((224, 240, 260, 300, 380, 456, 528, 600))}
# milabench's and MISO's benchmarks whose network is known: (source, model) -> definition, optimizer.
_BENCHMARKS: dict[tuple[str, str], tuple[Key, str]] = {
    ("milabench", "resnet50-noio"): (("torchvision", "resnet50", 224), "sgd"),
    ("milabench", "resnet50"): (("torchvision", "resnet50", 224), "sgd"),
    ("milabench", "convnext_large"): (("torchvision", "convnext_large", 224), "sgd"),
    ("milabench", "regnet_y_128gf"): (("timm", "regnety_1280", 224), "sgd"),
    ("milabench", "bert"): (("huggingface", "bert-base/BertForMaskedLM", 512), "adam"),
    ("miso", "resnet"): (("torchvision", "resnet50", 32), "adam"),
    ("miso", "mobilenet"): (("torchvision", "mobilenet_v2", 32), "adam"),
    ("miso", "bert"): (("huggingface", "bert-base/BertForSequenceClassification", 512), "adam"),
}
_MIG_LANGUAGE_MODEL, _MIG_TOKENS = "bert-large", 128
_CONFIGURED = {"hf:bert-tiny": "bert-tiny", "hf:minilm-l6": "minilm-l6", "hf:pythia-70m": "pythia-70m"}
# Bytes of a number over those of the recorded table, which has 32 or 16 bits.
_SCALES = {"fp64": 2.0, "int8": 0.5, "fp8": 0.5}
# Our own host, which is in no catalogue, and a CPU in its place.
_OWN_HOST, _ANY_CPU = "host-cpu", "xeon-gold-6148"
# Runtimes that `perfpass.predict` speaks of; the others issue from a graph, as TensorRT does.
_RUNTIMES = ("torch", "torch.compile", "onnxruntime", "tvm")


@dataclass(frozen=True)
class Found:
    """What was counted of a row."""

    macs: float
    parameters: float
    run_ms: float
    held_bytes: float
    fingerprint: bytes


@dataclass(frozen=True, eq=False)
class Counted:
    """A network's operator table at a batch; ``elements`` of its first input, ``byte_scale`` for another width."""

    table: OperatorColumns
    macs: float
    parameters: float
    elements: float
    fingerprint: bytes
    byte_scale: float

    @classmethod
    def of(cls, table: OperatorColumns, batch: int, parameters: float, elements: float, byte_scale: float) -> Counted:
        """With what follows from the table."""
        macs = float(np.dot(table.macs, table.count))
        stored = _stored_print(fingerprint(table, batch))
        return cls(table, macs, float(parameters), float(elements), stored, byte_scale)


class Graphs:
    """Counts rows; definitions that cannot be built are in ``failures``, by reason."""

    def __init__(self) -> None:
        """Reads the recorded tables. Raises FileError."""
        self._recorded: tuple[RecordedTables, ...] = (tables.load(), tables.load(name="outside"))
        self._counted: dict[tuple[Any, ...], Counted] = {}
        self._stored: dict[Key, graph_cache.Stored | None] = {}
        self.failures: Counter[str] = Counter()

    def of(self, row: Any) -> Found | None:
        """The figures of a row of `rows.everything`; None where its network or device is not known."""
        found = self._definition(row)
        target = _device(row.device)
        if found is None or not row.batch > 0:
            return None
        if target is None:
            return self._held_alone(row, found) if row.device.startswith(_OWN_HOST) else None
        key, optimizer = found
        precision = work.rate_of(row.precision)
        try:
            if row.peak_memory_bytes > 0:
                return self._by_graph(key, row, target, precision, optimizer)
            counted = self._table(key, int(row.batch), precision)
            if counted is None and row.source not in _RECORDED:  # what their tables lack cannot be traced
                counted = self._traced_table(key, row, precision)
            return self._by_table(counted, row, target, precision, optimizer) if counted else None
        except (DeviceError, ArgumentError) as error:
            self.failures[str(error).partition(";")[0][:100]] += 1
            return None

    def _held_alone(self, row: Any, found: tuple[Key, str]) -> Found | None:
        """Of our own measurements, whose host the catalogue does not have: what is held, the same on any CPU."""
        try:
            counted = self._by_graph(found[0], row, device(_ANY_CPU), work.rate_of(row.precision), found[1])
        except PerfPassError as error:
            self.failures[f"{row.model}: {str(error)[:80]}"] += 1
            return None
        return None if counted is None else replace(counted, run_ms=np.nan)

    def _definition(self, row: Any) -> tuple[Key, str] | None:
        """Which definition a row's network is, and the optimizer of its step."""
        size = int(row.img_height) if row.img_height > 0 else 0
        optimizer = {"sgd": "momentum"}.get(row.optimizer, row.optimizer)
        if row.source in _RECORDED:
            return (row.source, row.model, size), "momentum" if row.source == "timm" else "none"
        if (row.source, row.model) in _BENCHMARKS:
            return _BENCHMARKS[row.source, row.model]
        if row.source == "parvagpu":
            if row.model == _MIG_LANGUAGE_MODEL:
                return ("config", row.model, _MIG_TOKENS), "none"
            return ("torchvision", row.model, 224), "none"
        if row.source == "help":
            space = row.model.partition(" ")[0]
            return (space, row.architecture, 32), "none"
        if row.source == "own":
            library, _, name = row.model.partition(":")
            if row.model in _CONFIGURED or library == "hf":
                return ("config", name, int(row.sequence) if row.sequence > 0 else 128), optimizer or "none"
            return (library, name, size), optimizer or "none"
        if row.network in _ENCODERS and row.sequence > 0:
            return ("config", _ENCODERS[row.network], int(row.sequence)), "adam"
        square = size == (int(row.img_width) if row.img_width > 0 else 0)
        if row.network and row.img_height > 0 and not square:
            return None
        match = re.search(r"_(\d{3})$", row.network)
        size = size or _PIXELS.get(row.network, int(match[1]) if match else 224)
        if _TORCHVISION.match(row.network):
            return ("torchvision", row.network, size), "momentum"
        return (("timm", row.network, size), "momentum") if _TIMM.match(row.network) else None

    def _table(self, key: Key, batch: int, precision: str) -> Counted | None:
        """A recorded table."""
        at = (key, batch, 32 if precision in ("fp32", "fp64", "tf32") else 16)
        for known in self._recorded:
            if at not in self._counted and key in known:
                table = known.table(*key, batch, at[2])
                elements = table.statics["input_elements_per_sample"] * batch
                self._counted[at] = Counted.of(table, batch, table.statics["parameters"], elements, 1.0)
        found = self._counted.get(at)
        return None if found is None else replace(found, byte_scale=_SCALES.get(precision, 1.0))

    def _traced_table(self, key: Key, row: Any, precision: str) -> Counted | None:
        """The table of a graph that is traced here."""
        batch, float_as, loaded = int(row.batch), PRECISIONS[precision][0], folds(row.runtime)
        at = (key, batch, float_as, loaded)
        if at not in self._counted:
            if (graph := self._graph(key, batch)) is None:
                return None
            counted = costs.count(graph, float_as=float_as)
            elements = [float(prod(graph.shape(int(t)))) for t in graph.graph_inputs]
            table = as_run(graph, counted, "tensorrt" if loaded else "torch", "gpu")
            self._counted[at] = Counted.of(table, batch, counted.totals["parameters"], elements[0], 1.0)
        return self._counted[at]

    def _by_table(self, counted: Counted, row: Any, on: Device, precision: str, optimizer: str) -> Found:
        """The least time of a counted network on a row's device."""
        one = Tables.one(counted.table)
        way = Way(on, precision, row.runtime, row.layout or "nchw", optimizer if row.kind == "step" else None)
        if row.kind == "step":
            width = 4.0 if precision in ("fp32", "tf32") else 8.0 if precision == "fp64" else 2.0
            steps = Derivation(options(on, precision, optimizer), np.array([counted.elements]), width).steps(one)
            milliseconds = work.step_ms(steps, way, counted.byte_scale)
        else:
            milliseconds = work.inference_ms(one, way, counted.byte_scale)
        return Found(counted.macs, counted.parameters, float(milliseconds[0]), np.nan, counted.fingerprint)

    def _by_graph(self, key: Key, row: Any, on: Device, precision: str, optimizer: str) -> Found | None:
        graph = self._graph(key, int(row.batch))
        if graph is None:
            return None
        mode = "training" if row.kind == "step" else "inference"
        runtime = row.runtime if row.runtime in _RUNTIMES else "tensorrt"
        if mode == "training" and runtime not in ("torch", "torch.compile"):
            runtime = "torch"
        run = run_of(
            graph,
            on,
            batch=int(row.batch),
            precision=precision,
            mode=mode,
            runtime=runtime,
            layout=row.layout or "nchw",
            optimizer=optimizer if mode == "training" else None,
        )
        counted, print_, macs = work.of_run(run, mode)
        parameters = float(run.costs.totals["parameters"])
        return Found(macs, parameters, counted["run_ms"], counted["held_bytes"], _stored_print(print_))

    def _graph(self, key: Key, batch: int) -> OpGraph | None:
        """The graph of a definition: built, from the cache of traces, or traced now; None where it cannot be."""
        if key[0] in nas_graphs.SPACES:
            return nas_graphs.graph(key[0], tuple(key[1].split(",")), batch)
        stored = self._trace(key)
        return None if stored is None else stored.at(batch)

    def _trace(self, key: Key) -> graph_cache.Stored | None:
        """A definition at any batch, from the cache or traced now."""
        if key not in self._stored:
            self._stored[key] = None
            file = graph_cache.path(*key)
            try:
                if not file.is_file():
                    print(f"tracing {'/'.join(map(str, key))[:100]}", file=sys.stderr)
                    graph_cache.save(file, *_traces(key), vision_models.BATCHES)
                self._stored[key] = graph_cache.Stored.read(file)
            except PerfPassError as error:
                self.failures[f"{key[0]} {key[1][:40]}: {str(error)[:80]}"] += 1
        return self._stored[key]


def _traces(key: Key) -> tuple[Any, Any]:
    """A definition's graph at both of `vision_models.BATCHES`."""
    library, name, size = key
    first, second = vision_models.BATCHES
    if library == "config":
        from perfpass.importers.huggingface import trace_config
        from perfpass.importers.model_sources import CONFIGURATIONS, read_configuration

        content = dict(read_configuration(CONFIGURATIONS / f"{name}.json"))
        if content.get("max_position_embeddings", size) < size:  # some stacks ran longer ones
            content["max_position_embeddings"] = size
        a, b = (trace_config(content, batch=batch, sequence_length=size) for batch in (first, second))
        return a, b
    return outside.traces(library, name, size)


@lru_cache(maxsize=512)
def _device(name: str) -> Device | None:
    try:
        return device(name)
    except (DeviceError, ArgumentError):
        return None


def _stored_print(values: np.ndarray) -> bytes:
    return values.astype("<f2").tobytes()
