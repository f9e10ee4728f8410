"""Runs a campaign: in an informative order, within a budget, resumable, whatever happens to the workers."""

from __future__ import annotations

import os
import statistics
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from perfpass.measure.campaign_file import Campaign
from perfpass.measure.configuration import Configuration
from perfpass.measure.journal import Journal, known
from perfpass.measure.order import informative_order
from perfpass.measure.pool import Answer, Died, Measured, Pool

ATTEMPTS = 2  # of a configuration whose worker died; the second death is its own finding
JOURNAL = "records.jsonl"
LOG = "workers.log"
_DURATION_GUESS_S = 3.0  # of a configuration, before one was measured


@dataclass
class Outcome:
    """What a run of a campaign did. Times in seconds."""

    path: Path
    skipped: int = 0
    measured: Counter[str] = field(default_factory=Counter)  # by status
    flags: Counter[str] = field(default_factory=Counter)
    left: int = 0
    elapsed_s: float = 0.0
    durations_s: list[float] = field(default_factory=list)
    problems: list[tuple[str, str, str]] = field(default_factory=list)  # model, status, message
    overhead_share: list[float] = field(default_factory=list)

    def count(self, record: dict[str, Any]) -> None:
        """Takes a record into account."""
        self.measured[record["status"]] += 1
        self.flags.update(record.get("flags", ()))
        self.durations_s.append(record.get("elapsed_s", 0.0))
        if "overhead_share" in record:
            self.overhead_share.append(record["overhead_share"])
        if record["status"] != "ok":
            self.problems.append((record["configuration"]["model"], record["status"], record.get("message", "")))

    def __str__(self) -> str:
        total = sum(self.measured.values())
        by_status = ", ".join(f"{count} {status}" for status, count in self.measured.most_common()) or "nothing"
        lines = [
            f"{total} configurations in {self.elapsed_s:.0f} s ({by_status}); "
            f"{self.skipped} were known, {self.left} are left"
        ]
        if self.flags:
            lines.append("flags: " + ", ".join(f"{flag} {count}" for flag, count in self.flags.most_common()))
        if self.overhead_share:
            between = statistics.median(self.overhead_share)
            lines.append(f"time between iterations: median {between:.2%} of the measured time")
        lines += [f"  {model}: {status}: {message[:160]}" for model, status, message in self.problems[:20]]
        if len(self.problems) > 20:
            lines.append(f"  and {len(self.problems) - 20} more, in the records")
        return "\n".join([*lines, f"records: {self.path}"])


def run(
    campaign: Campaign,
    output: str | os.PathLike[str],
    open_pool: Callable[[Path], Pool],
    *,
    budget_s: float | None = None,
    retry_failed: bool = False,
    progress: Callable[[int, int, str], None] | None = None,
) -> Outcome:
    """Measures what of ``campaign`` is not yet in ``output``/records.jsonl, and appends it there.

    ``open_pool`` gets the log file's path. Every environment (device and software) among the pool's workers gets the
    whole campaign, shared among its workers. ``budget_s``: no configuration is started that would probably end later.
    ``progress(done, total, what)`` is called after each record. An interrupt (Ctrl-C) ends the workers and is raised
    again; the records are safe.

    Raises FileError, FormatError (see `Journal`), and what ``open_pool`` raises.
    """
    folder = Path(output)
    started = time.monotonic()
    with Journal(folder / JOURNAL) as journal:
        outcome = Outcome(journal.path)
        pool = open_pool(folder / LOG)
        try:
            queues = _queues(campaign, pool, journal, outcome, retry_failed)
            _describe(pool, queues, journal)
            _Run(campaign, journal, pool, queues, outcome, started, budget_s, progress).drain()
        finally:
            pool.close()
            outcome.elapsed_s = time.monotonic() - started
    return outcome


def _queues(
    campaign: Campaign, pool: Pool, journal: Journal, outcome: Outcome, retry_failed: bool
) -> dict[str, deque[Configuration]]:
    """What is left to do per environment, the most informative first."""
    done = known(journal.contents, retry_failed)
    queues: dict[str, deque[Configuration]] = {}
    for environment in dict.fromkeys(facts["id"] for facts in pool.facts().values()):
        mine = [c for c in campaign.configurations if (c.key, environment) in done]
        rest = [c for c in campaign.configurations if (c.key, environment) not in done]
        outcome.skipped += len(mine)
        queues[environment] = deque(informative_order(rest, mine))
    return queues


def _describe(pool: Pool, queues: dict[str, deque[Configuration]], journal: Journal) -> None:
    """Writes the facts of environments that the journal does not know yet and that have work to do."""
    described = set(journal.contents.facts)
    for name, facts in pool.facts().items():
        if facts["id"] not in described and queues[facts["id"]]:
            journal.append("facts", pool.describe(name))
            described.add(facts["id"])


@dataclass
class _Run:
    campaign: Campaign
    journal: Journal
    pool: Pool
    queues: dict[str, deque[Configuration]]
    outcome: Outcome
    started: float
    budget_s: float | None
    progress: Callable[[int, int, str], None] | None
    running: dict[str, Configuration] = field(default_factory=dict)
    deaths: Counter[tuple[str, str]] = field(default_factory=Counter)

    def drain(self) -> None:
        """Until everything is measured or the budget is spent."""
        total = sum(map(len, self.queues.values()))
        environment = {name: facts["id"] for name, facts in self.pool.facts().items()}
        while True:
            for name in self.pool.facts():  # anew each time: a worker of a cluster may have left
                queue = self.queues[environment[name]]
                if name not in self.running and queue and self._time_left():
                    self.running[name] = queue.popleft()
                    self.pool.submit(name, self.running[name], self.campaign.protocol)
            if not self.running:
                break
            for answer in self.pool.collect():
                self._take(answer, environment[answer.worker])
                if self.progress is not None:
                    what = self.outcome_line()
                    self.progress(sum(self.outcome.measured.values()), total, what)
        self.outcome.left = sum(map(len, self.queues.values()))

    def outcome_line(self) -> str:
        """The counts so far, in a few words."""
        return ", ".join(f"{count} {status}" for status, count in self.outcome.measured.most_common())

    def _time_left(self) -> bool:
        if self.budget_s is None:
            return True
        recent = self.outcome.durations_s[-50:]
        expected = statistics.median(recent) if recent else _DURATION_GUESS_S
        return time.monotonic() + expected <= self.started + self.budget_s

    def _take(self, answer: Answer, environment: str) -> None:
        configuration = self.running.pop(answer.worker)
        if isinstance(answer, Measured):
            record = answer.record
        elif isinstance(answer, Died) and self.deaths[configuration.key, environment] + 1 < ATTEMPTS:
            self.deaths[configuration.key, environment] += 1
            self.queues[environment].appendleft(configuration)
            return
        else:
            status = "crashed" if isinstance(answer, Died) else "timed_out"
            message = answer.reason if isinstance(answer, Died) else f"over {self.campaign.protocol.timeout_s:.0f} s"
            record = {
                "key": configuration.key,
                "environment": environment,
                "configuration": configuration.to_dict(),
                "measured_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
                "status": status,
                "message": message,
            }
        self.journal.append("record", {"campaign": self.campaign.name, **record})
        self.outcome.count(record)
