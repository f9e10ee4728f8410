"""What a page shows beside what was asked: money and carbon of a run, and a served model under other loads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from perfpass.deploy.cost import Options, cost, per_million_tokens
from perfpass.report.page.blocks import Page
from perfpass.report.page.runs import compared_page, run_page
from perfpass.report.page.served import served_page

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.prediction import Prediction
    from perfpass.predictors.serving.prediction import LlmPrediction

LOADS = (1.0, 4.0, 16.0, 64.0)
# Money by the shipped prices, and carbon of the world's mean grid.
USUAL = Options(region="WORLD")


def runs_page(found: Sequence[tuple[str, Prediction, Device]], asked: Options = USUAL) -> Page:
    """Predictions with the names of their models and their devices: one with its evidence, several side by side.

    Raises what `perfpass.deploy.cost.cost` raises.
    """
    costs = [cost(p.latency_ms, p.energy_j, device, asked) for _, p, device in found]
    if len(found) == 1:
        return run_page(found[0][1], costs[0], found[0][0])
    return compared_page([p for _, p, _ in found], costs, [name for name, _, _ in found])


def loads_page(
    model: Any,
    device: Device,
    found: LlmPrediction,
    loads: Sequence[float] = LOADS,
    asked: Options = USUAL,
    **stated: Any,
) -> Page:
    """``found`` of a served ``model``, and the same at other ``loads``, requests in flight.

    ``stated``: what else was asked: precision, runtime, input_length, output_length; None: what is assumed. Raises what
    `perfpass.sweep` and `perfpass.deploy.cost.cost` raise.
    """
    from perfpass.deploy.sweep import sweep

    several = {"precision": "precisions", "runtime": "runtimes"}
    several |= {"input_length": "input_lengths", "output_length": "output_lengths"}
    ways: dict[str, Any] = {several[name]: [value] for name, value in stated.items() if value is not None}
    s = found.serving
    by_load = sweep(model, [device], concurrencies=loads, tensor_parallel=[s.parallelism.tensor], **ways)
    money = per_million_tokens(found, device, asked) if found.energy_per_token_j is not None else None
    return served_page(found, by_load, money)
