"""Builds and times candidates of MetaSchedule: each in a forked child with a time limit, on one core, without linking.

TVM's local builder starts processes and links a library for every candidate (about a second); a fork of the tuning
process has TVM loaded and keeps the code in memory. A child that crashes or hangs costs its candidate alone.
"""

from __future__ import annotations

import os
import select
import signal
import struct
import time
from typing import Any

import numpy as np
import tvm
from tvm import meta_schedule as ms
from tvm.meta_schedule.utils import derived_object

REPEAT = 3
MIN_REPEAT_MS = 5
LIMIT_S = 4.0
# Run times beyond this are no candidates; the first run of a candidate tells.
_SLOW_S = 0.2


def one_core_target() -> tvm.target.Target:
    """One core of the CPU of this machine."""
    cpu = tvm.get_global_func("target.llvm_get_system_cpu")()
    return tvm.target.Target(f"llvm -mcpu={cpu} -num-cores 1")


def arguments(mod: tvm.IRModule, seed: int = 0) -> list[tvm.nd.NDArray]:
    """Random arguments of ``main``, outputs included."""
    random = np.random.default_rng(seed)
    function = mod["main"]
    buffers = [function.buffer_map[parameter] for parameter in function.params]
    shapes = [tuple(int(extent) for extent in buffer.shape) for buffer in buffers]
    return [
        tvm.nd.array(random.random(shape, dtype=np.float32).astype(buffer.dtype))
        for shape, buffer in zip(shapes, buffers, strict=True)
    ]


def seconds(library: Any, inputs: list[tvm.nd.NDArray], repeat: int, min_repeat_ms: int) -> list[float]:
    """Seconds of a run, ``repeat`` times; once only for what is hopelessly slow."""
    cpu = tvm.cpu()
    entry = library.entry_name if hasattr(library, "entry_name") and library.entry_name else "main"
    first = library.time_evaluator(entry, cpu, number=1, repeat=1)(*inputs).results
    if first[0] > _SLOW_S:
        return list(first)
    evaluate = library.time_evaluator(entry, cpu, number=1, repeat=repeat, min_repeat_ms=min_repeat_ms)
    return list(evaluate(*inputs).results)


def in_child(work: Any, limit_s: float = LIMIT_S) -> tuple[list[float], str]:
    """``work()`` (seconds) in a fork of this process: the seconds and "", or nothing and what went wrong."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        status = 1
        try:
            times = work()
            os.write(write, struct.pack(f"{len(times)}d", *times))
            status = 0
        except BaseException as error:
            os.write(write, b"!" + str(error).encode()[-400:])
        finally:
            os._exit(status)
    os.close(write)
    try:
        ready, _, _ = select.select([read], [], [], limit_s)
        if not ready:
            os.kill(child, signal.SIGKILL)
            return [], f"over {limit_s:g} s"
        answer = os.read(read, 4096)
    finally:
        os.close(read)
        os.waitpid(child, 0)
    if not answer or (answer[:1] == b"!" and len(answer) % 8):
        return [], answer[1:].decode(errors="replace") or "crashed"
    return list(struct.unpack(f"{len(answer) // 8}d", answer)), ""


_waiting: dict[str, tuple[tvm.IRModule, Any]] = {}


@derived_object
class KeepModule(ms.builder.PyBuilder):
    """Hands the module over; the runner's child compiles it."""

    def build(self, build_inputs: list[Any]) -> list[Any]:
        """One key per input in the place of a path."""
        results = []
        for item in build_inputs:
            key = f"candidate-{len(_waiting)}-{time.monotonic_ns()}"
            _waiting[key] = (item.mod, item.target)
            results.append(ms.builder.BuilderResult(key, None))
        return results


@derived_object
class _Done(ms.runner.PyRunnerFuture):
    def __init__(self, times: list[float], problem: str) -> None:
        self.times, self.problem = times, problem

    def done(self) -> bool:
        return True

    def result(self) -> Any:
        return ms.runner.RunnerResult(self.times or None, self.problem or None)


@derived_object
class ForkRunner(ms.runner.PyRunner):
    """Compiles and times each candidate in a child, and keeps what it timed; ``spent_s`` is the time that took."""

    def __init__(self) -> None:
        super().__init__()
        self.spent_s = 0.0
        self.seconds: list[float] = []
        self.modules: list[tvm.IRModule] = []
        self.inputs: dict[str, list[tvm.nd.NDArray]] = {}

    def best(self, count: int) -> tvm.IRModule | None:
        """The fastest of the first ``count`` candidates; None where none ran."""
        place = int(np.argmin(self.seconds[:count] or [np.inf]))
        return self.modules[place] if self.seconds and np.isfinite(self.seconds[place]) else None

    def run(self, runner_inputs: list[Any]) -> list[Any]:
        """One finished future per input, in order."""
        started = time.monotonic()
        futures = []
        for item in runner_inputs:
            mod, target = _waiting.pop(str(item.artifact_path))
            key = str(item.args_info)
            if key not in self.inputs:
                self.inputs[key] = arguments(mod)
            inputs = self.inputs[key]

            def work(mod: Any = mod, target: Any = target, inputs: Any = inputs) -> list[float]:
                with tvm.transform.PassContext(opt_level=3):
                    library = tvm.build(mod, target=target)
                return seconds(library, inputs, REPEAT, MIN_REPEAT_MS)

            times, problem = in_child(work)
            self.seconds.append(float(np.median(times)) if times else float("inf"))
            self.modules.append(mod)
            futures.append(_Done(times, problem))
        self.spent_s += time.monotonic() - started
        return futures


def callbacks() -> list[Any]:
    """What MetaSchedule does after a measurement, without removing build folders that do not exist."""
    return [ms.measure_callback.AddToDatabase(), ms.measure_callback.UpdateCostModel()]
