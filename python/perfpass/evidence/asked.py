"""From a prediction, or from its arguments, to the evidence behind it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from perfpass.errors import UnsupportedError
from perfpass.evidence.answer import LIMIT, Evidence, look_up
from perfpass.evidence.table import load
from perfpass.prediction import Interval, Prediction
from perfpass.predictors.generation.prediction import Offline
from perfpass.predictors.relative import question as questions
from perfpass.predictors.relative.question import Question
from perfpass.predictors.serving.prediction import LlmPrediction

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.predictors.relative.relatives import Relatives

_FEWEST_LETTERS = 4
_LIKENESS = 0.6
_MOST_NAMES = 5


def of(
    asked: Prediction | LlmPrediction | Offline | UnsupportedError | Question,
    *,
    limit: int = LIMIT,
    leave_out: Mapping[str, Collection[str]] | None = None,
) -> Evidence:
    """The measured records nearest to a prediction, to a question, or to what perfpass refused to predict.

    ``leave_out``: values that do not count, by "source", "device" or "model". Raises UnsupportedError for a prediction
    that does not know what was asked (made by hand, or read), and without pyarrow; ArgumentError.
    """
    if isinstance(asked, Question):
        return look_up(asked, load(), limit=limit, leave_out=leave_out)
    question = question_of(asked)
    if isinstance(asked, UnsupportedError):
        return look_up(question, load(), limit=limit, leave_out=leave_out, said=str(asked))
    read = asked.workload if isinstance(asked, Prediction) else None
    return look_up(question, load(), limit=limit, predicted=_predicted(asked), leave_out=leave_out, read=read)


def question_of(asked: Prediction | LlmPrediction | Offline | UnsupportedError) -> Question:
    """What a prediction, or a refusal to predict, was asked. Raises UnsupportedError where it does not know."""
    if asked.asked is None:
        raise UnsupportedError("this prediction does not keep what was asked; predict it anew")
    found: Question = asked.asked.question()
    return found


def by_name(
    name: str, device: Device, *, limit: int = LIMIT, batch: float = 1.0, said: str = "", **how: Any
) -> Evidence | None:
    """The records of a model that cannot be read here, by its name or one like it; None where there is none.

    ``how``: runtime and precision. Nothing is scaled: what the model needs is not known.
    """
    relatives = load()
    names = _names_like(name, relatives)
    if not names:
        return None
    asked = Question(kind="named", device=device, batch=batch, names=frozenset(names), model=name, work={}, **how)
    return look_up(asked, relatives, limit=limit, said=said)


def _names_like(name: str, relatives: Relatives) -> list[str]:
    """The plain name itself where records have it, else those of records that hold it, begin it, or are like it."""
    import difflib
    import re

    wanted = questions.plain(name)
    known = relatives.names.values
    if wanted in known:
        return [wanted]
    if len(wanted) < _FEWEST_LETTERS:
        return []
    spelt = "[^a-z0-9]*".join(map(re.escape, wanted))
    within = re.compile(rf"(?<![a-z0-9]){spelt}(?![a-z0-9])")
    holding = [questions.plain(model) for model in relatives.texts["model"].values if within.search(model.lower())]
    beginning = [one for one in known if len(one) > _FEWEST_LETTERS and wanted.startswith(one)]
    close = difflib.get_close_matches(wanted, known, n=_MOST_NAMES, cutoff=_LIKENESS)
    return [*holding, *beginning, *(one for one in close if one[:_FEWEST_LETTERS] == wanted[:_FEWEST_LETTERS])]


def _predicted(asked: Prediction | LlmPrediction | Offline) -> dict[str, Interval]:
    """The intervals of a prediction by quantity."""
    if isinstance(asked, Prediction):
        return {"time": asked.latency_ms, "memory": asked.peak_memory_bytes, "energy": asked.energy_j}
    memory = float(asked.memory.total_bytes)
    found = {"memory": Interval(memory, memory, memory, "byte")}
    if isinstance(asked, LlmPrediction):
        found |= {"first token": asked.ttft_ms, "token": asked.tpot_ms}
        if asked.energy_per_token_j is not None:
            found["request energy"] = asked.energy_per_token_j.scaled(asked.serving.output_length, "J")
        return found
    found["time"] = asked.latency_s.scaled(1e3, "ms")
    for name, phase in (("first token", asked.prompt_s), ("token", asked.token_s)):
        if phase is not None:
            found[name] = phase.scaled(1e3, "ms")
    return found
