"""The engines' events beside Ciw, an independent simulator of queues, where both model the same.

    pip install ciw==3.2.7 && python benchmarks/queueing_peer.py [--requests 200000]

An engine with one place and steps of known times is a queue with one server: M/D/1 with equal answers, M/G/1 with
lognormal ones; three such engines behind a round robin are three queues with Erlang arrivals of three phases. Means and
99th percentiles of the wait, in ms; the mean's standard error from batches.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from perfpass.predictors.engine.arrivals import Lengths, requests
from perfpass.predictors.engine.events import Pool, run
from perfpass.predictors.engine.settings import EngineSettings

PROMPT, ANSWER, STEP_S, PROMPT_S = 100, 20, 4e-3, 7e-3
ONE = EngineSettings(10_000, 1, 1, mixed=True, chunked=True, reserved=0.0, prefix_sharing=False)


class FixedSteps:
    """Every prompt and every decode takes its time, whatever else there is."""

    def seconds(self, batch: Any) -> np.ndarray:
        return np.where(np.asarray(batch.prompt_tokens) > 0, PROMPT_S, STEP_S)

    def one(self, prompt_tokens: float, *_: float) -> float:
        return PROMPT_S if prompt_tokens > 0 else STEP_S

    def decode_run(self, decodes: float, context: float, steps: float) -> float:
        return steps * STEP_S


def ours(count: int, rate: float, cv: float, engines: int) -> np.ndarray:
    asked = requests(count, Lengths(PROMPT), Lengths(ANSWER, cv), rate_per_s=rate, seed=1)
    found = run(asked, Pool(FixedSteps(), ONE, 10**6, engines))
    return found.admitted_s - found.arrival_s


def ciws(count: int, rate: float, cv: float, engines: int) -> np.ndarray:
    import ciw

    drawn = np.random.default_rng(1)

    class Service(ciw.dists.Distribution):  # type: ignore[misc]
        """What the engine takes for an answer: whole tokens, lognormal."""

        def sample(self, t: float | None = None, ind: Any = None) -> float:
            answer = ANSWER
            if cv:
                spread = np.log1p(cv**2)
                answer = max(round(drawn.lognormal(np.log(ANSWER) - spread / 2, np.sqrt(spread))), 1)
            return PROMPT_S + (answer - 1) * STEP_S

    ciw.seed(1)
    arrivals = ciw.dists.Exponential(rate) if engines == 1 else ciw.dists.Erlang(rate, engines)
    network = ciw.create_network(
        arrival_distributions=[arrivals], service_distributions=[Service()], number_of_servers=[1]
    )
    simulation = ciw.Simulation(network)
    simulation.simulate_until_max_time(count / rate * (1 if engines == 1 else engines))
    return np.array([r.waiting_time for r in sorted(simulation.get_all_records(), key=lambda r: r.arrival_date)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=200_000)
    count = parser.parse_args().requests
    heads = ("load", "events mean", "+-", "Ciw mean", "+-", "events p99", "Ciw p99")
    print(f"{'queue':<22}" + "".join(f"{head:>12}" for head in heads))
    for name, cv, engines in (("M/D/1", 0.0, 1), ("M/G/1, lognormal", 1.0, 1), ("round robin over 3", 1.0, 3)):
        service = PROMPT_S + (ANSWER - 1) * STEP_S
        for load in (0.5, 0.8):
            rate = engines * load / service
            cells = []
            for waits in (ours(count, rate, cv, engines), ciws(count // engines, rate, cv, engines)):
                ms = 1e3 * waits
                batches = [part.mean() for part in np.array_split(ms, 20)]
                cells.append((ms.mean(), np.std(batches, ddof=1) / np.sqrt(20), np.percentile(ms, 99)))
            (a, ea, pa), (b, eb, pb) = cells
            numbers = (load, a, ea, b, eb, pa, pb)
            print(f"{name:<22}" + "".join(f"{number:>12.2f}" for number in numbers))


if __name__ == "__main__":
    main()
