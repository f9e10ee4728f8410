"""What the tests of the tuning cost model share between TVM 0.19 and 0.27: a product, a real builder and runner."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import tvm
from tvm import te

from tvm_perfpass.cost_model import tvm_names

ms = tvm_names.meta_schedule()
TARGET = tvm.target.Target({"kind": "llvm", "num-cores": 1})


def product(m: int = 32, n: int = 48, k: int = 24) -> Any:
    """A TIR function: A [m, k] times B [k, n]."""
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), name="r")
    return te.create_prim_func([a, b, te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")])


def doubled(n: int = 8) -> Any:
    """A TIR function with hardly anything to tune: 2 x, element by element."""
    x = te.placeholder((n,), name="X")
    return te.create_prim_func([x, te.compute((n,), lambda i: x[i] * 2.0, name="Y")])


def context(function: Any) -> Any:
    """A tuning context of one function."""
    mod = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    return ms.TuneContext(
        mod=mod,
        target=TARGET,
        space_generator="post-order-apply",
        search_strategy=search(),
        num_threads=1,
        rand_state=7,
        task_name="main",
    ).clone()


def search() -> Any:
    """A search that is over soon."""
    return ms.search_strategy.EvolutionarySearch(population_size=12, init_min_unmeasured=6, genetic_num_iters=1)


class _InProcess:
    """Compiles and runs in this process; every ``fail_every``-th build fails."""

    def __init__(self, fail_every: int = 0) -> None:
        self.fail_every, self.built, self.libraries = fail_every, 0, {}


def builder_and_runner(fail_every: int = 0) -> tuple[Any, Any]:
    """A MetaSchedule builder and runner without other processes: 0.27's own need a package that pickles code."""
    shared = _InProcess(fail_every)

    @tvm_names.derived_object()
    class Builder(ms.builder.PyBuilder):
        def build(self, build_inputs: Any) -> list[Any]:
            results = []
            for item in build_inputs:
                shared.built += 1
                if shared.fail_every and shared.built % shared.fail_every == 0:
                    results.append(ms.builder.BuilderResult(None, "the compiler gave up"))
                    continue
                key = str(shared.built)
                compile_ = getattr(tvm, "compile", None) or tvm.build
                shared.libraries[key] = compile_(item.mod, target=item.target)
                results.append(ms.builder.BuilderResult(key, None))
            return results

    @tvm_names.derived_object()
    class Future(ms.runner.PyRunnerFuture):
        def __init__(self, seconds: list[float]) -> None:
            self.seconds = seconds

        def done(self) -> bool:
            return True

        def result(self) -> Any:
            return ms.runner.RunnerResult(self.seconds, None)

    @tvm_names.derived_object()
    class Runner(ms.runner.PyRunner):
        def run(self, runner_inputs: Any) -> list[Any]:
            futures = []
            for item in runner_inputs:
                library = shared.libraries[str(item.artifact_path)]
                inputs = [tensor(np.ones([int(d) for d in info.shape], dtype=info.dtype)) for info in item.args_info]
                module = getattr(library, "mod", library)
                evaluate = module.time_evaluator("main", tvm.cpu(), number=1, repeat=2)
                futures.append(Future([float(s) for s in evaluate(*inputs).results]))
            return futures

    return Builder(), Runner()


def tensor(values: np.ndarray) -> Any:
    """A NumPy array as a tensor of TVM."""
    return tvm.nd.array(values) if hasattr(tvm, "nd") else tvm.runtime.tensor(values)


def tune(function: Any, model: Any, folder: str | Path, trials: int = 8, fail_every: int = 0) -> Any:
    """A real tuning run: candidates are compiled and timed. Returns the database."""
    builder, runner = builder_and_runner(fail_every)
    # Not tune_tir: its log files are set up once per process.
    Path(folder).mkdir(parents=True, exist_ok=True)
    # TVM asks for the stack thousands of times, and for each frame Python looks through all modules that are loaded:
    # beside torch and its like most of the time of a run. Without the module the source is found by its file.
    with mock.patch("inspect.getmodule", return_value=None):
        return ms.tune_tasks(
            tasks=[context(function)],
            task_weights=[1.0],
            work_dir=str(folder),
            max_trials_global=trials,
            num_trials_per_iter=4,
            builder=builder,
            runner=runner,
            measure_callbacks=[ms.measure_callback.AddToDatabase(), ms.measure_callback.UpdateCostModel()],
            cost_model=model,
        )


def candidates(function: Any, count: int = 8) -> tuple[Any, list[Any]]:
    """A tuning context and some of its candidates, as the search samples them."""
    with tempfile.TemporaryDirectory() as folder:
        found = []

        @tvm_names.derived_object()
        class Listener(ms.cost_model.PyCostModel):
            def load(self, path: str) -> None:
                raise AssertionError(path)

            def save(self, path: str) -> None:
                raise AssertionError(path)

            def update(self, context: Any, candidates: Any, results: Any) -> None:
                pass

            def predict(self, context: Any, candidates: Any) -> np.ndarray:
                found.extend(candidates)
                return np.random.default_rng(len(found)).random(len(candidates))

        tune(function, Listener(), folder, trials=4)
    return context(function), found[:count]
