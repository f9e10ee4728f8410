"""Tuning a matrix product with MetaSchedule (TVM 0.19), candidates ranked by perfpass; then the tasks of a network."""

import tempfile

import tvm
from tvm import meta_schedule as ms
from tvm import te
from tvm.relay.testing import mlp

from tvm_perfpass.cost_model import allot, cost_model, rank_tasks

target = tvm.target.Target("llvm -num-cores 1")
a, b = te.placeholder((64, 64), name="A"), te.placeholder((64, 64), name="B")
k = te.reduce_axis((0, 64), name="k")
product = te.compute((64, 64), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
mod = tvm.IRModule({"main": te.create_prim_func([a, b, product]).with_attr("global_symbol", "main")})
work_dir = tempfile.mkdtemp()

model = cost_model(target=target)  # records=["earlier/work_dir"]: what was measured before
database = ms.tir_integration.tune_tir(
    mod, target, work_dir, max_trials_global=16, num_trials_per_iter=8, cost_model=model
)
model.save(f"{work_dir}/model")  # cost_model(load=...) goes on from there
print(len(database), "candidates measured")

network, params = mlp.get_workload(batch_size=8)
ranked = rank_tasks(ms.relay_integration.extract_tasks(network, target, params), target=target)
trials = allot(ranked, 256)  # {index of the task: trials}
print([(task.name, f"{task.gain_s:.2g} s to gain", trials[task.index]) for task in ranked])
