"""The stages of training, each kept on disk: language model, masked autoencoding, graph-to-text, prediction.

A stage is named by everything that decides its weights, so a stopped study goes on where it was, and variants share
what they have in common.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from perfpass.errors import ArgumentError
from perfpass.predictors.published import graph_text
from perfpass.predictors.published import language_model as bases
from perfpass.training.graph_networks.data import task_runs
from perfpass.training.published.graph_language.corpus import Corpus, Unlabelled, folder, name_of, pairs_of, prepare
from perfpass.training.published.graph_language.encoder import Encoder, pretrain
from perfpass.training.published.graph_language.model import GraphLanguage, answer_text
from perfpass.training.published.graph_language.sentences import embeddings
from perfpass.training.published.graph_language.settings import Settings
from perfpass.training.tasks.graphs import Graphs
from perfpass.training.tasks.tasks import LANGUAGE_TASK, Task

# Of the program that makes stages: those of another are not read.
VERSION = 3
# Steps of the small language model on texts about graphs.
LANGUAGE_STEPS = 150
_TEXTS_OF_STRUCTURE = 600
_STRUCTURE_LETTERS = 400
_SUMMARIES = 16
_SUMMARY_TOKENS = 96


@dataclass(frozen=True, eq=False)
class Data:
    """The rows of a task: ``places`` [N] in the corpus, ``numbers`` [N, S], ``prompts``, ``target`` [N] (logs).

    ``unlabelled``: the graphs of the stages before prediction.
    """

    corpus: Corpus
    unlabelled: Unlabelled
    places: np.ndarray
    numbers: np.ndarray
    prompts: list[str]
    target: np.ndarray

    @classmethod
    def of(cls, task: Task, graphs: Graphs, unlabelled: Task | None = None) -> Data:
        """``unlabelled``: whose graphs the stages before prediction see (default: the latency records).

        Raises ArgumentError for a task of language models, or rows whose network cannot be traced.
        """
        if task.name == LANGUAGE_TASK:
            raise ArgumentError("the graph + language model is made for vision networks; llm has llm-trees and llm-gnn")
        pairs = pairs_of(task)
        corpus = prepare(pairs, graphs)
        place = corpus.place()
        missing = {p[0] for p in pairs if p not in place}
        if missing:
            raise ArgumentError(f"{len(missing)} networks cannot be traced, {min(missing)} is one; use Task.traced")
        places = np.array([place[p] for p in pairs])
        numbers = np.concatenate([corpus.totals[places], task_runs(task)], axis=1)
        training, asked = task.name != "latency", task.name.replace("_", " ")
        prompts = [
            graph_text.prompt(
                *(r.device, r.precision, r.runtime, r.layout, r.batch),
                training=training, optimizer=r.optimizer, asked=asked,
            )
            for r in task.rows.itertuples()
        ]  # fmt: skip
        return cls(corpus, Unlabelled(graphs, unlabelled), places, numbers, prompts, np.log(task.value))


@dataclass(frozen=True, eq=False)
class Scale:
    """Centre and spread of numbers and target, of the rows learned from."""

    numbers: tuple[np.ndarray, np.ndarray]
    target: tuple[float, float]

    @classmethod
    def of(cls, data: Data, rows: np.ndarray) -> Scale:
        """Spreads of columns that do not vary count as 1."""
        spread = data.numbers[rows].std(axis=0)
        numbers = data.numbers[rows].mean(axis=0), np.where(spread > 1e-6, spread, 1.0)
        return cls(numbers, (float(data.target[rows].mean()), float(data.target[rows].std())))


def place_of_work() -> str:
    """The GPU where there is one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def language_model(settings: Settings, unlabelled: Unlabelled, seed: int) -> bases.Base:
    """The base model: that of ``settings.base``, or the small one, trained on texts of the graphs once."""
    if settings.base:
        return bases.load(settings.base)
    name = hashlib.sha256(repr((bases.SMALL, bases.VOCABULARY, LANGUAGE_STEPS, seed, unlabelled.name)).encode())
    where = folder() / f"language-{name.hexdigest()[:16]}"
    if (where / "config.json").is_file():
        return bases.load(where, own=True)
    corpus = unlabelled.corpus
    texts = sorted(set(corpus.summaries))
    places = range(0, len(corpus), max(len(corpus) // _TEXTS_OF_STRUCTURE, 1))
    structures = sorted({corpus.structure(i)[:_STRUCTURE_LETTERS] for i in places})
    asked = [f"{graph_text.INSTRUCTION} {t}" for t in texts]
    return bases.train_small([*asked, *structures], where, LANGUAGE_STEPS, seed)


def encoder_weights(settings: Settings, unlabelled: Unlabelled, seed: int, place: str) -> dict[str, Tensor]:
    """The encoder after masked autoencoding, or as drawn where the settings leave that out."""
    steps = settings.masked_steps if settings.masked else 0
    file = _file("encoder", settings.hidden, settings.mask_share, steps, settings.rate, unlabelled.name, seed)

    def train() -> dict[str, Tensor]:
        torch.manual_seed(seed)
        encoder = Encoder(settings.hidden)
        encoder.scale_to(unlabelled.corpus)
        encoder.to(place)
        if steps:
            pretrain(encoder, unlabelled.corpus, steps, settings.mask_share, settings.rate, seed, place)
        return dict(encoder.state_dict())

    return _kept(file, train)


def start(settings: Settings, data: Data, seed: int) -> GraphLanguage:
    """The network after the pre-training stages that ``settings`` ask for."""
    place, seen = place_of_work(), data.unlabelled
    base = language_model(settings, seen, seed) if settings.needs_base else None
    sentences = None
    if settings.representation == "sentence":
        sentences = embeddings(data.corpus.summaries, settings.sentences, base)
    torch.manual_seed(seed)
    model = GraphLanguage(settings, data.corpus, data.numbers.shape[1], base, sentences).to(place)
    if model.encoder is not None:
        model.encoder.load_state_dict(encoder_weights(settings, seen, seed, place))
    if settings.summarised and settings.representation == "graph":
        shared = (settings.hidden, settings.tokens, settings.rank, settings.masked, settings.masked_steps)
        steps = (settings.summary_steps, settings.rate, settings.base)
        file = _file("summary", *shared, *steps, data.numbers.shape[1], seen.name, LANGUAGE_STEPS, seed)
        _load(model, _kept(file, lambda: _summarise(model, seen.corpus, settings, seed)))
    return model


def _summarise(model: GraphLanguage, corpus: Corpus, settings: Settings, seed: int) -> dict[str, Tensor]:
    """Graph-to-text: the token's projection and LoRA learn to say `summary`; the encoder is frozen."""
    assert model.base is not None and model.encoder is not None
    base = model.base
    learned = [*model.graph_token.parameters(), *(p for p in model.language.parameters() if p.requires_grad)]
    optimizer, schedule = _optimizer(learned, settings.rate, settings.summary_steps)
    draw = np.random.default_rng(seed)
    instruction = base.encode(graph_text.INSTRUCTION)
    for _ in range(settings.summary_steps):
        places = np.unique(draw.integers(0, len(corpus), _SUMMARIES))
        with torch.no_grad():
            codes = model.graphs(places, corpus)
        said = [base.encode(corpus.summaries[i])[:_SUMMARY_TOKENS] for i in places]
        count = len(places)
        loss = model.text_loss([()] * count, model.graph_token(codes), [instruction] * count, said)
        _step(loss, learned, optimizer, schedule)
    return {n: v for n, v in _learned(model).items() if n.startswith(("graph_token.", "language."))}


def fine_tune(
    model: GraphLanguage, data: Data, scale: Scale, rows: np.ndarray, steps: int, rate: float, seed: int,
    few: np.ndarray | None = None,
) -> None:  # fmt: skip
    """All parts learn to predict. ``few``: rows of a new device or family, from which half of every step is drawn."""
    s = model.settings
    learned = [p for p in model.parameters() if p.requires_grad]
    optimizer, schedule = _optimizer(learned, rate, steps)
    draw = np.random.default_rng(seed)
    texts = Texts(model, data)
    members = _by_place(data.places, rows)
    own = _by_place(data.places, few) if few is not None and len(few) else []
    model.train()
    for _ in range(steps):
        groups = [members[i] for i in draw.integers(0, len(members), s.networks // 2 if own else s.networks)]
        groups += [own[i] for i in draw.integers(0, len(own), s.networks // 2)] if own else []
        chosen = np.concatenate([g if len(g) <= s.rows else draw.choice(g, s.rows, replace=False) for g in groups])
        loss = _prediction_loss(model, data, scale, texts, chosen)
        _step(loss, learned, optimizer, schedule)
    model.eval()


def _prediction_loss(model: GraphLanguage, data: Data, scale: Scale, texts: Texts, rows: np.ndarray) -> Tensor:
    numbers = scaled_numbers(data, scale, rows, model.place)
    if model.settings.answer == "text":
        assert model.base is not None
        said = [model.base.encode(answer_text(v)) for v in data.target[rows]]
        before = [texts[r] for r in rows]
        return model.text_loss(before, model.soft(data.places[rows], numbers), [()] * len(before), said)
    wanted = torch.tensor((data.target[rows] - scale.target[0]) / scale.target[1], dtype=torch.float32)
    given = [texts[r] for r in rows] if model.language is not None else []
    return nn.functional.huber_loss(model(data.places[rows], numbers, given), wanted.to(model.place))


@torch.no_grad()
def predict(model: GraphLanguage, data: Data, scale: Scale, rows: np.ndarray) -> np.ndarray:
    """[len(rows)] logarithms; rows of one network together, so that it is encoded once."""
    texts = Texts(model, data)
    order = np.argsort(data.places[rows], kind="stable")
    out = np.empty(len(rows))
    for part in np.array_split(order, max(len(rows) // 128, 1)):
        chosen = rows[part]
        numbers = scaled_numbers(data, scale, chosen, model.place)
        if model.settings.answer == "text":
            out[part] = model.say([texts[r] for r in chosen], model.soft(data.places[chosen], numbers))
            continue
        given = [texts[r] for r in chosen] if model.language is not None else []
        scaled = model(data.places[chosen], numbers, given).cpu().numpy()
        out[part] = scaled * scale.target[1] + scale.target[0]
    return out


def scaled_numbers(data: Data, scale: Scale, rows: np.ndarray, place: str) -> Tensor:
    """[R, S] numbers as the network reads them."""
    values = (data.numbers[rows] - scale.numbers[0]) / scale.numbers[1]
    return torch.tensor(values, dtype=torch.float32, device=place)


class Texts:
    """The words of each row as tokens: the graph in words, where it stands so, then the prompt."""

    def __init__(self, model: GraphLanguage, data: Data) -> None:
        self._model, self._data = model, data
        self._known: dict[str, list[int]] = {}
        summaries: Callable[[int], str] = data.corpus.summaries.__getitem__
        kind = model.settings.representation
        self._about = {"text": summaries, "json": data.corpus.structure}.get(kind)

    def __getitem__(self, row: int) -> list[int]:
        prompt = self._encoded(self._data.prompts[row])
        if self._about is None:
            return prompt
        about = self._encoded(self._about(int(self._data.places[row])))
        return [*about[: self._model.settings.most_tokens], *prompt]

    def _encoded(self, text: str) -> list[int]:
        if text not in self._known:
            assert self._model.base is not None
            self._known[text] = self._model.base.encode(text)
        return self._known[text]


def trained_on(model: GraphLanguage, data: Data, scale: Scale, rows: np.ndarray, seed: int) -> None:
    """`fine_tune` on all of ``rows``, from disk where it was done before."""
    s = model.settings
    learned_from = hashlib.sha256(data.target[rows].tobytes() + data.numbers[rows].tobytes()).hexdigest()
    file = _file("tuned", s.key(), name_of(data.corpus.pairs), data.unlabelled.name, learned_from, LANGUAGE_STEPS, seed)

    def train() -> dict[str, Tensor]:
        fine_tune(model, data, scale, rows, s.steps, s.rate, seed)
        return _learned(model)

    _load(model, _kept(file, train))
    model.eval()


def _by_place(places: np.ndarray, rows: np.ndarray) -> list[np.ndarray]:
    order = rows[np.argsort(places[rows], kind="stable")]
    return np.split(order, np.flatnonzero(np.diff(places[order])) + 1)


def _optimizer(learned: list[Any], rate: float, steps: int) -> tuple[Any, Any]:
    optimizer = torch.optim.AdamW(learned, lr=rate, weight_decay=0.01)
    return optimizer, torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=rate, total_steps=steps, pct_start=0.15)


def _step(loss: Tensor, learned: list[Any], optimizer: Any, schedule: Any) -> None:
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(learned, 1.0)
    optimizer.step()
    schedule.step()


def _learned(model: GraphLanguage) -> dict[str, Tensor]:
    """What is not the frozen base: parameters that learn, and the scales of the features."""
    learned = {n: p.detach() for n, p in model.named_parameters() if p.requires_grad}
    return learned | {n: b for n, b in model.named_buffers() if n.startswith("encoder.")}


def _load(model: GraphLanguage, weights: dict[str, Tensor]) -> None:
    own = dict(model.named_parameters()) | dict(model.named_buffers())
    with torch.no_grad():
        for name, values in weights.items():
            own[name].copy_(values)


def _file(stage: str, *parts: object) -> Path:
    return folder() / f"{stage}-{hashlib.sha256(repr((VERSION, *parts)).encode()).hexdigest()[:16]}.safetensors"


def _kept(file: Path, train: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
    """The weights in ``file``, trained first where it is missing."""
    if not file.is_file():
        found = {n: v.detach().cpu().contiguous().clone() for n, v in train().items()}
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix(".partial")
        save_file(found, partial)
        partial.replace(file)
    return load_file(file)
