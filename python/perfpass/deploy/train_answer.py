"""What training a model takes, of a language model or of any network alike, and what would take less memory beside it.

One way for the command, the server and the tools: what has a meaning of which model, and when advice is told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from perfpass.deploy.train_arguments import check
from perfpass.deploy.train_cost import TrainCost, length_note, sequence_of, train_cost
from perfpass.deploy.train_network import is_language_model, train_network_cost
from perfpass.devices import device as find_device
from perfpass.errors import ArgumentError
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.configuration import language_model
from perfpass.text import shown_value

if TYPE_CHECKING:
    from perfpass.deploy.train_advice import Advice
    from perfpass.deploy.train_cost import Layouts
    from perfpass.deploy.train_network import NetworkTrainCost
    from perfpass.deploy.train_network_advice import NetworkLayouts
    from perfpass.devices import Device

EAGER = "eager"  # a framework beside those of `perfpass.train_cost`: a language model is a network like any other
_ADAPTERS = ("lora_rank", "lora_targets", "dora", "frozen")
_OF_NETWORKS = ("layout", "dims", "input_shape")
_OF_BOTH = (
    *("gpus", "micro_batch", "global_batch", "precision", "optimizer", "sharding", "recompute", "offload"),
    *("fabric_gb_s", "host_gb_s", "samples", "region", "carbon_intensity", "pue", "price_table", "calibration"),
)


@dataclass(frozen=True)
class TrainAnswer:
    """``found``, and the ``advice`` beside it: None where it fits and nobody asked."""

    found: TrainCost | NetworkTrainCost
    advice: Advice | None = None

    @property
    def fits(self) -> bool:
        """Whether it fits with nine chances in ten."""
        return self.found.predicted.fits if isinstance(self.found, TrainCost) else self.found.fits

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return self.found.to_dict() | ({"advice": self.advice.to_dict()["changes"]} if self.advice else {})

    def __str__(self) -> str:
        return f"{self.found}\n\n{self.advice}" if self.advice else str(self.found)


def train_answer(
    model: Any,
    device: str | Device,
    *,
    advise: bool = False,
    notes: Sequence[str] = (),
    named: Callable[[str], str] = str,
    **asked: Any,
) -> TrainAnswer:
    """What training ``model`` takes; with ``advise``, or where it does not fit, also what takes less memory.

    ``asked``: as of `perfpass.train_cost` for a language model, else of `perfpass.train_network_cost`; with them
    ``samples`` of an epoch and ``epochs``. A language model in the framework "eager" is a network: the step is that of
    `perfpass.predict` with mode="training", ``sequence`` a dimension of its input. ``notes`` stand after those of a
    language model's answer; ``named`` as of `arguments`.

    Raises ArgumentError for what has no meaning of the model, and what either function raises.
    """
    of_language, asked, said = arguments(model, device, asked, named)
    if not of_language:
        from perfpass.deploy.train_network_advice import train_network_advice

        network = train_network_cost(model, device, **asked)
        network = replace(network, notes=(*said, *network.notes))
        wanted = advise or not network.fits
        return TrainAnswer(network, train_network_advice(model, device, first=network, **asked) if wanted else None)
    from perfpass.deploy.train_advice import train_advice

    found = train_cost(model, device, **asked)
    found = replace(found, notes=(*found.notes, *notes))
    wanted = advise or not found.predicted.fits
    return TrainAnswer(found, train_advice(model, device, **asked) if wanted else None)


def train_layouts(
    model: Any,
    device: str | Device,
    *,
    advise: bool = False,
    notes: Sequence[str] = (),
    named: Callable[[str], str] = str,
    **asked: Any,
) -> Layouts | NetworkLayouts:
    """The layouts of a step of ``global_batch`` samples or sequences, the quickest that fits first.

    ``asked``, ``notes``, ``named`` as of `train_answer`; what is given of a layout stays. Raises ArgumentError for
    ``advise``, which is of one layout, without a global batch, and what the searches raise.
    """
    if advise:
        raise ArgumentError(
            f"{named('search')} tries what {named('advise')} would change of one layout; give one of them"
        )
    of_language, asked, said = arguments(model, device, asked, named)
    asked.setdefault("gpus", 1)
    if asked.get("global_batch") is None:
        raise ArgumentError(
            f"{named('search')} needs a global batch: layouts of one step are compared; give {named('global_batch')}"
        )
    if not of_language:
        from perfpass.deploy.train_network_advice import search_network_layouts

        networks: NetworkLayouts = _noted(search_network_layouts(model, device, **asked), said, ())
        return networks
    from perfpass.deploy.train_cost import search_layouts

    layouts: Layouts = _noted(search_layouts(model, device, **asked), (), notes)
    return layouts


def _noted(layouts: Any, before: Sequence[str], after: Sequence[str]) -> Any:
    best, others = (
        tuple(replace(one, notes=(*before, *one.notes, *after)) for one in some)
        for some in (layouts.best, layouts.others)
    )
    return replace(layouts, best=best, others=others)


def arguments(
    model: Any, device: str | Device, asked: dict[str, Any], named: Callable[[str], str] = str
) -> tuple[bool, dict[str, Any], tuple[str, ...]]:
    """Whether ``model`` is a language model, its function's arguments of what was ``asked`` of any model, and what is
    to be said of those that nobody gave.

    ``named``: what whoever asks calls an argument. Raises ArgumentError for what has no meaning of the model, and what
    reading it raises.
    """
    said: tuple[str, ...] = ()
    asked = dict(asked)
    samples = _samples(asked.pop("samples", None), asked.pop("epochs", None), named)
    if samples is not None and "tokens" in asked:
        raise ArgumentError(f"{named('tokens')} and {named('samples')} both say how long the run is; give one of them")
    of_language = is_language_model(model)
    if eager := asked.get("framework") == EAGER:
        samples, said = _as_network(model if of_language else None, device, asked, samples, named)
    if eager or not of_language:
        if "sequence" in asked:
            raise ArgumentError(
                f"{named('sequence')} is of language models whose layouts are known, and {_called(model)} is read as "
                f"any network: give the length of its input, if it has one, as {named('dims')} "
                f"sequence={asked['sequence']}"
            )
        others = [name for name in asked if name not in (*_OF_NETWORKS, *_OF_BOTH)]
        what = "in eager PyTorch has no layouts" if eager else "is no language model whose layouts are known"
        if any(name in _ADAPTERS for name in others):
            what += (
                "; adapters of such a network are in its torch module: put them in (peft) and ask "
                "perfpass.torch.estimate(module, inputs, device=...); of a pipeline of diffusion, of its denoiser alone"
            )
        _refuse(asked, others, f"{_called(model)} {what}", named)
        return False, asked if samples is None else asked | {"samples": samples}, said
    _refuse(asked, _OF_NETWORKS, f"{_called(model)} is a language model, of given sizes", named)
    if "lora_targets" in asked:
        asked["lora_targets"] = tuple(asked["lora_targets"])
    if samples is not None:
        asked["tokens"] = samples * sequence_of(_read(model), asked.get("sequence"))
    return True, asked, said


def _read(model: Any) -> LanguageModel:
    return model if isinstance(model, LanguageModel) else language_model(model)


def _as_network(
    of_language: Any, device: str | Device, asked: dict[str, Any], samples: float | None, named: Callable[[str], str]
) -> tuple[float | None, tuple[str, ...]]:
    """Turns what was ``asked`` of a model in eager PyTorch into the words of networks; returns the samples of the run,
    and what is to be said of what was not asked.

    ``of_language``: a language model, which is trained as the frameworks train it where nobody says how (as many
    tokens, products as `_trained_in` beside weights in single precision, AdamW), None of another network.
    """
    check({name: asked[name] for name in ("sequence", "tokens") if asked.get(name) is not None})
    del asked["framework"]
    asked.pop("equal_lengths", None)  # a graph has one length
    sequence, tokens = asked.pop("sequence", None), asked.pop("tokens", None)
    dims, said = dict(asked.get("dims") or {}), list[str]()
    if of_language is not None:
        read, board = _read(of_language), find_device(device)
        if not any("sequence" in name for name in dims):
            said += length_note(read, sequence)
            sequence = sequence_of(read, sequence)
        usual = {"precision": _trained_in(board), "optimizer": "adamw"}
        taken = {name: value for name, value in usual.items() if asked.get(name) is None}
        asked |= taken
        if taken:
            said.append(f"{' and '.join(taken.values())}, as language models are trained where nobody says otherwise")
    if sequence is not None:
        asked["dims"] = {"sequence": sequence} | dims
    if tokens is None:
        return samples, tuple(said)
    if sequence is None:
        raise ArgumentError(f"{named('tokens')} of an eager step need its length; give {named('sequence')}")
    return float(tokens / sequence), tuple(said)


def _trained_in(board: Device) -> str:
    """The precision of products where nobody says: bf16, or the halves that the device has, else fp32."""
    of = {"bf16": "amp_bf16", "fp16": "amp"}
    return next((precision for rate, precision in of.items() if rate in board.peak_flops), "fp32")


def _samples(samples: float | None, epochs: float | None, named: Callable[[str], str]) -> float | None:
    """Of the run."""
    if samples is None:
        if epochs is not None:
            raise ArgumentError(f"{named('epochs')} are of {named('samples')}; give how many an epoch has")
        return None
    for name, value in (("samples", samples), ("epochs", epochs)):
        if value is not None and not value > 0:
            raise ArgumentError(f"{named(name)} is {value:g}; it must be above 0")
    return float(samples * (1 if epochs is None else epochs))


def _called(model: Any) -> str:
    return model if isinstance(model, str) else shown_value(model)


def _refuse(asked: dict[str, Any], names: Sequence[str], why: str, named: Callable[[str], str]) -> None:
    wrong = next((name for name in names if name in asked), None)
    if wrong is not None:
        raise ArgumentError(f"{named(wrong)} has no meaning here: {why}")
