"""Encoders by seed, learned once and kept; `python -m perfpass.training.published.trappm.pretrained` makes all."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path

from perfpass.records import graph_cache
from perfpass.training.graph_networks import held_out
from perfpass.training.published.trappm.autoencoder import ROUNDS, Encoder, Pretraining, pretrain, random_encoder
from perfpass.training.published.trappm.unlabelled import BATCHES, Unlabelled, networks
from perfpass.training.tasks import tasks
from perfpass.training.tasks.graphs import Graphs, Key

SEEDS: tuple[int, ...] = (1337, 1338, 1339, 1340, 1341)


def learned_from(graphs: Graphs, *, everything: bool = False) -> list[Key]:
    """The networks that the encoder sees: those that are held out only where ``everything`` is asked for."""
    held = frozenset().union(*held_out.architectures(graphs).values())
    known = networks(graphs)
    rows = tasks.load("latency")
    out = {key for key, name in zip(rows.keys, rows.rows.architecture, strict=True) if name in held}
    # The same network at another size, or under the name that another task has for it, is no other network.
    names = {model for _, model, _ in out}
    return known if everything else [key for key in known if key[1] not in names]


@lru_cache(maxsize=2)
def _unlabelled(graphs: Graphs, everything: bool) -> Unlabelled:
    return Unlabelled(graphs, learned_from(graphs, everything=everything), ROUNDS)


@lru_cache(maxsize=16)
def encoder(
    graphs: Graphs, shape: Pretraining, seed: int, *, everything: bool = False, untrained: bool = False
) -> Encoder:
    """From the cache, or pre-trained now: minutes on one core. ``untrained``: weights as initialised."""
    keys = learned_from(graphs, everything=everything)
    made_by = json.dumps([asdict(shape), keys, BATCHES, untrained], sort_keys=True)
    name = f"trappm-{hashlib.sha256(made_by.encode()).hexdigest()[:12]}-{seed}"
    folder = graph_cache.directory().parent / "pretrained"
    file = folder / f"{name}.safetensors"
    if file.is_file():
        return Encoder.read(file)
    unlabelled = _unlabelled(graphs, everything)
    if untrained:
        found = random_encoder(unlabelled, shape, seed)
    else:
        print(f"pre-training on {len(unlabelled)} graphs", file=sys.stderr)
        journal: Path = folder / f"{name}.unfinished"
        found = pretrain(unlabelled, shape, seed=seed, journal=journal, quiet=False)
        journal.unlink(missing_ok=True)
    found.write(file)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Pre-train what the cache lacks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--everything", action="store_true", help="also the networks that are held out for grading")
    options = parser.parse_args(arguments)
    graphs = Graphs()
    for seed in options.seeds:
        found = encoder(graphs, Pretraining(), seed, everything=options.everything)
        print(f"seed {seed}: {found.graphs} graphs seen, loss {found.history[-1]['loss']:.3f}", flush=True)


if __name__ == "__main__":
    main()
