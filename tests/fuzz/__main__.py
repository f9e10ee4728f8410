"""Fuzzes every target for its part of the time, and keeps what was found.

    python -m tests.fuzz --minutes 10                  all targets, with Atheris where it is installed
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

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOPHUB_LOCATION": "NONE"}
STUCK_SECONDS = 300
PLACE = TESTS.parent / "build" / "fuzz"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0, help="of all targets together (default: 5)")
    parser.add_argument("--target", action="append", metavar="NAME", help="one target; may be given more than once")
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
    if options.coverage or options.keep:
        from . import reach

        (reach.keep if options.keep else reach.report)(options.target, PLACE)
        return 0
    return _replay(options.target) if options.replay else _campaign(options)


def _replay(names: list[str] | None) -> int:
    from . import corpus
    from .oracle import judged
    from .targets import TARGETS

    found = 0
    for name in names or TARGETS:
        started, target = time.monotonic(), TARGETS[name]
        inputs = [*target.seeds(), *(one.data for one in corpus.read(name))]
        problems = [problem for data in inputs if (problem := judged(target.run, data, target.seconds)[1])]
        print(f"{name:24} {len(inputs):5} inputs {time.monotonic() - started:6.1f} s")
        for problem in problems:
            print(f"    {problem.identity}\n        {problem.text}")
        found += len(problems)
    return 1 if found else 0


def _campaign(options: argparse.Namespace) -> int:
    from . import engines
    from .targets import TARGETS

    engine, names = options.engine or engines.available(), options.target or list(TARGETS)
    found = 0
    for name in names:
        command = [sys.executable, "-m", "tests.fuzz", "--one", name, "--engine", engine]
        command += ["--minutes", str(options.minutes / len(names)), "--seed", str(options.seed)]
        command += ["--guide", options.guide]
        place = PLACE / name
        place.mkdir(parents=True, exist_ok=True)
        with (
            (place / "log").open("wb") as log,
            subprocess.Popen(command, cwd=TESTS.parent, stdout=log, stderr=log) as run,
        ):
            try:
                ended = run.wait(60 * options.minutes / len(names) + STUCK_SECONDS)
            except subprocess.TimeoutExpired:  # in code that no signal interrupts
                run.kill()
                ended = run.wait()
        found += _reported(name, place, ended)
    return 1 if found else 0


def _reported(name: str, place: Path, ended: int) -> int:
    """Prints how a target's inputs ended, and keeps the smallest input of every problem. How many problems."""
    from . import corpus, engines
    from .targets import TARGETS

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
