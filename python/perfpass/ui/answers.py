"""The page's questions, answered by the functions that `perfpass.serve` and the command line ask, as reports."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from perfpass.errors import ArgumentError, shown
from perfpass.report.page import Page, fragment, html, loads_page, runs_page, stored_page
from perfpass.serve.kinds import KINDS, Kind, document, read
from perfpass.serve.names import known_name
from perfpass.ui.questions import Fleet, Train, nested

MOST_DEVICES = 12
_PACKING_S = 20.0


@dataclass
class Progress:
    """How far an answer is, for whoever waits: what is done now, and how many of how many steps are."""

    now: str = ""
    done: int = 0
    of: int = 0

    def begin(self, now: str, done: int = 0, of: int = 0) -> None:
        """The next step."""
        self.now, self.done, self.of = now, done, of


@dataclass(frozen=True)
class Model:
    """What was given as the model: a name, the content of a config.json, or a model's file; and what it is called."""

    given: Any
    called: str


@dataclass(frozen=True)
class Asked:
    """A question of the page: ``fields`` as texts, by the names that the questions have, and its models."""

    question: str
    fields: dict[str, Any]
    models: Mapping[str, Model]

    def answer(self, progress: Progress) -> bytes:
        """The answer: JSON of its report, of the report's part for the page, and of the document of --json.

        Raises PerfPassError.
        """
        page, found = ANSWERS[self.question](self, progress)
        progress.begin("writing the report")
        told = {"title": page.title, "fragment": fragment(page), "report": html(page), "document": found}
        return json.dumps(told, allow_nan=False, separators=(",", ":")).encode()

    @property
    def model(self) -> Model:
        """The one model. Raises ArgumentError without one."""
        if "model" not in self.models:
            again = _again(self.fields.get("file"))
            raise ArgumentError(again or "no model: drop a model's file, name a model, or paste a config.json")
        return self.models["model"]

    def asked_of(self, kind: Kind, **changed: Any) -> Any:
        """What the function of a kind of question gives."""
        question = kind.read(self.fields | changed, strict=False)
        return document(kind, question, {"model": self.model.given})


def _again(called: Any) -> str:
    """What to do where a link names a file."""
    return f"choose {shown(str(called))} again: a link holds no files" if called else ""


def _short(model: str) -> str:
    """A name of a fleet's model, from that of its file or repository."""
    found = re.sub(r"[^A-Za-z0-9._-]+", "-", model.rpartition("/")[2].removesuffix(".onnx"))
    return found[:60].strip("._-") or "model"


def _names(text: Any) -> list[str]:
    """Devices of a text with commas."""
    found = [name.strip() for name in str(text or "").split(",")]
    return list(dict.fromkeys(name for name in found if name))


def _fit(asked: Asked, progress: Progress) -> tuple[Page, Any]:
    progress.begin(f"counting the memory of {asked.model.called}")
    devices = _names(asked.fields.get("device"))
    if not devices and isinstance(asked.model.given, bytes):
        raise ArgumentError("name one device or several; without any, only language models are answered")
    answer = asked.asked_of(KINDS["fit"], device=devices or None)
    found = replace(answer, model=asked.model.called).to_dict()
    return stored_page("fit", found, "the answer"), found


def _runs(asked: Asked, progress: Progress) -> tuple[Page, Any]:
    from perfpass.devices import device as find_device

    model = asked.model
    names = _names(asked.fields.get("device"))
    if not 1 <= len(names) <= MOST_DEVICES:
        raise ArgumentError(f"{len(names)} devices; choose from 1 to {MOST_DEVICES}")
    devices = [find_device(name) for name in names]
    stated = nested(dict(asked.fields)).get("limits", {})
    plain = {name: value for name, value in asked.fields.items() if not name.startswith("limits.")}
    found = []
    for i, device in enumerate(devices):
        progress.begin(f"predicting {model.called} on {device.name}", i, len(devices))
        run = replace(asked, fields=plain).asked_of(KINDS["predict"], device=names[i], limits=stated)
        found.append((model.called, replace(run, asked=run.asked.called(model.called)), device))
    page = runs_page(found)
    documents = [prediction.to_dict() for _, prediction, _ in found]
    return page, documents[0] if len(documents) == 1 else documents


def _llm(asked: Asked, progress: Progress) -> tuple[Page, Any]:
    from perfpass.devices import device as find_device

    model, kind = asked.model, KINDS["llm"]
    progress.begin(f"predicting how {model.called} is served", 0, 2)
    found = asked.asked_of(kind)
    progress.begin("predicting other loads", 1, 2)
    given = kind.read(dict(asked.fields), strict=False).given()
    stated: dict[str, Any] = {
        name: given.get(name) for name in ("precision", "runtime", "input_length", "output_length")
    }
    page = loads_page(model.given, find_device(given["device"]), found, **stated)
    return page, found.to_dict()


def _train(asked: Asked, progress: Progress) -> tuple[Page, Any]:
    from perfpass.deploy.train_cost import search_layouts
    from perfpass.deploy.train_network import is_language_model

    # The page draws layouts of language models.
    if isinstance(asked.model.given, bytes):
        raise ArgumentError("training is asked of a language model by its name or its config.json, not of a file")
    progress.begin(f"laying out the training of {asked.model.called}")
    if not is_language_model(asked.model.given):
        raise ArgumentError(
            f"{asked.model.called} is no language model whose layouts are known; `perfpass train-cost` tells what its "
            "training takes"
        )
    question = read(Train, dict(asked.fields), strict=False)
    if not question.search:
        plain = {name: value for name, value in asked.fields.items() if name != "search"}
        found = replace(asked, fields=plain).asked_of(KINDS["train-cost"])
        return _stored("training", found.to_dict(), asked)
    given = question.given()
    given.pop("search")
    if "lora_targets" in given:
        given["lora_targets"] = tuple(given["lora_targets"])
    progress.begin("trying every layout")
    layouts = search_layouts(asked.model.given, given.pop("device"), gpus=given.pop("gpus", 1), **given)
    return _stored("layouts", layouts.to_dict(), asked)


def _stored(kind: str, document: dict[str, Any], asked: Asked) -> tuple[Page, Any]:
    return stored_page(kind, document, asked.model.called), document


def _pack(asked: Asked, progress: Progress) -> tuple[Page, Any]:
    from perfpass.deploy.pack import fleet_of, pack

    question = read(Fleet, nested(dict(asked.fields)), strict=False)
    content = question.model_dump(exclude_none=True)
    files: dict[str, Any] = {}
    for i, row in enumerate(content["model"]):
        uploaded, called = asked.models.get(f"model.{i}"), row.pop("file", None)
        if uploaded is not None:
            row["model"] = uploaded.called
        elif "model" not in row:
            raise ArgumentError(
                f"model {i + 1} of the fleet is missing: {_again(called) or 'name it or choose its file'}"
            )
        else:
            known_name(row["model"])
        row.setdefault("name", _short(row["model"]))
        if uploaded is not None:
            files[row["name"]] = uploaded.given
    progress.begin(f"predicting {len(content['model'])} models on every slice, then packing")
    fleet = fleet_of(content)
    held = [replace(model, content=files.get(model.name)) for model in fleet.models]
    found = pack(replace(fleet, models=tuple(held)), time_limit_s=_PACKING_S).to_dict()
    return stored_page("fleet", found, "the fleet"), found


ANSWERS: Mapping[str, Callable[[Asked, Progress], tuple[Page, Any]]] = {
    "fit": _fit,
    "predict": _runs,
    "compare": _runs,
    "serve": _llm,
    "train": _train,
    "fleet": _pack,
}
