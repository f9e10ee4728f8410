"""`perfpass inspect --as-run`: the kernels that a predictor believes a runtime makes of a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfpass.cli.options import model_sizes, print_json
from perfpass.text import columns, digits, paragraph, printable

if TYPE_CHECKING:
    from perfpass.graph import OpGraph
    from perfpass.predictors.as_run import AsRun, Kernel

_DEVICE = "a100"
_SHOWN = 60


def kernels(options: Any) -> int:
    """Prints them, the model read once."""
    from perfpass.importers import load
    from perfpass.predictors.as_run import as_run, check
    from perfpass.predictors.assemble import predict_graph, run_of
    from perfpass.predictors.by_node import node_times

    check(options.as_run)  # before the model is read
    device = options.device or _DEVICE
    graph = load(options.model, **model_sizes(options))
    how = {"precision": options.precision, "runtime": options.as_run}
    found = predict_graph(graph, device, **how)
    run = run_of(graph, device, **how)
    made = as_run(run, node_times(run, False, found.latency_ms.median).ms[0].tolist())
    if options.json:
        print_json({"device": device, "latency_ms": found.latency_ms.median, **made.to_dict(run.graph)})
    else:
        print(_table(Path(options.model).name, device, run.graph, made))
    return 0


def _table(name: str, device: str, graph: OpGraph, made: AsRun) -> str:
    title = (
        f"{printable(name)} as {made.runtime} runs it on {device} in {made.precision}: {graph.node_count} operators, "
        f"{len(made.kernels)} kernels"
    )
    rows = [("kernel", "of", "named", "ms")]
    rows += [
        (k.operator, _parts(graph, k), printable(graph.label(k.anchor))[:60], digits(k.ms))
        for k in made.kernels[:_SHOWN]
    ]
    lines = [title, columns(rows, right=(3,))]
    if len(made.kernels) > _SHOWN:
        lines.append(f"  and {len(made.kernels) - _SHOWN} more: --json has all")
    if made.launches is not None:
        lines.append(paragraph("launched", f"{made.launches:.0f} kernels are what the predictor counts"))
    if made.views:
        lines.append(paragraph("views", f"{len(made.views)} operators move nothing: {_names(graph, made.views)}"))
    if made.dropped:
        lines.append(paragraph("left out", f"{len(made.dropped)}: {_names(graph, made.dropped)}"))
    return "\n".join(lines)


def _parts(graph: OpGraph, kernel: Kernel) -> str:
    folded = set(kernel.folded)
    return " + ".join(f"{_source(graph, n)}{' (folded)' if n in folded else ''}" for n in kernel.nodes[:6]) + (
        f" + {len(kernel.nodes) - 6} more" if len(kernel.nodes) > 6 else ""
    )


def _source(graph: OpGraph, node: int) -> str:
    return printable(graph.source_op_name(node))


def _names(graph: OpGraph, nodes: tuple[int, ...]) -> str:
    found: dict[str, int] = {}
    for node in nodes:
        found[_source(graph, node)] = found.get(_source(graph, node), 0) + 1
    return ", ".join(f"{name} ({n})" for name, n in sorted(found.items(), key=lambda item: -item[1])[:6])
