"""Which models are read: one row a model, each in a bounded worker, so that a crash or a hang is a row too.

    python benchmarks/coverage/run.py [GROUP ...] [--at-most N] [--again OUTCOME|MODEL ...]

A group is a module of this folder, named unlike any package: TITLE, PACKAGES (whose versions are stored), models() ->
names in their order, quickly and without reading them, and read(model) -> Reading. Rows are kept in
build/coverage/GROUP.jsonl as they come, so a run goes on where the last one ended; at its
end benchmarks/results/coverage/GROUP.json is written, with the day and the commit that each row was read by, and
benchmarks/figures.py makes the pages of it. A group whose packages are in another environment is run by that
environment's Python.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent)]

from report import machine, versions  # noqa: E402
from row import OUTCOMES, Group, NotMadeError, Row  # noqa: E402

JOURNALS = ROOT / "build" / "coverage"
RESULTS = HERE.parent / "results" / "coverage"
_NO_GROUPS = ("run", "row", "routes", "counted", "converted", "jax_networks", "paddle_networks")
_NO_GROUPS += ("diffusers_pipelines",)
_REASON_CHARACTERS = 300
_MODELS_A_WORKER = 100  # then a fresh one: libraries keep what they made


def groups() -> list[str]:
    """Names of all groups."""
    return sorted(path.stem for path in HERE.glob("*.py") if path.stem not in _NO_GROUPS)


def load(name: str) -> Group:
    """The group of that name."""
    return Group.of(importlib.import_module(name))


def row(group: Group, model: str) -> Row:
    """The model's row; no exception leaves it."""
    from perfpass.errors import PerfPassError
    from perfpass.graph import costs

    start = time.perf_counter()
    try:
        reading = group.read(model)
        totals = costs.count(reading.graph).totals
        unknown = tuple(sorted(reading.graph.unknown_operators))
    except Exception as error:
        refused = isinstance(error, PerfPassError | NotMadeError)
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:_REASON_CHARACTERS]
        seconds = round(time.perf_counter() - start, 3)
        return Row(group.name, model, "refused" if refused else "failed", reason, seconds=seconds)
    return Row(
        group.name,
        model,
        "imported",
        operators=reading.graph.node_count,
        unknown=unknown,
        parameters=totals["parameters"],
        macs=totals["macs"],
        reference_parameters=reading.reference_parameters,
        reference_macs=reading.reference_macs,
        explained=reading.explained,
        seconds=round(time.perf_counter() - start, 3),
    )


def work(name: str, memory_bytes: int, line: Connection) -> None:
    """A worker: reads names of models from ``line``, sends their rows."""
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    sys.setrecursionlimit(10_000)
    group = load(name)
    line.send(None)
    while (model := line.recv()) is not None:
        line.send(row(group, model))


class Worker:
    """A process that makes rows of one group, replaced when it dies or takes too long."""

    def __init__(self, group: str, seconds: float, memory_bytes: int) -> None:
        self.group, self.seconds, self.memory_bytes = group, seconds, memory_bytes
        self._process: Any = None
        self._line: Any = None
        self._made = 0

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def row(self, model: str) -> Row:
        """The model's row within the seconds given; a failure in a used process is tried in a fresh one."""
        found, fresh = self._once(model), self._made == 1
        if found.outcome != "failed" or self._process is None or fresh:
            return found
        self._stop()  # libraries keep what they made, and memory is bounded
        return self._once(model)

    def _once(self, model: str) -> Row:
        if self._process is None or self._made >= _MODELS_A_WORKER:
            self._stop()
            self._start()
        start = time.perf_counter()
        try:
            self._line.send(model)
            if self._line.poll(self.seconds):
                self._made += 1
                return self._line.recv()
            reason = f"no answer after {self.seconds:g} s"
        except (EOFError, OSError):
            self._process.join()
            reason = f"the process ended with {self._process.exitcode}"
        self._stop()
        return Row(self.group, model, "failed", reason, seconds=round(time.perf_counter() - start, 3))

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._line, theirs = context.Pipe()
        self._process = context.Process(target=work, args=(self.group, self.memory_bytes, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self._line.recv()  # imports are no part of a model's seconds
        self._made = 0

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._line.close()
        self._process = None


def today() -> tuple[str, str]:
    """The day and the commit of this repository; "-dirty" behind it where perfpass differs, "" where there is none."""

    def git(*asked: str) -> str:
        found = subprocess.run(["git", "-C", str(ROOT), *asked], capture_output=True, text=True, check=False)
        return found.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "python", "cpp_kernels", "tvm_perfpass")
    return time.strftime("%Y-%m-%d", time.gmtime()), git("rev-parse", "--short=8", "HEAD") + "-dirty" * bool(changed)


def journal(group: str) -> dict[str, dict[str, Any]]:
    """Rows that are there already, by model; of several the last."""
    stored, path = RESULTS / f"{group}.json", JOURNALS / f"{group}.jsonl"
    before = []
    if stored.exists():
        document = json.loads(stored.read_text())
        readings = document["readings"]
        before = [row | readings[row.pop("reading", 0)] for row in document["rows"]]
    lines = path.read_text().splitlines() if path.exists() else []
    return {row["model"]: row for row in [*before, *map(json.loads, lines)]}


def rows(group: Group, worker: Worker, wanted: list[str]) -> Iterator[Row]:
    """New rows of the wanted models, each in the journal before it is given."""
    JOURNALS.mkdir(parents=True, exist_ok=True)
    day, code = today()
    with (JOURNALS / f"{group.name}.jsonl").open("a") as out:
        for model in wanted:
            made = replace(worker.row(model), read_on=day, code=code)
            out.write(json.dumps(asdict(made)) + "\n")
            out.flush()
            yield made


def publish(group: Group, models: list[str], made: dict[str, dict[str, Any]]) -> None:
    """The group's results, a row a line, in order; ``reading``: which of the group's readings a row is of (0 unless
    said).
    """
    found = [made[model] for model in models if model in made]
    by = sorted({(row["read_on"], row["code"]) for row in found})
    readings = [{"read_on": day, "code": code} for day, code in by]
    head: dict[str, Any] = {"group": group.name, "title": group.title, "models": len(models), "machine": machine()}
    head |= {"versions": versions("perfpass", *group.packages), "readings": readings}
    lines = []
    for row in found:
        said = {k: v for k, v in row.items() if k not in ("group", *readings[0]) and v not in (None, "", [], ())}
        reading = by.index((row["read_on"], row["code"]))
        lines.append(json.dumps(said | ({"reading": reading} if reading else {})))
    RESULTS.mkdir(parents=True, exist_ok=True)
    text = json.dumps(head, indent=1)[:-2] + ',\n "rows": [\n' + ",\n".join(f"  {line}" for line in lines) + "\n ]\n}\n"
    (RESULTS / f"{group.name}.json").write_text(text)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(groups())}; else all")
    parser.add_argument("--at-most", type=int, metavar="N", help="at most N new rows a group, for now")
    parser.add_argument("--again", nargs="+", default=[], metavar="WHAT", help="read these anew: models or outcomes")
    parser.add_argument("--seconds", type=float, default=300.0, help="a model may take (%(default)g)")
    parser.add_argument("--memory-gib", type=float, default=6.0, help="a worker may take (%(default)g)")
    options = parser.parse_args()
    for name in options.groups or groups():
        group = load(name)
        models = group.models()
        made = {m: r for m, r in journal(name).items() if not {m, r["outcome"]}.intersection(options.again)}
        wanted = [model for model in models if model not in made]
        with Worker(name, options.seconds, int(options.memory_gib * 2**30)) as worker:
            for new in rows(group, worker, wanted[: options.at_most]):
                made[new.model] = asdict(new)
                if new.outcome != "imported" or new.unknown or (new.agrees is False and not new.explained):
                    counted = (new.macs, new.reference_macs, new.parameters, new.reference_parameters)
                    print(name, new.model, new.outcome, new.reason or new.unknown or counted, flush=True)
        outcomes = [made[model]["outcome"] for model in models if model in made]
        print(f"{name}: {len(models)} models, " + ", ".join(f"{outcomes.count(o)} {o}" for o in OUTCOMES), flush=True)
        publish(group, models, made)


if __name__ == "__main__":
    main()
