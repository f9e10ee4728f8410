"""The graph + language model that ships: trained on architectures of the training split, weights in 16 bits."""

from __future__ import annotations

import copy
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.errors import UnsupportedError
from perfpass.features import names
from perfpass.predictors.learned import artefacts
from perfpass.predictors.learned.arrays import pack
from perfpass.predictors.published.graph_language import node_columns
from perfpass.predictors.published.run_features import RUN_FEATURES
from perfpass.training.graph_networks.grading import grade
from perfpass.training.published.graph_language.corpus import traced
from perfpass.training.published.graph_language.methods import FittedGraphLanguage, GraphLanguageMethod
from perfpass.training.published.graph_language.settings import PUBLISHED, Settings
from perfpass.training.tasks.graphs import Graphs
from perfpass.training.tasks.tasks import Task, load

# Steps of what ships; the studies take fewer.
STEPS = 1500


def train(
    name: str,
    records: str | None = None,
    output: str | None = None,
    *,
    seed: int = 0,
    quiet: bool = False,
    base: str = "",
    published: bool = False,
    steps: int = STEPS,
) -> Path:
    """Fit on the training architectures of the latency records and write the artefact; returns its folder.

    ``base``: the folder of a causal language model in the place of the small one; what is written then needs that
    folder, torch, transformers and peft to predict. ``published``: the published size of the encoder. Bounds come
    from the errors on the architectures of validation. An interrupted run goes on from the stages that it finished.
    """
    if name != "graph-language":
        raise UnsupportedError(f"{name} is a variant for comparison; what ships is graph-language")
    settings = replace(PUBLISHED if published else Settings(), base=base, steps=steps)
    task = traced(load("latency", records))
    return write(task, Graphs(), settings, Path(output) if output else None, seed=seed, quiet=quiet)


def write(
    task: Task, graphs: Graphs, settings: Settings, output: Path | None, *, seed: int = 0, quiet: bool = False
) -> Path:
    """Fit on a task's architecture split and write the artefact."""
    started = time.process_time()
    split = next(s for s in task.splits(seed) if s.name == "architecture")
    fitted: FittedGraphLanguage = GraphLanguageMethod("graph-language", settings).fit(task, graphs, split, seed)
    fit_s = time.process_time() - started
    manifest, files = contents(fitted, settings)
    graded = grade(fitted.predict, task, split)
    manifest["tasks"] = {"latency": graded}
    manifest["corpus"] = {"name": "timm and pytorch-gpu-benchmark, inference", "rows": len(split.train)}
    place = output or artefacts.shipped("graph-language")
    artefacts.write(place, manifest, files)
    if not quiet:
        size = sum(map(len, files.values())) / 1e6
        print(f"wrote {place}: {size:.2f} MB, {fit_s:.0f} s, held out {graded['test']}", file=sys.stderr)
    return place


def contents(fitted: FittedGraphLanguage, settings: Settings) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Manifest and files of a fitted model; LoRA is merged into the small language model, else kept apart."""
    model, scale = fitted.model, fitted.scale
    assert model.base is not None
    own = model.base.own
    weights = {
        n: v.detach().cpu().numpy()
        for n, v in model.state_dict().items()
        if n.startswith(("encoder.", "graph_token.", "run_token.", "head."))
    }
    manifest: dict[str, Any] = {
        "predictor": "graph-language",
        "base": "own" if own else str(model.base.folder),
        "rank": settings.rank,
        "settings": asdict(settings),
        "node_columns": [names("operator")[0][i] for i in node_columns()],
        "run_features": list(RUN_FEATURES),
        "numbers": {"centre": scale.numbers[0].tolist(), "spread": scale.numbers[1].tolist()},
        "target": {"centre": scale.target[0], "spread": scale.target[1]},
    }
    files: dict[str, bytes] = {}
    if own:
        merged = copy.deepcopy(model.language).merge_and_unload()
        weights |= {f"language.{n}": v.detach().cpu().numpy() for n, v in merged.model.state_dict().items()}
        c = merged.config
        sizes = {"hidden": c.hidden_size, "layers": c.num_hidden_layers, "heads": c.num_attention_heads}
        theta = c.rope_parameters["rope_theta"]
        manifest["language_model"] = {
            **sizes,
            "intermediate": c.intermediate_size,
            "epsilon": c.rms_norm_eps,
            "theta": theta,
        }
        files["tokenizer.json"] = (model.base.folder / "tokenizer.json").read_bytes()
    else:
        import peft

        adapters = peft.get_peft_model_state_dict(model.language)
        weights |= {f"lora.{n}": v.detach().cpu().numpy() for n, v in adapters.items()}
    # Scales of features span more than half precision holds.
    kept = ("encoder.centre", "encoder.spread")
    files["weights.safetensors"] = pack(
        {n: v.astype(np.float32 if n in kept else np.float16) for n, v in weights.items()}
    )
    return manifest, files
