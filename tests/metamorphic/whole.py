"""Every promise on every question: ``python -m tests.metamorphic.whole [--json OUT] [--seed N] [--only RELATION]``.

Run it in the repository's root. It prints, for each relation, what was compared and what broke it, then the worst, and
exits with 1 where a promise is broken.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

if __package__ == "tests.metamorphic":
    # small_networks stands beside this folder, as for pytest
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from . import doors, judge, questions, scenes
from .networks import NETWORKS
from .relations import RELATIONS

DOOR_DRAWS = 100


def tried(
    draws: dict[Any, int], seed: int = 0, only: str | None = None, networks: Collection[str] = NETWORKS
) -> dict[str, judge.Verdict]:
    """Verdicts by relation, of so many draws of each kind of scene."""
    verdicts: dict[str, judge.Verdict] = {}
    seen: set[questions.Question] = set()
    for kind, count in draws.items():
        for scene in scenes.scenes(kind, count, seed, networks):
            relations = [name for name in scene.relations if only in (None, name)]
            for relation in relations:
                judge.chain(relation, scene.questions, verdicts.setdefault(relation, judge.Verdict()))
            if relations:
                seen |= set(scene.questions)
    for question in sorted(seen, key=str):
        found = questions.ask(question)
        if not isinstance(found, str):
            judge.alone(question, found.figures, verdicts)
    return verdicts


def everything(scale: float, seed: int = 0, only: str | None = None) -> dict[str, judge.Verdict]:
    """All scenes, and all doors; ``only`` one relation."""
    draws = {kind: max(1, round(count * scale)) for kind, count in scenes.DRAWS.items()}
    verdicts = tried(draws, seed, only) if only not in ("doors", "again") else {}
    if only in (None, "doors", "again"):
        doors.judge_doors(max(4, round(DOOR_DRAWS * scale)), verdicts, seed)
    return verdicts if only is None else {only: verdicts.get(only, judge.Verdict())}


def summary(verdicts: dict[str, judge.Verdict], most: int = 30) -> str:
    """For people: a line for each relation, those of its figures that fail, and the worst."""
    lines = [f"{'relation':<22}{'compared':>10}{'refused':>9}{'broken':>8}{'worst':>10}  promise"]
    for name, promise in RELATIONS.items():
        if name not in verdicts:
            continue
        v = verdicts[name]
        furthest = max((x.excess for x in v.violations), default=0.0)
        lines.append(
            f"{name:<22}{v.compared:>10,}{v.refused:>9,}{len(v.violations):>8,}{furthest:>10.2%}  {promise.promise}"
        )
        for figure in sorted({x.figure for x in v.violations}):
            mine = [x.excess for x in v.violations if x.figure == figure]
            over = sum(x > 0.05 for x in mine)
            lines.append(f"    {figure:<30}{len(mine):>15,}{max(mine):>10.2%}  {over} by over 5%")
    lines += ["", f"the {most} worst, three of a relation"]
    lines += [str(v) for v in judge.worst(verdicts.values(), most, each=3)]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.metamorphic.whole", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--json", type=Path, metavar="OUT", help="write counts and violations")
    parser.add_argument("--seed", type=int, default=0, help="other questions (default: 0)")
    parser.add_argument("--only", choices=tuple(RELATIONS), help="one relation")
    parser.add_argument("--scale", type=float, default=1.0, help="times as many draws (default: 1)")
    options = parser.parse_args(arguments)
    begun = time.monotonic()
    verdicts = everything(options.scale, options.seed, options.only)
    broken = sum(len(v.violations) for v in verdicts.values())
    print(summary(verdicts))
    print(
        f"\n{questions.asked():,} questions, {sum(v.compared for v in verdicts.values()):,} comparisons, "
        f"{broken:,} broken, in {time.monotonic() - begun:.0f} s"
    )
    if options.json:
        report = {
            "seed": options.seed,
            "questions": questions.asked(),
            "relations": {
                name: {
                    "promise": RELATIONS[name].promise,
                    "tolerance": RELATIONS[name].tolerance,
                    "compared": v.compared,
                    "refused": v.refused,
                    "violations": [x.to_dict() for x in sorted(v.violations, key=lambda x: -x.excess)],
                }
                for name, v in verdicts.items()
            },
        }
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
