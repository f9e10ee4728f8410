"""The promises of `relations` on a part of the questions; ``python -m tests.metamorphic.whole`` asks them all."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import lru_cache

import pytest

from . import boards, doors, judge, questions, scenes, whole
from .networks import QUICK
from .relations import RELATIONS

# Few draws of each kind, and of networks that are quickly read.
DRAWS = dict.fromkeys(scenes.DRAWS, 6) | {
    scenes.kept: 1,
    scenes.board: 2,
    scenes.serving_board: 1,
    scenes.offline_board: 1,
}
LEAST_QUESTIONS = 500


@lru_cache(maxsize=1)
def verdicts() -> dict[str, judge.Verdict]:
    """Of the sample, judged once."""
    found = whole.tried(DRAWS, networks=QUICK)
    doors.judge_doors(8, found)
    return found


@pytest.mark.parametrize("relation", RELATIONS)
def test_no_answer_breaks_its_promise(relation):
    verdict = verdicts()[relation]
    assert verdict.compared >= 1
    assert not verdict.violations, "\n".join(str(v) for v in judge.worst([verdict], 5, each=5))


def test_the_sample_asks_many_questions_and_most_are_answered():
    found = verdicts()
    refused = sum(v.refused for v in found.values())
    assert questions.asked() >= LEAST_QUESTIONS
    assert refused < 0.2 * questions.asked()


def test_the_whole_asks_at_least_3000_questions():
    kinds = (scenes.batch, scenes.slice, scenes.board)
    drawn = (scene for kind in kinds for scene in scenes.scenes(kind, scenes.DRAWS[kind]))
    assert len({question for scene in drawn for question in scene.questions}) >= 3000


def test_the_command_reports_what_it_compared(tmp_path, root):
    """Of the optimizers' memory, which is in order."""
    arguments = ["--only", "optimizer", "--scale", "0.01", "--json", str(tmp_path / "out.json")]
    program = [sys.executable, "-m", "tests.metamorphic.whole", *arguments]
    run = subprocess.run(program, cwd=root, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.search(r"\d+ questions, \d+ comparisons, 0 broken", run.stdout)
    found = json.loads((tmp_path / "out.json").read_text())["relations"]["optimizer"]
    assert found["compared"] > 0 and found["violations"] == []


def test_a_broken_promise_is_seen():
    """The judge itself: an answer that falls where it should rise, and one beyond its tolerance."""
    one, two = (questions.Run("2 convolutions", "t4", batch) for batch in (4096, 1))
    verdict = judge.Verdict()
    judge.chain("batch", (one, two), verdict)
    assert {v.figure for v in verdict.violations} == {
        "latency_ms.median",
        "peak_memory_bytes.median",
        "energy_j.median",
    }
    assert judge.excess("falls", 2.0, 3.0) == pytest.approx(0.5)
    assert judge.excess("rises", 2.0, 3.0) < 0


def test_a_board_is_better_only_if_it_is_behind_in_nothing():
    l4, l40s, h100, h200 = (boards.device(name) for name in ("l4", "l40s", "h100", "h200"))
    used = boards.rates("fp16")
    assert boards.better(l4, l40s, used) and boards.better(h100, h200, used)
    assert not boards.better(h200, h100, used) and not boards.better(l4, l4, used)
    assert not boards.better(l4, boards.device("mi300x"), used)  # another vendor's software
