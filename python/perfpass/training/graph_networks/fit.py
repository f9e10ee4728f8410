"""The fit loop of graph networks: Adam, Huber loss where there is a label, early stopping, a journal to go on from."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from perfpass.predictors.learned import arrays as weights
from perfpass.training.graph_networks.data import Scaled
from perfpass.training.graph_networks.modules import ClassTensors, Network
from perfpass.whole_file import write_whole


@dataclass(frozen=True)
class Settings:
    """How a network is fitted.

    ``graphs_per_step`` distinct (network, batch) a step, with all their rows; ``schedule``: constant, or cosine
    (warmed up over 5 % of the steps, then down to 0); ``huber_delta`` in natural logarithms of the measured value, from
    where the loss grows linearly; ``patience``: epochs without a better validation error before it stops;
    ``half``: matrix products of the graph layers in bfloat16.
    """

    learning_rate: float = 2e-3
    epochs: int = 20
    graphs_per_step: int = 32
    schedule: str = "cosine"
    huber_delta: float = 0.2
    patience: int = 20
    weight_decay: float = 0.0
    half: bool = True


@dataclass(frozen=True, eq=False)
class Outcome:
    """``weights`` of the best epoch by validation; ``history``: one dict per epoch."""

    weights: dict[str, np.ndarray]
    history: list[dict[str, float]]


def fit(
    network: Network,
    train: Scaled,
    valid: Scaled,
    target_scale: np.ndarray,
    settings: Settings,
    *,
    seed: int = 0,
    journal: Path | None = None,
    quiet: bool = True,
) -> Outcome:
    """Fit in place and return the best weights. On a GPU where there is one.

    ``journal``: a safetensors file with the state after every epoch; a run that finds one of the same settings goes on
    from there and ends as if it had not been interrupted.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    network.to(device)
    optimizer = torch.optim.Adam(
        network.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay, eps=1e-8
    )
    learned_from = hashlib.sha256(train.targets.tobytes() + train.statics.tobytes()).hexdigest()
    run = _Run(network, optimizer, {**asdict(settings), "seed": seed, "rows": learned_from}, journal)
    graphs = np.unique(train.graph)
    by_graph = np.argsort(train.graph, kind="stable")
    starts = np.searchsorted(train.graph[by_graph], graphs)
    rows_of = dict(zip(graphs.tolist(), np.split(by_graph, starts[1:]), strict=True))
    steps = -(-len(graphs) // settings.graphs_per_step)
    scale = torch.from_numpy(target_scale.astype(np.float32)).to(device)
    while run.epoch < settings.epochs and run.waited < settings.patience:
        started = time.perf_counter()
        # Each epoch's draws depend on the seed and its number alone, so that an interrupted run draws the same.
        order = np.random.default_rng((seed, run.epoch)).permutation(graphs)
        torch.manual_seed(seed * 10_007 + run.epoch)
        network.train()
        losses = []
        for step, chosen in enumerate(np.array_split(order, steps)):
            for group in optimizer.param_groups:
                group["lr"] = _rate(settings, run.epoch + step / steps)
            rows = np.concatenate([rows_of[g] for g in chosen.tolist()])
            loss = _loss(network, train, rows, scale, settings, device)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            losses.append(float(loss.detach()))
        error = validation_error(network, valid, target_scale, settings, device)
        run.ended(float(np.mean(losses)), error, time.perf_counter() - started)
        if not quiet:
            print(json.dumps(run.history[-1]), file=sys.stderr, flush=True)
    network.load(run.best)
    return Outcome(run.best, run.history)


def _rate(settings: Settings, epoch: float) -> float:
    if settings.schedule == "constant":
        return settings.learning_rate
    at, warm = epoch / settings.epochs, 0.05
    falling = 0.5 * (1 + np.cos(np.pi * max(at - warm, 0.0) / (1 - warm)))
    return float(settings.learning_rate * min((at + 1e-3) / warm, 1.0) * falling)


def _forward(
    network: Network, data: Scaled, rows: np.ndarray, settings: Settings, device: torch.device
) -> torch.Tensor:
    statics = torch.from_numpy(data.statics[rows]).to(device)
    if not len(network.graph):
        return network.from_embedding(statics.new_zeros((len(rows), 0)), statics)
    union, place = data.batch(rows)
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=settings.half):
        embedding = network.readout(ClassTensors.of(union, device))
    return network.from_embedding(embedding[torch.from_numpy(place).to(device)], statics)


def _loss(
    network: Network, data: Scaled, rows: np.ndarray, scale: torch.Tensor, settings: Settings, device: torch.device
) -> torch.Tensor:
    """Huber loss of the labels that are there, in natural logarithms over delta, so that its size is that of 1."""
    wanted = torch.from_numpy(data.targets[rows]).to(device)
    there = ~wanted.isnan()
    error = (_forward(network, data, rows, settings, device) - wanted.nan_to_num()) * scale / settings.huber_delta
    losses = nn.functional.huber_loss(error, torch.zeros_like(error), reduction="none")
    return (losses * there).sum() / there.sum().clamp(min=1)


def validation_error(
    network: Network, data: Scaled, target_scale: np.ndarray, settings: Settings, device: torch.device
) -> float:
    """Mean absolute percentage error of the labels that are there."""
    network.eval()
    order = np.argsort(data.graph, kind="stable")
    total, count = 0.0, 0
    with torch.no_grad():
        for rows in np.array_split(order, max(1, len(order) // 512)):
            found = _forward(network, data, rows, settings, device).cpu().numpy()
            log_error = np.clip((found - data.targets[rows]) * target_scale, -20.0, 20.0)
            there = np.isfinite(log_error)
            total += float(np.abs(np.expm1(log_error[there])).sum())
            count += int(there.sum())
    return total / max(count, 1)


class _Run:
    """Where a fit stands; in the journal after every epoch."""

    def __init__(
        self, network: Network, optimizer: torch.optim.Optimizer, made_by: dict[str, Any], journal: Path | None
    ) -> None:
        self.network, self.optimizer, self.journal = network, optimizer, journal
        self.made_by = json.dumps({**made_by, "spec": network.spec.to_dict()}, sort_keys=True)
        self.epoch, self.waited, self.history = 0, 0, list[dict[str, float]]()
        self.best = network.weights()
        self.least = np.inf
        if journal is not None and journal.is_file():
            self._resume(journal)

    def ended(self, loss: float, error: float, seconds: float) -> None:
        """Note an epoch."""
        self.epoch += 1
        self.history.append({"epoch": self.epoch, "loss": loss, "valid": error, "seconds": round(seconds, 2)})
        self.waited += 1
        if error < self.least:
            self.best, self.least, self.waited = self.network.weights(), error, 0
        if self.journal is not None:
            self._write(self.journal)

    def _write(self, journal: Path) -> None:
        arrays = {f"now.{name}": values for name, values in self.network.weights().items()}
        arrays |= {f"best.{name}": values for name, values in self.best.items()}
        for i, state in self.optimizer.state_dict()["state"].items():
            arrays |= {f"adam.{i}.{name}": values.cpu().numpy() for name, values in state.items()}
        notes = {"made_by": self.made_by, "history": json.dumps(self.history), "waited": str(self.waited)}
        journal.parent.mkdir(parents=True, exist_ok=True)
        write_whole(journal, weights.pack(arrays, notes))

    def _resume(self, journal: Path) -> None:
        content = journal.read_bytes()
        notes = weights.metadata(content, str(journal))
        if notes.get("made_by") != self.made_by:
            return
        arrays = weights.unpack(content, str(journal))

        def under(prefix: str) -> dict[str, Any]:
            return {n.removeprefix(prefix): np.array(v) for n, v in arrays.items() if n.startswith(prefix)}

        self.network.load(under("now."))
        self.best = under("best.")
        self.history, self.waited = json.loads(notes["history"]), int(notes["waited"])
        self.epoch, self.least = len(self.history), min(entry["valid"] for entry in self.history)
        states: dict[int, dict[str, torch.Tensor]] = {}
        for name, values in under("adam.").items():
            index, part = name.split(".")
            states.setdefault(int(index), {})[part] = torch.from_numpy(values)
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": states})
