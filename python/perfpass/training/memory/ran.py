"""What ran must fit: the verdict of `perfpass.decision.fits` on every record of an accelerator that ran.

The records of networks and of language models, in inference and in training, in MIG slices and on whole boards. Asked
is what `predict`, `predict_llm` and `predict_offline` ask: whether the least that a run needs is within the device's
memory. Of vision and networks the operator tables know weights and live tensors; the holes of an allocator are left
out. What autograd saves is in data/graphs/ran_steps.parquet (`perfpass.training.memory.ran_steps`) for every step whose
operators write more than the device has; the others cannot be refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.decision import FitAnswer, fits
from perfpass.devices import device
from perfpass.errors import PerfPassError
from perfpass.llm import LanguageModel, language_model
from perfpass.predictors.generation.predictor import batch_of, memory
from perfpass.predictors.judged import together
from perfpass.predictors.memory import process
from perfpass.predictors.memory.allocation import weight_copies
from perfpass.predictors.memory.allowance import driver_bytes
from perfpass.predictors.way import Way
from perfpass.predictors.workload import PRECISIONS
from perfpass.records import schema, tables
from perfpass.records.location import data_directory
from perfpass.records.named import questions
from perfpass.training import ratio_trees
from perfpass.training.memory import ran_steps

# Their programs decode Stable Diffusion's images one after the other, whatever the batch.
_ONE_DECODED = ("sd_benchmark", "lambda_diffusers")
_ON_THE_HOST, _FROZEN = "parts_moved_to_the_host", "most_weights_frozen"
# Experts, and of llama.cpp most layers, ran on the host.
_HOSTED = ("ktransformers",)
# Networks that a source ran with another definition than today's: normalizations in place, which save half.
_OTHERWISE = ("tresnet",)
# Boards whose memory the source does not state are taken with the smaller one. These had the larger: models of 26 GB
# ran on one of ML.ENERGY's, and ResNet-50 with 360 pictures on Zeus's.
_LARGER = {("zeus", "v100-sxm2-16gb"): "v100-sxm2-32gb", ("mlenergy", "v100-sxm2-16gb"): "v100-sxm2-32gb"}
_OPTIMIZER = "momentum"
_PIXELS = 224  # of ParvaGPU's images
_GRAPH_BITS = {"float64": 32, "float32": 32}


@dataclass
class Verdicts:
    """Of one kind of record: how many were said to fit, perhaps, or not; and why the others were not asked."""

    kind: str
    answers: Counter[FitAnswer] = field(default_factory=Counter)
    not_asked: Counter[str] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)

    def add(self, answer: FitAnswer, what: str) -> None:
        """One record, named ``what``."""
        self.answers[answer] += 1
        if answer == "no":
            self.refused.append(what)

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON: ``refused_pct`` of the records that were asked."""
        rows = sum(self.answers.values())
        counts = {answer: self.answers[answer] for answer in ("yes", "perhaps", "no")}
        return {
            "kind": self.kind,
            "rows": rows,
            **counts,
            "refused_pct": 100.0 * self.answers["no"] / max(rows, 1),
            "not_asked": dict(self.not_asked.most_common()),
            "refused": sorted(set(self.refused)),
        }


@dataclass(frozen=True)
class _Run:
    """One record of a graph: bytes at its precision; ``processes`` share the device."""

    name: str
    weight_bytes: float
    activation_bytes: float
    parameters: float = 0.0
    backward_bytes: float = 0.0
    gradient_bytes: float = 0.0
    frozen: bool = False
    processes: int = 1


class _Graphs(Verdicts):
    """Verdicts on runs of graphs, asked together by the way they ran."""

    def __init__(self, kind: str, steps: ran_steps.Steps) -> None:
        super().__init__(kind)
        self._steps = steps
        self._runs: dict[Way, list[_Run]] = {}

    def run(
        self, way: Way, key: tuple[str, str, int], batch: int, known: tables.RecordedTables, what: str, **more: Any
    ) -> None:
        """Notes one record: the network ``key`` at a batch size."""
        bits = _GRAPH_BITS.get(PRECISIONS[way.precision][0], 16)
        table, scale = known.table(*key, batch, bits), ratio_trees.byte_scale_of(way.precision)
        if way.optimizer is not None:
            saved = self._steps.get((*key, batch, ran_steps.type_of(way.precision)))
            if saved is None and ran_steps.may_be_refused(way.device, scale * ran_steps.written_bytes(table)):
                self.not_asked["the step was not planned"] += 1
                return
            more |= {"backward_bytes": saved[0], "gradient_bytes": saved[1]} if saved else {}
        of = table.statics
        sizes = (of["weight_bytes"] * scale, of["peak_activation_bytes"] * scale, of["parameters"])
        label = f"{what}{key[1]} at {key[2]}, batch {batch}, {way.precision}, {way.runtime}, {way.device.id}"
        self._runs.setdefault(way, []).append(_Run(label, *sizes, **more))

    def settled(self) -> Verdicts:
        """The verdicts on all that was noted."""
        for way, runs in self._runs.items():
            column = {
                name: np.array([getattr(run, name) for run in runs], dtype=np.float64)
                for name in (
                    "weight_bytes",
                    "activation_bytes",
                    "parameters",
                    "backward_bytes",
                    "gradient_bytes",
                    "frozen",
                )
            }
            if way.optimizer is None:
                kept = column["weight_bytes"] * float(weight_copies(way.precision, way.runtime))
                column |= {"reserved_bytes": kept + column["activation_bytes"], "convolutional": np.zeros(len(runs))}
                _, memory = process.inference(column, way)
            else:
                column |= {"parameters": column["parameters"] * (1.0 - column["frozen"])}
                # Bounds are lower than these say, if anything: what is asked is the lower one.
                column |= {"folded": np.zeros(len(runs)), "convolutional": np.zeros(len(runs))}
                _, memory = process.step(column, way)
            for i, run in enumerate(runs):
                peak = together(memory.in_use.interval(i, "byte"), run.processes, driver_bytes(way.device))
                self.add(fits(peak, way.device.usable_bytes), run.name)
        self._runs.clear()
        return self


def every(folder: Path | None = None) -> list[Verdicts]:
    """All kinds. Raises FileError and FormatError."""
    root = Path(folder) if folder else data_directory()
    steps = ran_steps.load(root)
    graphs = [_vision(root, "inference", steps), _vision(root, "training", steps), *_networks(root, steps)]
    graphs += [_powered(root, steps), _slices(root, steps)]
    return [*(found.settled() for found in graphs), *_language(root), _served(root)]


def _vision(root: Path, mode: str, steps: ran_steps.Steps) -> _Graphs:
    found = _Graphs(f"vision, {mode}", steps)
    rows, known, missing = ratio_trees.recorded(root, mode)
    found.not_asked["no operator table"] = missing
    for row in rows.itertuples():
        target = device(row.device)
        if mode == "training" and row.model.startswith(_OTHERWISE):
            found.not_asked["another definition ran"] += 1
        elif target.kind != "cpu":
            optimizer = (row.optimizer or _OPTIMIZER) if mode == "training" else None
            way = Way(target, row.precision, row.runtime, optimizer=optimizer)
            found.run(way, (row.source, row.model, int(row.img_size)), int(row.batch), known, "")
    return found


def _networks(root: Path, steps: ran_steps.Steps) -> Iterator[_Graphs]:
    rows = schema.read(root / "records" / "networks.parquet", "network")
    known = tables.load(root / "graphs", "networks")
    asked = questions(rows, known).assign(source=rows.source, caveats=rows.caveats)
    for mode in ("inference", "training"):
        found = _Graphs(f"networks, {mode}", steps)
        for q in asked[rows["mode"] == mode].itertuples():
            if q.refused or _ON_THE_HOST in q.caveats:
                found.not_asked[q.refused or "weights kept on the host"] += 1
                continue
            target = device(q.device)
            if target.kind != "cpu":
                way = Way(target, q.precision, q.runtime, optimizer=q.optimizer if mode == "training" else None)
                batch = 1 if q.source in _ONE_DECODED else int(q.batch)
                key = (q.table_source, q.table_model, int(q.table_size))
                found.run(way, key, batch, known, f"{q.source}: ", frozen=_FROZEN in q.caveats)
        yield found


def _powered(root: Path, steps: ran_steps.Steps) -> _Graphs:
    """The training of Zeus."""
    found = _Graphs("training, zeus", steps)
    known = tables.load(root / "graphs", "outside")
    for row in ran_steps.powered(root).itertuples():
        if row.key not in known or row.key[0] == "huggingface":
            found.not_asked[
                "how long the sequences were is not stated" if row.key in known else "no operator table"
            ] += 1
            continue
        target = device(_LARGER.get((row.source, row.device), row.device))
        found.run(Way(target, row.precision or "fp32", optimizer=row.taken), row.key, int(row.batch), known, "zeus: ")
    return found


def _slices(root: Path, steps: ran_steps.Steps) -> _Graphs:
    """ParvaGPU's processes, which share the memory of a slice."""
    found = _Graphs("MIG slices, inference", steps)
    rows = schema.read(root / "records" / "mig.parquet", "mig")
    known = tables.load(root / "graphs")
    for row in rows[rows.fits].itertuples():
        key = ("torchvision", row.model, _PIXELS)
        if key not in known:
            found.not_asked["no operator table"] += 1
            continue
        way = Way(device(f"{row.device}:{row.mig_profile}"))
        found.run(way, key, int(row.batch), known, f"{row.processes} x ", processes=int(row.processes))
    return found


@cache
def _model(name: str) -> LanguageModel | str:
    """The model of a name, read once; the name itself where it cannot be read, which whoever asks refuses."""
    try:
        return language_model(name)
    except PerfPassError:
        return name


@lru_cache(maxsize=1 << 14)
def _batch_answer(
    name: str, on: str, runtime: str, devices: int, batch: int, prompt: int, answer: int, precision: str
) -> tuple[FitAnswer, str]:
    """The verdict on a batch of a language model, and what it was. Raises PerfPassError where it is no question."""
    how: dict[str, Any] = {"runtime": runtime, "precision": precision or None}
    asked = batch_of(_model(name), on, devices=devices, batch=batch, input_tokens=prompt, output_tokens=answer, **how)
    return memory(asked).answer, f"{name}, {precision}, batch {batch}, {runtime}, {devices} x {on}"


def _language(root: Path) -> Iterator[Verdicts]:
    """Batches of language models, and requests under load."""
    for file, kind in (
        ("generation", "generation"),
        ("generation_outside", "generation"),
        ("serving_load", "serving"),
        ("serving_outside", "serving"),
    ):
        rows = schema.read(root / "records" / f"{file}.parquet", kind)
        for source, part in rows.groupby("source"):
            found = Verdicts(f"language models, {source}")
            for row in part.itertuples():
                if row.output_tokens < 1 and row.input_tokens < 1:
                    found.not_asked["not a language model"] += 1
                    continue
                if _ON_THE_HOST in row.caveats or source in _HOSTED:
                    found.not_asked["weights kept on the host"] += 1
                    continue
                name = getattr(row, "network", "") or row.model
                sizes = (row.n_devices, row.batch, row.input_tokens, row.output_tokens)
                runtime = "transformers" if row.runtime == "torch" else row.runtime
                try:
                    known = (max(int(n), 1) for n in sizes)
                    on = _LARGER.get((source, row.device), row.device)
                    found.add(*_batch_answer(name, on, runtime, *known, row.precision))
                except PerfPassError as error:
                    found.not_asked[type(error).__name__] += 1
            yield found


def _served(root: Path) -> Verdicts:
    from perfpass.llm.memory import served
    from perfpass.training.serving.dataset import serving_of

    found = Verdicts("language models, aiconfigurator")
    rows = schema.read(root / "records" / "serving.parquet", "serving")
    models = {family: language_model(family) for family in rows.family.unique()}
    for row in rows.itertuples():
        if row.disaggregated and row.decode_workers < 1:
            found.not_asked["layout not stated"] += 1
            continue
        model = models[row.family]
        fit = served(model, device(row.device), serving_of(row, model))
        found.add(fit.answer, f"{row.family}, {row.device}, {row.configuration}")
    return found
