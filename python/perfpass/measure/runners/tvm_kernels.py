"""The kernels of a network that TVM built: what each computes, and how long it takes where it runs."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

from perfpass.measure.timing import significant

_MOST_RUNS, _LEAST_RUNS, _MOST_S = 15, 2, 1.5


def watching(found: dict[str, str]) -> Any:
    """An instrument of a build that fills ``found`` (`texts`)."""
    import tvm

    @tvm.instrument.pass_instrument
    class Watching:
        def run_after_pass(self, module: Any, info: Any) -> None:
            if info.name == "LabelOps":
                found.update(texts(module))

    return Watching()


def texts(module: Any) -> dict[str, str]:
    """By the hash that TVM labels it with: the Relay text of every fused function of a module after "LabelOps"."""
    import tvm
    from tvm import relay

    found: dict[str, str] = {}

    def visit(expression: Any) -> None:
        if isinstance(expression, relay.Function) and expression.attrs and "Primitive" in expression.attrs:
            plain = relay.Function(expression.params, expression.body, expression.ret_type)
            found[str(expression.attrs["hash"])] = tvm.IRModule.from_expr(plain).astext()

    relay.analysis.post_order_visit(module["main"], visit)
    return found


def timed(library: Any, device: Any, values: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    """The kernels of a graph executor's ``library`` in the order of their first run.

    Each with its name and hash, its ``calls`` in a run, and the ``median_us``, ``min_us`` and ``max_us`` of one call
    over several runs of the network (of the mean over its calls).
    """
    import tvm
    from tvm.contrib.debugger import debug_executor

    module = library["debug_create"]("default", device)
    executor = debug_executor.GraphModuleDebug(module, [device], library["get_graph_json"](), None)
    for name, x in values.items():
        executor.set_input(name, tvm.nd.array(x))
    executor.profile()
    taken: dict[tuple[str, str], list[float]] = defaultdict(list)
    calls: dict[tuple[str, str], int] = {}
    start = time.monotonic()
    for run in range(_MOST_RUNS):
        if run >= _LEAST_RUNS and time.monotonic() - start > _MOST_S:
            break
        of_run: dict[tuple[str, str], list[float]] = defaultdict(list)
        for call in executor.profile().calls:
            if "Hash" in call:
                of_run[str(call["Name"]), str(call["Hash"])].append(call["Duration (us)"].microseconds)
        for key, each in of_run.items():
            taken[key].append(float(np.mean(each)))
            calls[key] = len(each)
    return [
        {"name": name, "hash": label, "calls": calls[name, label]}
        | {
            "median_us": significant(float(np.median(us))),
            "min_us": significant(min(us)),
            "max_us": significant(max(us)),
        }
        for (name, label), us in taken.items()
    ]
