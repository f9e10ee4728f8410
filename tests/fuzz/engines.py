"""What chooses the inputs: Atheris, guided by the coverage of perfpass, or Hypothesis where that is not installed."""

from __future__ import annotations

import json
import os
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from . import corpus
from .oracle import Problem, judged

LONGEST_INPUT = 1 << 16
_NOTE_SECONDS = 2.0
_MOST_BYTES = 4 << 30  # of address space, more than at the start: what asks for more gets a MemoryError


def available() -> str:
    """The engine that is taken where none is asked for."""
    return "atheris" if find_spec("atheris") else "hypothesis"


class Notes:
    """Counts of how inputs ended, and the smallest input of every problem, in files that a killed process leaves."""

    def __init__(self, place: Path, seconds: float) -> None:
        self.place, self.ended = place, Counter[str]()
        self.smallest: dict[str, int] = {}
        self.started, self.noted = processor_seconds(), time.monotonic()
        self.seconds = seconds
        (place / "problems.jsonl").write_text("")
        self.store()

    def over(self) -> bool:
        """Whether the processor's time is up."""
        return processor_seconds() - self.started > self.seconds

    def note(self, data: bytes, how: str, problem: Problem | None) -> None:
        """One more input."""
        self.ended[how] += 1
        if problem and len(data) < self.smallest.get(problem.identity, sys.maxsize):
            self.smallest[problem.identity] = len(data)
            line = {"identity": problem.identity, "text": problem.text, "latin1": data.decode("latin-1")}
            with (self.place / "problems.jsonl").open("a") as file:
                file.write(json.dumps(line) + "\n")
        now = time.monotonic()
        if now - self.noted > _NOTE_SECONDS:
            self.noted = now
            self.store()

    def store(self) -> None:
        """Write the counts."""
        counts = {"seconds": processor_seconds() - self.started, "ended": dict(self.ended)}
        (self.place / "counts.json").write_text(json.dumps(counts))


def processor_seconds() -> float:
    """Of this process and of those that it waited for: other work on the machine takes nothing from a campaign."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def seconds_of(process: int) -> float:
    """Of the processor, that a running process has had; raises OSError for one that is gone."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def fuzz(engine: str, name: str, seconds: float, place: Path, seed: int, guide: str) -> None:
    """Fuzz one target for so many seconds of the processor; notes go to ``place``. With Atheris the process ends here.

    ``guide``: the package whose coverage guides Atheris.
    """
    place.mkdir(parents=True, exist_ok=True)
    if engine == "atheris":
        _with_atheris(name, seconds, place, seed, guide)
    else:
        _with_hypothesis(name, seconds, place, seed)


def _starts(name: str, target: object) -> list[bytes]:
    seeds = target.seeds()  # type: ignore[attr-defined]
    return [*seeds, *(one.data for one in corpus.read(name))]


def _with_atheris(name: str, seconds: float, place: Path, seed: int, guide: str) -> None:
    import atheris

    with atheris.instrument_imports(include=[guide]):
        from .targets import TARGETS

        target = TARGETS[name]
        starts = _starts(name, target)
        for data in starts:
            judged(target.run, data, target.seconds)  # what is imported on first use is instrumented as well
    inputs = place / "inputs"
    inputs.mkdir(exist_ok=True)
    for data in starts:
        (inputs / sha256(data).hexdigest()[:16]).write_bytes(data)
    notes = Notes(place, seconds)
    _bound_memory()

    def one(data: bytes) -> None:
        notes.note(data, *judged(target.run, data, target.seconds))
        if notes.over():
            notes.store()
            os._exit(0)  # libFuzzer knows the wall clock alone

    def mutated(data: bytes, longest: int, number: int) -> bytes:
        rng = random.Random(number)
        # Half of the time from whole inputs: damage upon damage is refused at its first word.
        out = target.form.mutated(data if data and rng.randrange(2) else rng.choice(starts), rng)
        return out if len(out) <= longest else out[:longest]

    settings = {
        "max_len": LONGEST_INPUT, "timeout": 300, "rss_limit_mb": 0, "seed": seed,
        "artifact_prefix": f"{place}/", "verbosity": 0, "len_control": 0,
    }  # fmt: skip
    arguments = [sys.argv[0], str(inputs), *(f"-{key}={value}" for key, value in settings.items())]
    atheris.Setup(arguments, one, custom_mutator=mutated, enable_python_coverage=True)
    atheris.Fuzz()


def _bound_memory() -> None:
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (held + _MOST_BYTES, hard))


def _with_hypothesis(name: str, seconds: float, place: Path, seed: int) -> None:
    import hypothesis
    from hypothesis import strategies as st

    from .targets import TARGETS

    target = TARGETS[name]
    notes = Notes(place, seconds)
    _bound_memory()

    def one(data: bytes, rng: random.Random, rounds: int) -> None:
        if notes.over():
            return
        for _ in range(rounds):
            data = target.form.mutated(data, rng)
        data = data[:LONGEST_INPUT]
        notes.note(data, *judged(target.run, data, target.seconds))

    how = hypothesis.settings(
        max_examples=200, database=None, deadline=None, phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )  # fmt: skip
    choices = st.sampled_from(_starts(name, target)), st.randoms(use_true_random=True), st.integers(1, 4)
    batch = 0
    while not notes.over():
        hypothesis.seed(seed + batch)(how(hypothesis.given(*choices)(one)))()
        batch += 1
    notes.store()


def minimised(
    run: Callable[[bytes], None], smaller: Callable[[bytes], list[bytes]], data: bytes, identity: str
) -> bytes:
    """The input with every part left out without which the problem is the same."""
    until = time.monotonic() + 60
    shrunk = True
    while shrunk and time.monotonic() < until:
        shrunk = False
        for less in smaller(data):
            if len(less) >= len(data) or time.monotonic() > until:
                continue
            problem = judged(run, less)[1]
            if problem and problem.identity == identity:
                data, shrunk = less, True
                break
    return data
