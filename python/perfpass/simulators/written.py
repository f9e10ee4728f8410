"""Files of each simulator by its name."""

from __future__ import annotations

import json
from collections.abc import Callable

from perfpass.errors import ArgumentError
from perfpass.simulators import dynamo, llm_d, sglang, vidur
from perfpass.simulators.deployed import Deployed
from perfpass.text import unknown


def _sglang(one: Deployed) -> dict[str, str | bytes]:
    settings = {"predictor": {"name": "ml", "database_path": "steps.pkl"}}
    return {"steps.pkl": sglang.bundle(one.steps), "simulator.json": f"{json.dumps(settings, indent=2)}\n"}


SIMULATORS: dict[str, Callable[[Deployed], dict[str, str | bytes]]] = {
    "sglang": _sglang,
    "vidur": lambda one: dict(vidur.profiles(one)),
    "dynamo": lambda one: {"steps.npz": dynamo.profile(one)},
    "llm-d": lambda one: {"config.yaml": llm_d.configuration(one)},
    "blis": lambda one: {"hardware_config.json": f"{json.dumps(llm_d.hardware(one), indent=2)}\n"},
}
# Those that are told of a prefill replica apart by what its prompts take.
_TAKE_PREFILL_APART = ("dynamo", "llm-d")


def files(one: Deployed, simulator: str) -> dict[str, str | bytes]:
    """Content of every file by its path in the simulator's folder.

    Raises ArgumentError for a name that is none of SIMULATORS, UnsupportedError for what a simulator cannot be told.
    """
    if simulator not in SIMULATORS:
        raise ArgumentError(unknown("simulator", simulator, SIMULATORS))
    if simulator not in _TAKE_PREFILL_APART:
        one.only_replicas_alike(simulator)
    return SIMULATORS[simulator](one)
