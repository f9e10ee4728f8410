"""Distillation of a graph network into our trees, tried on validation rows alone; what it gave is kept as JSON.

    python -m perfpass.study.tried --task training_step --split architecture -o data/results/comparison

A teacher answers for every training row without having seen its architecture (three folds). Its answers become an input
of the trees, or a part of what they learn. The trees alone, the teacher alone and their mixture are graded beside them.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.errors import ArgumentError
from perfpass.study import blend, table
from perfpass.training.ratio_trees import TREES
from perfpass.training.tasks import ours
from perfpass.training.tasks.splits import groups_into_folds
from perfpass.training.tasks.tasks import Split, Task
from perfpass.whole_file import write_whole

FOLDS = 3
# How much of what the trees learn is the teacher's answer in place of the measurement.
SOFT = (0.25, 0.5)
FILE = "distillation.json"


def answers(teacher: Any, task: Task, split: Split, seed: int) -> np.ndarray:
    """[N] what the teacher says: of training rows without their architecture, of validation rows from all of training.

    NaN elsewhere.
    """
    found = np.full(len(task), np.nan)
    fold = groups_into_folds(list(task.rows.architecture.iloc[split.train]), FOLDS, seed)
    for i in range(FOLDS):
        inner = replace(split, train=split.train[fold != i], test=split.train[fold == i])
        found[inner.test] = teacher.fit(task, table.graphs(), inner, seed).predict(inner.test)
    found[split.valid] = teacher.fit(task, table.graphs(), split, seed).predict(split.valid)
    return found


def graded(task: Task, split: Split, said: np.ndarray, seed: int = 0) -> dict[str, float]:
    """MAPE in percent on ``split.valid`` of every way to use the answers ``said`` [N]."""
    student = _Student(task, split, seed)
    measured, valid = task.value[split.valid], split.valid
    alone = student.learn(None, None)
    found = {"trees": blend.mape_pct(alone, measured), "teacher": blend.mape_pct(said[valid], measured)}
    mixed = {"trees": alone, "teacher": said[valid]}
    group = task.rows.architecture.to_numpy(str)[valid]
    found["mixture"] = blend.validated_pct(mixed, measured, group)
    relative = np.log(said / student.base)
    found["answers as an input"] = blend.mape_pct(student.learn(relative, None), measured)
    for share in SOFT:
        target = (1 - share) * np.log(task.value / student.base) + share * relative
        found[f"answers as {share:.0%} of the target"] = blend.mape_pct(student.learn(None, target), measured)
    return found


class _Student:
    """Our trees on a split, with an input more or another target."""

    def __init__(self, task: Task, split: Split, seed: int) -> None:
        self.task, self.split, self.seed = task, split, seed
        record = task.rows.record.to_numpy()
        if task.name == "latency":
            from perfpass.training.inference import model

            dataset, known = ours.vision_data(), record[split.train]
            arrays = model.arrays(dataset, model.efficiency_of(dataset, known), known)
            x, base, self.settings, self.rounds = arrays.x, arrays.base_s, {**TREES, **model.TREES}, model.ROUNDS
        elif task.name == "training_step":
            from perfpass.training.training_step import model as steps

            corpus, learned = ours.step_corpus(), record[split.train]
            data = corpus.dataset
            base = corpus.vision.seconds(corpus.levels(np.setdiff1d(np.arange(len(data)), learned)))
            efficiency = steps.fit_efficiency(steps.Rows.of(data, base, learned))
            x, self.settings, self.rounds = data.features(efficiency)[0], {**TREES, **steps.TREES}, steps.ROUNDS
        else:
            raise ArgumentError(f"no trees answer for {task.name!r}; allowed are latency, training_step")
        self.x, self.base = x[record], 1e3 * base[record]

    def learn(self, column: np.ndarray | None, target: np.ndarray | None) -> np.ndarray:
        """[len(split.valid)] predictions. ``column`` [N]: one input more; ``target`` [N]: of log(measured / base)."""
        import xgboost

        x = self.x if column is None else np.hstack([self.x, column[:, None].astype(np.float32)])
        wanted = np.log(self.task.value / self.base) if target is None else target
        data = xgboost.DMatrix(x[self.split.train], wanted[self.split.train])
        booster = xgboost.train({**self.settings, "seed": self.seed}, data, self.rounds)
        valid = self.split.valid
        return np.asarray(self.base[valid] * np.exp(booster.predict(xgboost.DMatrix(x[valid]))))


def main(arguments: Sequence[str] | None = None) -> None:
    """Try what the file lacks, and add it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="training_step")
    parser.add_argument("--split", default="architecture")
    parser.add_argument("--teacher", default="dippm")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", required=True, help="folder of " + FILE)
    options = parser.parse_args(arguments)
    task, splits = table.task_of(options.task), table.splits_of(options.task, options.seed)
    if options.split not in splits:
        raise ArgumentError(f"{options.task} has no split {options.split!r}; allowed are {', '.join(splits)}")
    split = splits[options.split]
    started = time.process_time()
    said = answers(table.method_of(options.teacher), task, split, options.seed)
    entry = {
        "task": options.task,
        "split": options.split,
        "teacher": options.teacher,
        "valid_rows": len(split.valid),
        "valid_mape_pct": {name: round(value, 3) for name, value in graded(task, split, said, options.seed).items()},
        "processor_s": round(time.process_time() - started),
    }
    path = Path(options.output) / FILE
    known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    key = ("task", "split", "teacher")
    known = [k for k in known if [k[n] for n in key] != [entry[n] for n in key]]
    write_whole(path, json.dumps([*known, entry], indent=1) + "\n")
    print(json.dumps(entry), file=sys.stderr)


if __name__ == "__main__":
    main()
