"""One question through every door: a file, its bytes, a module, a graph, a template, many at once, the command."""

from __future__ import annotations

import contextlib
import io
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import perfpass
from perfpass.cli import main
from perfpass.predictors import predict_graph
from perfpass.predictors.serving.prediction import LlmPrediction
from perfpass.search import Candidate, Scorer, Template

from . import judge, networks, scenes
from .questions import Figures, Run, Served, ask, of_prediction

MODULES = ("resnet18", "squeezenet1_1", "vgg11")
FILES = ("resnet50.onnx", "vit_base_patch16_224.onnx", "llama_1b_prefill.onnx")
_HOW = ("precision", "runtime", "layout", "mode", "optimizer", "processes")
_METRICS = ("latency_ms", "throughput_per_s", "peak_memory_bytes", "energy_j", "power_w")


def _path(run: Run) -> str:
    return str(networks.EXAMPLES / run.network)


def _how(run: Run) -> dict[str, Any]:
    return {name: getattr(run, name) for name in _HOW}


def _file(run: Run) -> Figures:
    found = perfpass.predict(_path(run), run.device, batch=run.batch, calibration=False, **_how(run))
    return of_prediction(found).figures


def _bytes(run: Run) -> Figures:
    with open(_path(run), "rb") as file:
        model = file.read()
    found = perfpass.predict(model, run.device, batch=run.batch, calibration=False, **_how(run))
    return of_prediction(found).figures


def _template(run: Run) -> Figures:
    graph = Template(_path(run)).at(run.batch)
    found = predict_graph(graph, run.device, batch=run.batch, calibration=False, **_how(run))
    return of_prediction(found).figures


def _scorer(run: Run) -> Figures:
    """Among others, on two devices at once."""
    scorer = Scorer([run.device, "h100"], calibration=False, **_how(run))
    models = [Candidate(_path(run), batch=b) for b in (run.batch + 1, run.batch, 1)]
    scores = scorer.score(models)
    return {
        f"{name}.{part}": float(getattr(getattr(scores, name), part)[1, 0])
        for name in _METRICS
        for part in ("median", "low", "high")
    }


def _printed(arguments: list[str]) -> dict[str, Any]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main(arguments)
    assert code == 0, f"perfpass {' '.join(arguments)} ends with {code}"
    return json.loads(out.getvalue())


def _intervals(document: dict[str, Any], names: tuple[str, ...]) -> Figures:
    return {f"{n}.{p}": document[n][p] for n in names if document[n] for p in ("median", "low", "high")}


def _command(run: Run) -> Figures:
    arguments = ["predict", _path(run), "--json", "--device", run.device, "--batch", str(run.batch)]
    for name, value in _how(run).items():
        if value is not None:
            arguments += [f"--{name}", str(value)]
    return _intervals(_printed(arguments), _METRICS)


def _served_command(asked: Served) -> Figures:
    arguments = ["llm", asked.model, "--json"]
    for name, value in asdict(asked).items():
        if value is not None and name != "model":
            arguments += [f"--{name.replace('_', '-')}", str(value)]
    document = _printed(arguments)
    return _intervals(document, LlmPrediction.INTERVALS)


def _module(run: Run) -> Figures:
    model, how = networks.module(run.network), _how(run)
    found = perfpass.predict(model, run.device, batch=run.batch, input_shape=(3, 224, 224), calibration=False, **how)
    figures = of_prediction(found).figures
    # Of a training step the allocations of a module's own step are replayed, which a graph does not tell.
    return {k: v for k, v in figures.items() if run.mode == "inference" or "memory" not in k}


DOORS: tuple[Callable[[Run], Figures], ...] = (_file, _bytes, _template, _scorer, _command)


def runs(draws: int, seed: int = 0) -> Iterator[Run]:
    """Runs of exported files, on devices and in ways of every kind."""
    for i in range(draws):
        draw = random.Random(f"doors {seed} {i}")
        yield scenes.run_of(draw, networks=FILES)


def judge_doors(draws: int, verdicts: dict[str, judge.Verdict], seed: int = 0) -> None:
    """Compares every door with the graph's."""
    for run in runs(draws, seed):
        found = ask(run)
        if isinstance(found, str):
            verdicts.setdefault("doors", judge.Verdict()).refused += 1
            continue
        for door in DOORS:
            judge.same("doors", run, found.figures, door(run), verdicts)
        judge.same("again", run, found.figures, run.answer().figures, verdicts)
    for i in range(draws // 4):
        run = scenes.run_of(random.Random(f"modules {seed} {i}"), networks=MODULES)
        found = ask(run)
        assert not isinstance(found, str)
        judge.same("doors", run, found.figures, _module(run), verdicts)
        asked = scenes.served(random.Random(f"doors {seed} {i}"))
        found = ask(asked)
        assert not isinstance(found, str)
        judge.same("doors", asked, found.figures, _served_command(asked), verdicts)
        judge.same("again", asked, found.figures, asked.answer().figures, verdicts)
