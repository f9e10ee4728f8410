"""Ways to split one replica over GPUs: what is asked, and what is worth asking where nothing is said."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from perfpass.devices import Device
from perfpass.errors import ArgumentError
from perfpass.llm import assumed
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.costs import Parallelism
from perfpass.llm.memory import served
from perfpass.llm.serving import Serving, check_split
from perfpass.predictors.step_time.setup import joined_gpus

# Stages of more GPUs than a board has, of mixtures, whose experts are spread over them.
_WIDE = (16, 32)
_STAGES = (2, 4, 8, 16)
_FEWEST = 2  # of ways over several nodes, the fewest GPUs that hold the model and the next


@dataclass(frozen=True)
class Split:
    """``tensor`` ranks x ``data`` ranks of attention form a stage of ``pipeline``; ``expert`` groups share its GPUs."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    expert: int = 1

    @property
    def gpus(self) -> int:
        """Of one replica."""
        return self.tensor * self.pipeline * self.data

    def parallelism(self, model: LanguageModel) -> Parallelism:
        """For costs and memory. Raises ArgumentError for what ``model`` cannot be split into."""
        if self.expert > 1 and not model.is_mixture:
            raise ArgumentError(f"{model.name} has no experts that {self.expert} expert groups would share")
        found = Parallelism.of(self.tensor, self.pipeline, self.data, self.expert)
        check_split(model, found.tensor, found.pipeline)
        return found

    def __str__(self) -> str:
        named = (("tp", self.tensor), ("pp", self.pipeline), ("dp", self.data), ("ep", self.expert))
        return ", ".join(f"{name} {count}" for name, count in named if count > 1) or "tp 1"


def asked(device: Device, ranks: Sequence[Sequence[int]]) -> list[Split]:
    """Every combination of ranks, in the order of `Split`; tensor ranks that are not given are `assumed.ranks_of`, of
    all else there is 1.
    """
    tensor, *others = ranks
    return [Split(*each) for each in product(tensor or assumed.ranks_of(device), *(other or (1,) for other in others))]


def sensible(model: LanguageModel, device: Device, serving: Serving) -> list[Split]:
    """Splits worth asking of one replica, each of which holds the weights and one request of ``serving``; where none
    does, the one with the most GPUs, which says why.

    Tensor ranks of one board. Of mixtures also expert groups, with ranks of attention for what tensor ranks beyond the
    KV heads would hold several times. Pipelines where ranks do not divide the heads, where no link joins them all,
    and over several nodes where one node is too small; so are wider stages of mixtures, and in a rack that one NVLink
    domain joins.
    """
    inside = [one for one in dict.fromkeys(_inside(model, device, serving.runtime)) if _possible(model, one)]
    held = [one for one in inside if _holds(model, device, serving, one)]
    beyond = [] if len(assumed.ranks_of(device)) == 1 else list(_beyond(model, device, serving, inside, bool(held)))
    rest = inside or [Split()]
    return [*held, *beyond] or [max(rest, key=lambda one: one.gpus)]


def _inside(model: LanguageModel, device: Device, runtime: str) -> Iterator[Split]:
    """Of one node."""
    ranks = assumed.ranks_of(device)
    divides = {tensor for tensor in ranks if _possible(model, Split(tensor))}
    for gpus in ranks:
        yield Split(gpus)
        if model.is_mixture and gpus > 1:
            yield from _of_experts(model, gpus, runtime)
        linked = device.link_bytes_s(gpus) > 0
        for stages in (n for n in _STAGES if n <= gpus):
            if not linked or gpus not in divides:
                yield Split(gpus // stages, stages)


def _of_experts(model: LanguageModel, stage: int, runtime: str) -> Iterator[Split]:
    """Splits of a stage by experts."""
    yield Split(stage, expert=stage)
    heads = min((layer.keeps.kv_heads for _, layer in model.layers if layer.keeps), default=stage)
    latent = any(layer.attention and layer.attention.is_latent for _, layer in model.layers)
    tensor = 1 if latent else max(1, min(heads, stage))
    # TensorRT-LLM's ranks of attention stand in a file of options, not in flags.
    if stage % tensor == 0 and tensor < stage and runtime != "trtllm":
        yield Split(tensor, data=stage // tensor, expert=stage)


def _beyond(
    model: LanguageModel, device: Device, serving: Serving, inside: Sequence[Split], held: bool
) -> Iterator[Split]:
    """Of more GPUs than a node has."""
    in_rack = joined_gpus(device) >= _WIDE[0]
    wide = [s for gpus in _WIDE if model.is_mixture for s in _of_experts(model, gpus, serving.runtime)]
    if not held or in_rack:
        linked = [s for s in wide if s.tensor <= joined_gpus(device)]
        yield from (s for s in linked if _possible(model, s) and _holds(model, device, serving, s))
    if held or not inside:
        return
    most = max(one.tensor for one in inside if one.pipeline == one.data == one.expert == 1)
    several = [Split(most, stages) for stages in _STAGES if most * stages > max(one.gpus for one in inside)]
    yield from [s for s in several if _possible(model, s) and _holds(model, device, serving, s)][:_FEWEST]


def _possible(model: LanguageModel, split: Split) -> bool:
    try:
        split.parallelism(model)
    except ArgumentError:
        return False
    counts = [layer.experts.count for _, layer in model.layers if layer.experts]
    return all(count % split.expert == 0 for count in counts)


def _holds(model: LanguageModel, device: Device, serving: Serving, split: Split) -> bool:
    return served(model, device, replace(serving, parallelism=split.parallelism(model))).fits
