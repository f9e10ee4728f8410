"""Claims of the literature held against the studies beside the table: TraPPM, language models, graph + language."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfpass.errors import FileError
from perfpass.study.findings import TIE


def studied(folder: Path) -> list[dict[str, str]]:
    """Claims that the studies' results in ``folder`` speak of. Raises FileError for a file that cannot be read."""
    found = []
    for name, said in (("trappm", _pretraining), ("llm", _trees), ("graph_language", _tokens)):
        path = folder / f"{name}.json"
        if path.is_file():
            try:
                found += said(json.loads(path.read_text(encoding="utf-8")))
            except (OSError, ValueError, KeyError) as error:
                raise FileError(f"{path}: not the result of its study ({error}); run the study again") from error
    return found


def _verdict(pairs: list[tuple[float, float]]) -> str:
    """Of (claimed better, worse) errors."""
    wins = sum(better * TIE < worse for better, worse in pairs)
    if wins == len(pairs):
        return "confirmed"
    return f"mixed ({wins} of {len(pairs)})" if wins else "refuted"


def _claim(claim: str, verdict: str, sentence: str) -> dict[str, str]:
    return {"claim": claim, "verdict": verdict, "sentence": sentence}


def _pretraining(found: Mapping[str, Any]) -> list[dict[str, str]]:
    epochs = {kind: statistics.mean(found["convergence"]["epochs_to_reach"][kind]) for kind in _ENCODERS}
    errors = {kind: 100 * found["methods"][kind]["mean"] for kind in _ENCODERS}
    new = {kind: found["transfer"][kind] for kind in _ENCODERS}
    pairs = [(new["trappm"][n], new["trappm-random"][n]) for n in new["trappm"] if n != "0"]
    shown = ", ".join(
        f"{n} records {100 * new['trappm'][n]:.0f} against {100 * new['trappm-random'][n]:.0f} %" for n in new["trappm"]
    )
    seeds = f"{len(found['seeds'])} seeds"
    return [
        _claim(
            "Pre-training helps convergence (TraPPM)",
            _verdict([(epochs["trappm"], epochs["trappm-random"])]),
            f"Training steps of unseen architectures, {seeds}: {epochs['trappm']:.1f} epochs to a common error against "
            f"{epochs['trappm-random']:.1f} with an encoder that learned nothing; MAPE in the end "
            f"{errors['trappm']:.1f} against {errors['trappm-random']:.1f} %.",
        ),
        _claim(
            "Pre-training helps on a second GPU (TraPPM)",
            _verdict(pairs),
            f"From an RTX 2080 Ti to an RTX 3090, mean of {seeds}: {shown}.",
        ),
    ]


_ENCODERS = ("trappm", "trappm-random")


def _trees(found: Mapping[str, Any]) -> list[dict[str, str]]:
    named = found["variants"]
    trees, network = (
        next(v for k, v in named.items() if k.startswith(start) and k.endswith(end))
        for start, end in (("trees", "hardware (ships)"), ("graph network", "hardware"))
    )
    pairs = {kind: (trees[kind]["mape_pct"], network[kind]["mape_pct"]) for kind in trees}
    shown = ", ".join(f"{kind} {a:.1f} against {b:.1f} %" for kind, (a, b) in pairs.items())
    ms = found["speed_ms"]
    one = ms["trees: table"] + ms["trees: scored in the core"]
    graphs = ms["graph network: graphs of a traced model"]
    classes, whole = (
        (graphs + ms[f"graph network: forward, on {what}"]) / one for what in ("classes of nodes", "the whole graph")
    )
    return [
        _claim(
            "Trees are better than a graph network for language models",
            _verdict([*pairs.values()]),
            f"Held out and MAPE, both with hardware: {shown}.",
        ),
        _claim(
            "Trees are quicker than a graph network for language models",
            "confirmed" if classes > 1 else "refuted",
            f"From a traced model to its time {classes:.0f} times on classes of nodes, {whole:.0f} on whole graphs.",
        ),
    ]


def _tokens(found: Mapping[str, Any]) -> list[dict[str, str]]:
    of = {(r["split"], r["variant"]): r["mape_pct"] for r in found["results"]}
    kinds = ("graph token", "text", "JSON", "no graph")
    errors = {kind: of["architecture", kind] for kind in kinds}
    out = [
        _claim(
            "Graph tokens are better than text, in a study of their own",
            _verdict([(errors["graph token"], errors[kind]) for kind in kinds[1:]]),
            "Unseen architectures: " + ", ".join(f"{kind} {value:.1f} %" for kind, value in errors.items()) + ".",
        )
    ]
    for records in ("0", "32"):
        pairs = {
            split: (of[split, "graph token"], of[split, "graph token, no pre-training"])
            for split, variant in of
            if variant == "graph token" and split.endswith(f", {records} records")
        }
        if pairs:
            shown = "; ".join(
                f"{split.partition(',')[0]}: {a:.1f} against {b:.1f} %" for split, (a, b) in pairs.items()
            )
            out.append(
                _claim(
                    f"Pre-training stages help adaptation, {records} records",
                    _verdict([*pairs.values()]),
                    f"With against without them, one seed: {shown}.",
                )
            )
    return out
