"""`perfpass llm` with requests that arrive: --rate, --trace and what belongs to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfpass.cli.llm_switches import stepping, switched_on
from perfpass.cli.options import deployed, numbers, whole
from perfpass.errors import ArgumentError

if TYPE_CHECKING:
    from perfpass.deploy.autoscale import Scaled
    from perfpass.devices import Device
    from perfpass.predictors.engine.tails import ArrivalPrediction

# Options that say something of arriving requests alone, with what stands for not given.
_ASKED = ("rate", "trace", "p99", "autoscale")
_MORE = (
    *("arrivals", "burstiness", "requests", "length_cv", "turns", "pause", "router", "max_sequences"),
    *("max_batched_tokens", "window", "rates", "policy", "scale_up", "seed"),
)


def add_arrivals(command: Any) -> None:
    """How requests arrive, and what is asked of them."""
    group = command.add_argument_group(
        "requests that arrive",
        "tails of TTFT, TPOT and requests, event by event; with --rate, --trace or --p99 (--ttft, --tpot: targets)",
    )
    group.add_argument("--rate", type=float, metavar="R", help="requests a second, over the whole deployment")
    group.add_argument(
        "--trace", metavar="FILE", help="JSON lines or CSV of times, lengths and prefix ids (docs/predictors/engine.md)"
    )
    group.add_argument("--p99", action="store_true", help="the tails of a closed loop of --concurrency users")
    group.add_argument("--arrivals", metavar="A", help="poisson (default), gamma or constant, at --rate")
    group.add_argument("--burstiness", type=float, metavar="X", help="shape of gamma arrivals; below 1: bursts")
    group.add_argument("--requests", type=whole, metavar="N", help="how many (default: 1,000; of a trace: all)")
    group.add_argument(
        "--length-cv", type=float, metavar="X", help="of both lengths, lognormal (default: 0, all equal)"
    )
    group.add_argument("--turns", type=whole, metavar="N", help="requests of a conversation, which share its beginning")
    group.add_argument("--pause", type=float, metavar="S", help="between an answer and the next turn or request")
    group.add_argument("--router", metavar="R", help="of --workers: round-robin (default), least-loaded or prefix")
    group.add_argument("--max-sequences", type=whole, metavar="N", help="of the engine (default: its own)")
    group.add_argument("--max-batched-tokens", type=whole, metavar="N", help="of a step (default: the engine's own)")
    group.add_argument("--window", type=float, metavar="S", help="also by time of arrival, in stretches of so long")
    group.add_argument(
        "--autoscale",
        action="store_true",
        help="replicas by time for --trace or --rates, within --ttft (of 99 in 100) and --tpot, and what they cost",
    )
    group.add_argument(
        "--rates", type=numbers, metavar="R,..", help="of --autoscale: requests/s of equal parts of a day"
    )
    group.add_argument("--policy", metavar="P", help="of --autoscale: reactive (default) or ahead")
    group.add_argument("--scale-up", type=float, metavar="S", help="until a new replica serves (default: 120)")
    group.add_argument("--seed", type=whole, metavar="N", help="of what is drawn (default: 0)")


def arrive(options: Any) -> bool:
    """Whether requests that arrive are asked for. Raises ArgumentError for an option of theirs without them."""
    if any(getattr(options, name) for name in _ASKED) or options.rate is not None:
        return True
    given = [name for name in _MORE if getattr(options, name) is not None]
    if given:
        raise ArgumentError(
            f"--{given[0].replace('_', '-')} is of requests that arrive: give --rate or --trace, or --p99 for a closed "
            "loop"
        )
    return False


def simulated(options: Any, target: Device, prefill: Any) -> ArrivalPrediction:
    """What the options ask of requests that arrive."""
    from perfpass.predictors.engine.simulate import simulate_llm

    if options.concurrency is not None and not options.p99:
        raise ArgumentError("--concurrency is of a closed loop, --rate and --trace of requests that arrive; give one")
    if options.p99 and (options.rate is not None or options.trace):
        raise ArgumentError(
            "--p99 asks for the tails of a closed loop; --rate and --trace give them anyway: leave it out"
        )
    for name in ("from_host", "tune", "equal_answers"):
        if getattr(options, name, None):
            asked = "--p99" if options.p99 else "--rate and --trace"
            raise ArgumentError(f"--{name.replace('_', '-')} is of a steady load: leave it out, or {asked}")
    for name in ("rates", "policy", "scale_up"):
        if getattr(options, name) is not None:
            raise ArgumentError(f"--{name.replace('_', '-')} is of --autoscale; give it too")
    given = {name: getattr(options, name) for name in _MORE if getattr(options, name) is not None}
    renamed = {"pause": "pause_s", "window": "window_s"}
    return simulate_llm(
        options.model,
        target,
        rate=options.rate,
        trace=options.trace,
        concurrency=options.concurrency,
        prefix_hit=options.prefix_hit or None,
        ttft_target_ms=options.ttft,
        tpot_target_ms=options.tpot,
        runtime=options.runtime,
        **deployed(options),
        prefill=prefill,
        prefill_workers=options.prefill_workers or 0,
        decode_batch=options.decode_batch or 0,
        switches=stepping(options),
        **{renamed.get(name, name): value for name, value in given.items()},
    )


def autoscaled(options: Any, target: Device) -> Scaled:
    """Replicas by time, as --autoscale asks."""
    from perfpass.deploy.autoscale import autoscale

    others = (
        *("rate", "p99", "arrivals", "burstiness", "turns", "pause", "max_sequences", "max_batched_tokens"),
        *("prefill_workers", "decode_batch", "equal_answers", "concurrency"),
    )
    refused = (f"--{name.replace('_', '-')}" for name in others if getattr(options, name, None))
    if name := next(refused, switched_on(options)):
        raise ArgumentError(f"{name} does not go with --autoscale; leave it out")
    given = {
        "policy": options.policy,
        "scale_up_s": options.scale_up,
        "stretch_s": options.window,
        "length_cv": options.length_cv,
        "router": options.router,
        "seed": options.seed,
    }
    return autoscale(
        options.model,
        target,
        trace=options.trace,
        rates=None if options.rates is None else tuple(options.rates),
        requests=options.requests,
        ttft_target_ms=options.ttft,
        tpot_target_ms=options.tpot,
        price_table=options.price_table,
        runtime=options.runtime,
        **deployed(options),
        **{name: value for name, value in given.items() if value is not None},
    )
