"""Fuzzes every target for its part of the time, and keeps what was found.

    python -m tests.fuzz --minutes 10                  all targets, with Atheris where it is installed
    python -m tests.fuzz --minutes 60 --readers        every reader of models: those of the core with libFuzzer (clang)
    python -m tests.fuzz --minutes 1 --target journal --engine hypothesis
    python -m tests.fuzz --replay --coverage           lines reached by the kept inputs and those of the last campaign
    python -m tests.fuzz --keep                        keep inputs of the last campaign that reach more lines

What a campaign leaves is in build/fuzz; problems, each with its smallest input, in tests/fuzz/corpus.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import coverage

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOPHUB_LOCATION": "NONE"}
STUCK_SECONDS = 300  # of the processor
PLACE = TESTS.parent / "build" / "fuzz"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--minutes", type=float, default=5.0, help="of the processor, of all targets together (default: 5)"
    )
    parser.add_argument("--target", action="append", metavar="NAME", help="one target; may be given more than once")
    parser.add_argument("--readers", action="store_true", help="the targets that read models, and those of the core")
    parser.add_argument("--engine", choices=("atheris", "hypothesis"), help="(default: Atheris where it is installed)")
    parser.add_argument("--guide", default="perfpass", metavar="PACKAGE", help="whose coverage guides Atheris")
    parser.add_argument("--seed", type=int, default=1, help="of the engine's choices (default: 1)")
    parser.add_argument("--replay", action="store_true", help="give the kept inputs to perfpass, and no others")
    parser.add_argument("--coverage", action="store_true", help="lines reached, by module (needs coverage)")
    parser.add_argument(
        "--keep", action="store_true", help="inputs of build/fuzz that reach more lines (needs coverage)"
    )
    parser.add_argument("--one", metavar="NAME", help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ |= ENVIRONMENT
    if options.one:
        from .engines import fuzz

        fuzz(options.engine, options.one, options.minutes * 60, PLACE / options.one, options.seed, options.guide)
        return 0
    if options.coverage:
        from . import reach

        _reached(reach.counting(), options)
        return 0
    names = _names(options)
    if options.keep:
        from . import reach

        reach.keep([name for name in names if not name.startswith("core-")], PLACE)
        return 0
    return _replay(names) if options.replay else _campaign(names, options)


def _names(options: argparse.Namespace) -> list[str]:
    """The targets that are asked for. Those of the core stand last, and are none of the others' business."""
    from . import libfuzzer
    from .targets import READERS, TARGETS

    if options.readers:
        return [*READERS, *libfuzzer.SOURCES]
    known = [*TARGETS, *libfuzzer.SOURCES]
    for name in options.target or ():
        if name not in known:
            sys.exit(f"no target {name}; there are {', '.join(known)}")
    return options.target or list(TARGETS)


def _reached(counted: coverage.Coverage, options: argparse.Namespace) -> None:
    from . import libfuzzer, reach

    names = _names(options)
    if others := [name for name in names if name not in libfuzzer.SOURCES]:
        reach.report(others, PLACE, counted)
    if libfuzzer.compiler():
        libfuzzer.report([name for name in names if name in libfuzzer.SOURCES], PLACE)


def _replay(names: list[str]) -> int:
    from . import corpus
    from .oracle import judged
    from .targets import TARGETS

    found = 0
    for name in filter(TARGETS.__contains__, names):
        started, target = time.monotonic(), TARGETS[name]
        inputs = [*target.seeds(), *(one.data for one in corpus.read(name))]
        problems = [problem for data in inputs if (problem := judged(target.run, data, target.seconds)[1])]
        print(f"{name:24} {len(inputs):5} inputs {time.monotonic() - started:6.1f} s")
        for problem in problems:
            print(f"    {problem.identity}\n        {problem.text}")
        found += len(problems)
    return 1 if found else 0


def _campaign(names: list[str], options: argparse.Namespace) -> int:
    from . import engines, libfuzzer

    engine, found = options.engine or engines.available(), 0
    if any(name in libfuzzer.SOURCES for name in names):
        libfuzzer.build()
    for name in names:
        if name in libfuzzer.SOURCES:
            found += libfuzzer.fuzz(name, 60 * options.minutes / len(names), PLACE / name, options.seed)
            continue
        command = [sys.executable, "-m", "tests.fuzz", "--one", name, "--engine", engine]
        command += ["--minutes", str(options.minutes / len(names)), "--seed", str(options.seed)]
        command += ["--guide", options.guide]
        place = PLACE / name
        place.mkdir(parents=True, exist_ok=True)
        with (
            (place / "log").open("wb") as log,
            subprocess.Popen(command, cwd=TESTS.parent, stdout=log, stderr=log) as run,
        ):
            ended = _waited(run, place / "counts.json")
        found += _reported(name, place, ended)
    return 1 if found else 0


def _waited(run: subprocess.Popen[bytes], counts: Path) -> int:
    """How the process ends; it is killed where it works on and its counts stand still: no signal interrupts it."""
    from .engines import seconds_of

    counts.unlink(missing_ok=True)
    seen = worked = 0.0
    while True:
        try:
            return run.wait(5.0)
        except subprocess.TimeoutExpired:
            written = counts.stat().st_mtime if counts.exists() else 0.0
            if written != seen:
                seen, worked = written, seconds_of(run.pid)
            elif seconds_of(run.pid) - worked > STUCK_SECONDS:
                run.kill()
                return run.wait()


def _reported(name: str, place: Path, ended: int) -> int:
    """Prints how a target's inputs ended, and keeps the smallest input of every problem. How many problems."""
    from . import corpus, engines
    from .targets import TARGETS

    if not (place / "counts.json").exists():
        print(f"{name:24} did not start, and ended with {ended}; see {place / 'log'}")
        return 1
    counts = json.loads((place / "counts.json").read_text())
    each = ", ".join(f"{count} {how}" for how, count in sorted(counts["ended"].items(), key=lambda p: -p[1]))
    print(f"{name:24} {sum(counts['ended'].values()):8} inputs {counts['seconds']:6.0f} s: {each}", flush=True)
    if ended:
        print(f"    the process ended with {ended}; see {place / 'log'}")
    smallest = {}
    for line in (place / "problems.jsonl").read_text().splitlines():
        row = json.loads(line)
        smallest[row["identity"]] = row  # each line is smaller than those before it
    kept = corpus.read(name)
    target = TARGETS[name]
    for identity, row in smallest.items():
        data = engines.minimised(target.run, target.form.smaller, row["latin1"].encode("latin-1"), identity)
        print(f"    {identity}\n        {row['text']}\n        {data[:300]!r}", flush=True)
        if f"found: {identity}" not in {one.why for one in kept}:
            kept.append(corpus.Kept(data, f"found: {identity}"))
    if smallest:
        corpus.write(name, kept)
    return len(smallest) + bool(ended)


if __name__ == "__main__":
    sys.exit(main())
