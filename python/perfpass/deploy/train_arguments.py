"""What the arguments of `perfpass.train_cost` may be, declared once: a wrong one is an error of one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfpass.declared import Choice, Flag, Kind, Number, Text
from perfpass.errors import ArgumentError
from perfpass.llm.recipe import (
    ATTENTIONS,
    FROZEN,
    LOSSES,
    OFFLOADS,
    OPTIMIZERS,
    PRECISIONS,
    RECOMPUTATIONS,
    SCHEDULES,
    SHARDINGS,
    TARGETS,
    TOWERS,
)
from perfpass.predictors.llm_training.constants import FRAMEWORKS
from perfpass.text import shown_value

# Products of these run in fewer bits; everything else as with "bf16".
PRODUCTS = {"fp8": "fp8", "nvfp4": "nvfp4"}
_RANKS = Number(1, 65_536, whole=True)
_SHARED = Number(0, 65_536, whole=True)
_COUNT = Number(1, 2**31, whole=True)
_GB_S = Number(0, 10_000, above=True, hint=" GB/s")
_KINDS: dict[str, Kind] = {
    "gpus": Number(1, 100_000, whole=True),
    **dict.fromkeys(("tensor", "pipeline", "virtual", "context", "expert"), _RANKS),
    "expert_tensor": _SHARED,
    "sharding_group": _SHARED,
    "schedule": Choice(SCHEDULES),
    "sharding": Choice(SHARDINGS),
    "sequence": _COUNT,
    "micro_batch": _COUNT,
    "global_batch": _COUNT,
    "precision": Choice(tuple(dict.fromkeys((*PRECISIONS, *PRODUCTS)))),
    "optimizer": Choice(tuple(OPTIMIZERS)),
    "recompute": Choice(RECOMPUTATIONS),
    "offload": Choice(OFFLOADS),
    "attention": Choice(ATTENTIONS),
    "loss": Choice(tuple(LOSSES)),
    "lora_rank": _RANKS,
    "frozen": Choice(tuple(FROZEN)),
    "dora": Flag(),
    "equal_lengths": Flag(),
    "towers": Choice(TOWERS),
    "fabric_gb_s": _GB_S,
    "host_gb_s": _GB_S,
    "tokens": Number(0, 1e16, above=True),
    "framework": Choice(tuple(FRAMEWORKS)),
    "region": Text(),
    "carbon_intensity": Number(0, 2000, hint=" gCO2e/kWh"),
    "pue": Number(1, 5, hint=", total over IT power"),
    "calibration": Flag(),
}
_OPEN = ("precision", "sharding", "sequence", "global_batch", "attention", "loss", "lora_rank", "fabric_gb_s",
         "host_gb_s", "tokens", "region", "carbon_intensity")  # fmt: skip


def check(asked: Mapping[str, Any]) -> None:
    """Raises ArgumentError for the first argument that is of another kind or out of its range."""
    for name, kind in _KINDS.items():
        if name in asked and not (asked[name] is None and name in _OPEN):
            kind.check(asked[name], "", name, ArgumentError)
    targets = asked.get("lora_targets", ())
    if isinstance(targets, str) or not isinstance(targets, (tuple, list)):
        raise ArgumentError(f'lora_targets {shown_value(targets)}; several of {", ".join(TARGETS)}, as ("query",)')
    for one in targets:
        Choice(TARGETS).check(one, "", "lora_targets", ArgumentError)
