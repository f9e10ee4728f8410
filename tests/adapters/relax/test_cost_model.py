"""MetaSchedule's cost model in TVM 0.27, and which tasks of a Relax network are worth tuning."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import cost_model_cases as cases
from cost_model_promises import *  # noqa: F403 - the promises shared with 0.19
from cost_model_promises import CORE
from tvm import relax
from tvm.s_tir import meta_schedule as ms

from tvm_perfpass.cost_model import rank_tasks


def test_the_tasks_worth_tuning_come_first():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 128), "float32"))
    w = relax.Var("w", relax.TensorType((128, 1024), "float32"))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            y = builder.emit(relax.op.nn.relu(builder.emit(relax.op.matmul(x, w))))
            out = builder.emit_output(relax.op.nn.softmax(y))
        builder.emit_func_output(out)
    mod = relax.transform.LegalizeOps()(builder.get())
    tasks = ms.relax_integration.extract_tasks(mod, cases.TARGET)
    ranked = rank_tasks(tasks, hardware=CORE)
    assert sorted(task.index for task in ranked) == list(range(len(tasks)))
    assert "matmul" in ranked[0].name and ranked[0].gain_s > ranked[-1].gain_s
