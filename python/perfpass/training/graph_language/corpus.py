"""Networks as the graph + language model sees them: classes of nodes, totals, texts; kept on disk."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfpass.errors import PerfPassError
from perfpass.predictors import graph_text
from perfpass.predictors.graph_classes import Classes, partition
from perfpass.predictors.graph_language import ROUNDS, TOTALS, node_columns
from perfpass.records import graph_cache

if TYPE_CHECKING:
    from perfpass.training.comparison.graphs import Graphs, Key

VERSION = 2
# (network, batch)
Pair = tuple["Key", int]


def folder() -> Path:
    """Where prepared graphs and trained stages are kept, outside the repository; deleting it costs minutes."""
    return graph_cache.directory().parent / "graph-language"


@dataclass(frozen=True, eq=False)
class Corpus:
    """P pairs of network and batch: ``parts`` [P] of classes, ``totals`` [P, 10], ``summaries``, ``structures``."""

    pairs: list[Pair]
    parts: list[Classes]
    totals: np.ndarray
    summaries: list[str]
    structures: list[str]

    def __len__(self) -> int:
        return len(self.pairs)

    def place(self) -> dict[Pair, int]:
        """The place of each pair."""
        return {p: i for i, p in enumerate(self.pairs)}


def prepare(pairs: Iterable[Pair], graphs: Graphs, *, quiet: bool = False) -> Corpus:
    """The corpus of these pairs, from disk where it was prepared before, without networks that cannot be traced."""
    wanted = sorted(set(pairs))
    name = hashlib.sha256(repr((VERSION, ROUNDS, wanted)).encode()).hexdigest()[:16]
    file = folder() / f"graphs-{name}.npz"
    if file.is_file():
        return _read(file)
    found: list[Pair] = []
    parts, totals, summaries, structures = [], [], [], []
    for i, (key, batch) in enumerate(wanted):
        try:
            graph = graphs.at(key, batch)
        except PerfPassError:
            continue
        from perfpass.features import extract

        features = extract(graph)
        nodes = features.nodes[:, node_columns()].astype(np.float16).astype(np.float32)
        divided = partition(nodes, features.edge_index, ROUNDS)
        found.append((key, batch))
        parts.append(divided.classes(nodes))
        totals.append(features.statics[:TOTALS])
        summaries.append(graph_text.summary(graph, features.statics[:TOTALS]))
        structures.append(graph_text.structure(graph, divided))
        if not quiet and (i + 1) % 500 == 0:
            print(f"prepared {i + 1} of {len(wanted)}", file=sys.stderr)
    corpus = Corpus(found, parts, np.array(totals), summaries, structures)
    _write(file, corpus)
    return corpus


def _write(file: Path, c: Corpus) -> None:
    text = "\0".join([*(f"{s}|{m}|{p}|{b}" for (s, m, p), b in c.pairs), *c.summaries, *c.structures])
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(f".{os.getpid()}.partial")
    with partial.open("wb") as out:
        np.savez(
            out,
            nodes=np.concatenate([p.nodes for p in c.parts]).astype(np.float16),
            count=np.concatenate([p.count for p in c.parts]),
            source=np.concatenate([p.source for p in c.parts]).astype(np.int32),
            target=np.concatenate([p.target for p in c.parts]).astype(np.int32),
            weight=np.concatenate([p.weight for p in c.parts]).astype(np.float32),
            classes=np.array([len(p) for p in c.parts]),
            edges=np.array([len(p.source) for p in c.parts]),
            totals=c.totals,
            text=np.frombuffer(text.encode(), dtype=np.uint8),
        )
    partial.replace(file)


def _read(file: Path) -> Corpus:
    with np.load(file, allow_pickle=False) as stored:
        a = {name: stored[name] for name in stored.files}
    ends, edge_ends = np.cumsum(a["classes"])[:-1], np.cumsum(a["edges"])[:-1]
    nodes, count = np.split(a["nodes"], ends), np.split(a["count"], ends)
    edges = [np.split(a[n], edge_ends) for n in ("source", "target", "weight")]
    parts = [
        Classes(x, n, s.astype(np.int64), t.astype(np.int64), w, np.zeros(len(x), dtype=np.int64))
        for x, n, s, t, w in zip(nodes, count, *edges, strict=True)
    ]
    text = a["text"].tobytes().decode().split("\0")
    size = len(parts)
    pairs: list[Pair] = []
    for line in text[:size]:
        source, model, pixels, batch = line.rsplit("|", 3)
        pairs.append(((source, model, int(pixels)), int(batch)))
    return Corpus(pairs, parts, a["totals"], text[size : 2 * size], text[2 * size :])
