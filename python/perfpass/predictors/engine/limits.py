"""What limits a simulated deployment: the queue, the cache, places, or what takes most of a step."""

from __future__ import annotations

import numpy as np

from perfpass.devices import Device
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.batch import EngineBatch, StepTime
from perfpass.llm.serving import Serving
from perfpass.predictors.engine.events import Ran, Work
from perfpass.predictors.step_time.steps import Steps

# Of a queue that grows: its wait at the end over that in the middle, and how much of a request's time the wait is. By
# hand; a steady queue has about 1.
_GROWS, _MATTERS = 1.5, 0.5
_WAITS = {
    "cache": "room in the cache",
    "sequences": "a place among the sequences that run at once",
    "step": "the steps before their own",
}
_STEPS = {
    "compute": "compute",
    "bandwidth": "bandwidth (weights)",
    "cache": "bandwidth (reading the cache)",
    "communication": "links between GPUs",
    "host": "host",
}


def grows(ran: Ran) -> bool:
    """Whether requests wait longer and longer: the deployment does not keep up."""
    served = np.isfinite(ran.end_s)
    waits = (ran.admitted_s - ran.arrival_s)[served]
    if len(waits) < 50:
        return False
    fifths = np.array_split(waits[np.argsort(ran.arrival_s[served], kind="stable")], 5)
    middle, last = float(fifths[2].mean()), float(fifths[4].mean())
    own = float(np.median((ran.end_s - ran.admitted_s)[served]))
    return last > _GROWS * middle and last > _MATTERS * own


def limits(
    ran: Ran,
    steps: StepTime,
    model: LanguageModel,
    device: Device,
    serving: Serving,
    *,
    asked_per_s: float | None,
    issued_s: float,
) -> tuple[str, ...]:
    """What limits, in words, the most urgent first. ``asked_per_s``: the rate of arrivals, None of a closed loop;
    ``issued_s``: what the host takes of each prompt before its engine (`Deployment`).
    """
    found = []
    served = np.isfinite(ran.end_s)
    if asked_per_s is not None and grows(ran):
        rate = int(served.sum()) / float(np.nanmax(ran.end_s))
        found.append(
            f"queue: {asked_per_s:.3g} requests/s arrive and {rate:.3g} are served, so waiting grows with every "
            "request and the tails are those of this many; add replicas or lower the rate"
        )
    wait = float(np.mean((ran.admitted_s - ran.arrival_s)[served])) - issued_s
    whole = float(np.mean((ran.first_s - ran.arrival_s)[served]))
    work = ran.prefill or ran.work
    causes = work.waited_s
    most = max(causes, key=lambda cause: causes[cause])
    words = f"time to first token: {wait / whole:.0%} waiting"
    if wait > 0.02 * whole and sum(causes.values()) > 0:
        words += f", mostly for {_WAITS[most]}"
    if issued_s > 0:
        words += f", {issued_s / whole:.0%} the host's, which issues a mixture's kernels one by one"
    found.append(f"{words}, {1 - (wait + issued_s) / whole:.0%} from then on")
    if ran.work.preemptions:
        share = ran.work.recomputed_tokens / max(ran.work.prompt_tokens, 1)
        found.append(f"cache: full {ran.work.preemptions:,} times, {share:.1%} of prompt tokens computed again")
    if ran.work.decode_steps:
        found.append(_step(ran.work, steps, model, device, serving))
    return tuple(found)


def _step(work: Work, steps: StepTime, model: LanguageModel, device: Device, serving: Serving) -> str:
    batch = work.decoded_tokens / work.decode_steps
    context = work.context_steps / work.decode_steps
    seconds = steps.one(0.0, 0.0, 0.0, 0.0, batch, context)
    most = Steps(model, device, serving).limits(EngineBatch(decodes=batch, decode_context=context))[0]
    prefill = work.prefill_s / work.busy_s
    return (
        f"{_STEPS[most]}: steps of {batch:.3g} decodes on average take {1e3 * seconds:.3g} ms; "
        f"{prefill:.0%} of the busy time has prompts in it"
    )
