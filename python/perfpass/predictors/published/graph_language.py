"""The graph + language model: a graph as one soft token of a small language model, read with the run in words.

After Panner Selvam, Phothilimthana, Abu-El-Haija, Perozzi and Brorsson, "Can LLMs Enhance Performance Prediction for
Deep Learning Models?" (WANT workshop, ICML 2024). The shipped language model is small, of the Llama architecture,
trained from scratch on texts about graphs (docs/research/graph-language.md); it is scored with NumPy
alone. A model trained on
another base (`--base`) needs torch, transformers and that base when it predicts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.errors import ArtefactError, UnsupportedError, needs
from perfpass.features import extract, names
from perfpass.predictors.learned import artefacts
from perfpass.predictors.published import answer as graph_predictor
from perfpass.predictors.published import graph_text
from perfpass.predictors.published.answer import Learned
from perfpass.predictors.published.bpe import Tokenizer
from perfpass.predictors.published.graph_classes import Classes, classes
from perfpass.predictors.published.run_features import RUN_FEATURES, run_features
from perfpass.predictors.published.small_llama import Shape, last_hidden

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.graph import OpGraph
    from perfpass.prediction import Prediction

# Layers of the encoder, so rounds of refinement.
ROUNDS = 5
# Statics of the operator schema that a run's numbers begin with: six costs, nodes, edges, depth, batch; logarithms.
TOTALS = 10
# These number the nodes: no two of them would be alike.
_NUMBERING = ("position", "depth")
_OPERATOR = "operator"
_EPSILON = 1e-5


@dataclass(frozen=True)
class Run:
    """How a network runs inference; names as in the records."""

    device: Device
    batch: int
    precision: str = "amp"
    runtime: str = "torch"
    layout: str = "nchw"

    def prompt(self) -> str:
        """The run in words, and the question."""
        return graph_text.prompt(self.device.id, self.precision, self.runtime, self.layout, self.batch)

    def figures(self) -> np.ndarray:
        """[len(RUN_FEATURES)] the device and the run as numbers, the same as of every compared predictor."""
        return run_features(
            self.device, mode="inference", precision=self.precision, runtime=self.runtime, layout=self.layout
        )


@lru_cache(maxsize=1)
def node_columns() -> list[int]:
    """Columns of the operator schema that the encoder reads."""
    return [i for i, n in enumerate(names("operator")[0]) if n not in _NUMBERING]


@lru_cache(maxsize=1)
def operator_column() -> int:
    """Place of the operator's number among `node_columns`."""
    return [names("operator")[0][i] for i in node_columns()].index(_OPERATOR)


def described(graph: OpGraph) -> tuple[Classes, np.ndarray]:
    """Classes of a graph's nodes, and its totals [TOTALS]."""
    found = extract(graph)
    return classes(found.nodes[:, node_columns()], found.edge_index, ROUNDS), found.statics[:TOTALS]


def embed(weights: Mapping[str, np.ndarray], graph: Classes) -> np.ndarray:
    """[G, H] the mean of the encoder's last layer over the nodes of each graph; ``graph`` of `ROUNDS` rounds."""
    numbers = (graph.nodes - weights["encoder.centre"]) / weights["encoder.spread"]
    number = graph.nodes[:, operator_column()].astype(np.int64)
    h = numbers @ weights["encoder.read.weight"].T + weights["encoder.read.bias"]
    h = h + weights["encoder.operator.weight"][number]
    for layer in range(ROUNDS):
        name, at = f"encoder.layers.{layer}.", graph.levels[layer + 1]
        joined = h[at.previous] + at.sum(h[at.source] * at.weight[:, None])
        inner = np.maximum(joined @ weights[name + "gin.lins.0.weight"].T + weights[name + "gin.lins.0.bias"], 0.0)
        outer = inner @ weights[name + "gin.lins.1.weight"].T + weights[name + "gin.lins.1.bias"]
        centred = outer - outer.mean(axis=1, keepdims=True)
        normed = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + _EPSILON)
        h = np.maximum(normed * weights[name + "norm.weight"] + weights[name + "norm.bias"], 0.0)
    total = np.zeros((graph.graphs, h.shape[1]), dtype=np.float64)
    np.add.at(total, graph.graph, h * graph.count[:, None])
    return (total / np.bincount(graph.graph, weights=graph.count, minlength=graph.graphs)[:, None]).astype(np.float32)


class GraphLanguagePredictor:
    """Latency of vision networks from a trained artefact; NumPy alone for the shipped one."""

    def __init__(self, folder: Path | str | None = None) -> None:
        """Reads the shipped artefact, or the one in ``folder``. Raises ArtefactError, and UnsupportedError where the
        artefact stands on a base model that cannot be loaded here.
        """
        artefact = artefacts.Artefact(folder or artefacts.shipped("graph-language"))
        self.manifest = artefact.manifest
        columns = [names("operator")[0][i] for i in node_columns()]
        expected = {"predictor": "graph-language", "node_columns": columns, "run_features": [*RUN_FEATURES]}
        self._weights = graph_predictor.arrays(artefact, "graph-language", expected)
        try:
            self._scale = {n: np.array(self.manifest["numbers"][n], dtype=np.float64) for n in ("centre", "spread")}
            self._target = self.manifest["target"]
            self._shape = Shape.from_dict(self.manifest["language_model"]) if self.manifest["base"] == "own" else None
            self.learned = Learned("graph-language", self.manifest["tasks"])
        except (KeyError, TypeError, ValueError) as error:
            raise ArtefactError(
                f"{artefact.folder}: {error} is missing or wrong; run `perfpass train` again"
            ) from error
        if self._shape is None:
            self._torch = _with_base(artefact, self.manifest)
        else:
            self._tokenizer = Tokenizer(artefact.read("tokenizer.json"), str(artefact.folder))

    @staticmethod
    @lru_cache(maxsize=1)
    def load() -> GraphLanguagePredictor:
        """The shipped predictor, read once per process."""
        return GraphLanguagePredictor()

    def latency_ms(self, graph: OpGraph, run: Run) -> float:
        """Of ``graph``, counted at the run's batch size."""
        part, totals = described(graph)
        return float(graph_predictor.from_log(self.log_latency(embed(self._weights, part), totals[None], [run]))[0])

    def log_latency(self, embedding: np.ndarray, totals: np.ndarray, runs: list[Run]) -> np.ndarray:
        """[R] log of milliseconds, from the embeddings [R, H] and totals [R, TOTALS] of the runs' graphs."""
        numbers = np.concatenate([totals, np.array([r.figures() for r in runs])], axis=1)
        numbers = ((numbers - self._scale["centre"]) / self._scale["spread"]).astype(np.float32)
        prompts = [r.prompt() for r in runs]
        scaled = self._own(embedding, numbers, prompts) if self._shape else self._torch(embedding, numbers, prompts)
        return np.asarray(scaled * self._target["spread"] + self._target["centre"])

    def _own(self, embedding: np.ndarray, numbers: np.ndarray, prompts: list[str]) -> np.ndarray:
        w = self._weights
        assert self._shape is not None
        graph = embedding @ w["graph_token.weight"].T + w["graph_token.bias"]
        inner = np.maximum(numbers @ w["run_token.0.weight"].T + w["run_token.0.bias"], 0.0)
        run = inner @ w["run_token.2.weight"].T + w["run_token.2.bias"]
        tokens = [self._tokenizer.encode(p) for p in prompts]
        out = np.empty(len(prompts))
        for length in sorted({len(t) for t in tokens}):
            rows = [i for i, t in enumerate(tokens) if len(t) == length]
            words = w["language.embed_tokens.weight"][np.array([tokens[i] for i in rows], dtype=np.int64)]
            read = np.concatenate([words, graph[rows, None], run[rows, None]], axis=1)
            language = {n.removeprefix("language."): v for n, v in w.items() if n.startswith("language.")}
            state = last_hidden(self._shape, language, read)
            out[rows] = (state @ w["head.weight"].T + w["head.bias"])[:, 0]
        return out


def _with_base(artefact: artefacts.Artefact, manifest: dict[str, Any]) -> Any:
    """Scoring on a base model, by torch. Raises UnsupportedError where torch, transformers, peft or the base lack."""
    with needs("base-model", f"{artefact.folder}, which stands on the base model {manifest['base']},"):
        from perfpass.predictors.published.language_model import scorer
    return scorer(artefact)


def answer(found: Prediction, graph: OpGraph, device: Device) -> Prediction:
    """``found`` with the latency of inference that graph-language says. Raises UnsupportedError for training."""
    w = found.workload
    if w["mode"] != "inference":
        raise UnsupportedError(
            "graph-language answers the latency of inference; for training steps take `--predictor dippm` or none"
        )
    predictor = GraphLanguagePredictor.load()
    run = Run(device, w["batch"], w["precision"], w["runtime"], w["layout"])
    latency = predictor.latency_ms(graph, run)
    return graph_predictor.answered(found, predictor.learned, predictor.manifest, latency, None)
