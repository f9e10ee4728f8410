"""`perfpass inspect`: a model's inputs, operators and totals."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfpass.cli.options import (
    RUNTIMES,
    add_json,
    add_model,
    model_sizes,
    new_command,
    print_json,
    ranged_dims,
    refuse,
)
from perfpass.errors import FormatError, ShapeError, UnsupportedError, about
from perfpass.text import columns, count, paragraph, printable, size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perfpass.decision import Decision
    from perfpass.graph import OpGraph
    from perfpass.importers.onnx import Input


_EPILOG = """\
examples:
  perfpass inspect model.onnx
  perfpass inspect model.onnx --dim batch=8 --json
  perfpass inspect encoder.onnx --symbolic                     FLOPs and memory as formulas of batch and sequence
  perfpass inspect encoder.onnx --batch 1 --dim sequence=128..4096
  perfpass inspect resnet50.onnx --as-run tensorrt --device t4 --precision fp16"""


def add(commands: Any) -> None:
    """The command's options."""
    command = new_command(
        commands,
        "inspect",
        run,
        "show a model's inputs, symbolic dimensions, operators and exact totals",
        _EPILOG,
    )
    add_model(command)
    command.add_argument(
        "--symbolic", action="store_true", help="exact formulas of the sizes that --dim and --batch leave open"
    )
    command.add_argument(
        "--as-run", metavar="RUNTIME", help=f"the kernels that a runtime makes of it: {', '.join(RUNTIMES)}"
    )
    command.add_argument("--device", metavar="NAME", help="of --as-run: where (default: a100)")
    command.add_argument("--precision", default="fp32", metavar="P", help="of --as-run (default: fp32)")
    add_json(command, "tables")


def run(options: Any) -> int:
    """Prints the inspection: inputs first, so that the symbolic dimensions to set can be seen."""
    if options.as_run is not None:
        from perfpass.cli.inspect_kernels import kernels

        refuse(options, ("symbolic",), "`perfpass inspect --as-run`")
        return kernels(options)
    refuse(options, ("device", "precision"), "`perfpass inspect` without --as-run")
    if options.symbolic:
        from perfpass.cli.inspect_symbolic import formulas

        return formulas(options)
    if any(len(sizes) > 1 for sizes in ranged_dims(options).values()):
        from perfpass.cli.inspect_symbolic import at_sizes

        return at_sizes(options)
    from perfpass.importers import load

    inputs = _declared_inputs(options.model)
    try:
        graph = load(options.model, **model_sizes(options))
    except ShapeError:
        # What to set is what the user needs now: show it, then fail with the error that names it.
        if inputs and not options.json:
            print(_inputs_table(inputs))
            sys.stdout.flush()
        raise
    with about(options.model):
        found = _inspection(graph, inputs)
    decisions, damaged = _decisions(options.model)
    if damaged:
        found["notes"].append(damaged)
    if options.json:
        print_json({**found, "decisions": {name: one.to_dict() for name, one in decisions.items()}})
    else:
        print(_table(Path(options.model).name, found))
        for one in decisions.values():
            print(paragraph("decision", one.headline))
    return 0


def _decisions(model: str) -> tuple[Mapping[str, Decision], str]:
    """What `perfpass annotate` has left in an ONNX file, by device; and why that cannot be read, "" where it can."""
    from perfpass.importers.model_argument import understood

    found = understood(model)
    if found.kind != "onnx":
        return {}, ""
    try:
        from perfpass.annotation.file import read

        return read(found.name).annotation.decisions, ""
    except (FormatError, UnsupportedError) as error:
        return {}, str(error)


def _declared_inputs(model: str) -> tuple[Input, ...]:
    """The inputs a file declares, before any dimension is set; none for other kinds of model."""
    from perfpass.importers.model_argument import understood

    found = understood(model)
    if found.kind == "file":
        from perfpass.importers import formats

        return formats.named(found.format).inputs(Path(found.name))
    if found.kind != "onnx":
        return ()
    from perfpass.importers import onnx

    return onnx.inputs(found.name)


def _inspection(graph: OpGraph, inputs: tuple[Input, ...]) -> dict[str, Any]:
    """Inputs, operators and totals as JSON types."""
    import numpy as np

    from perfpass.graph import DTYPES, OPERATOR_CLASS_OF, OPERATOR_CLASSES, OPERATORS, costs
    from perfpass.graph import liveness as memory

    counted = costs.count(graph)
    plan = memory.plan(graph)
    declared = {item.name: list(item.shape) for item in inputs if item.shape is not None}
    kinds, first, repeats = np.unique(graph.op, return_index=True, return_counts=True)
    macs = np.bincount(graph.op, weights=counted.macs, minlength=len(OPERATORS))
    flops = np.bincount(graph.op, weights=counted.flops, minlength=len(OPERATORS))
    operators = [
        {
            "operator": OPERATORS[kind],
            "class": OPERATOR_CLASSES[int(OPERATOR_CLASS_OF[kind])],
            "source_operator": graph.source_op_name(int(node)),
            "nodes": int(number),
            "macs": int(macs[kind]),
            "flops": int(flops[kind]),
        }
        for kind, node, number in zip(kinds.tolist(), first.tolist(), repeats.tolist(), strict=True)
    ]
    operators.sort(key=lambda row: (-row["macs"], -row["nodes"]))
    return {
        "inputs": [
            {
                "name": (name := graph.string(int(graph.tensor_name[t]))),
                "dtype": DTYPES[int(graph.tensor_dtype[t])],
                "shape": list(graph.shape(int(t))),
                "declared": declared.get(name),
            }
            for t in graph.graph_inputs
        ],
        "outputs": [
            {
                "name": graph.string(int(graph.tensor_name[t])),
                "dtype": DTYPES[int(graph.tensor_dtype[t])],
                "shape": list(graph.shape(int(t))),
            }
            for t in graph.graph_outputs
        ],
        "nodes": int(graph.node_count),
        "edges": int(graph.edge_count),
        "totals": {key: int(value) for key, value in counted.totals.items()},
        "memory": {
            "weight_bytes": int(plan.weight_bytes),
            "peak_activation_bytes": int(plan.peak_activation_bytes),
        },
        "operators": operators,
        "unknown_operators": dict(graph.unknown_operators),
        "stated_operators": dict(graph.stated_operators),
        "notes": list(graph.notes),
    }


def _inputs_table(inputs: tuple[Input, ...]) -> str:
    """The declared inputs with their symbolic dimensions, which --dim and --batch set."""
    rows = [("input", "dtype", "shape")]
    rows += [(printable(i.name), i.dtype, _dims(i.shape) if i.shape is not None else "not declared") for i in inputs]
    symbols = dict.fromkeys(d for i in inputs for d in i.shape or () if isinstance(d, str))
    table = columns(rows)
    if symbols:
        table += "\n" + paragraph("to be set", ", ".join(f"--dim {name}=N" for name in symbols))
    return table


def _table(name: str, found: dict[str, Any]) -> str:
    """The inspection for people."""
    totals, plan = found["totals"], found["memory"]
    inputs = [("input", "dtype", "shape", "declared as")]
    inputs += [
        (printable(i["name"]), i["dtype"], _dims(i["shape"]), _dims(i["declared"]) if i["declared"] else "-")
        for i in found["inputs"]
    ]
    outputs = [("output", "dtype", "shape")]
    outputs += [(printable(o["name"]), o["dtype"], _dims(o["shape"])) for o in found["outputs"]]
    operators = [("operator", "class", "in the source", "nodes", "MACs", "FLOPs")]
    operators += [
        (
            o["operator"],
            o["class"],
            printable(o["source_operator"]),
            str(o["nodes"]),
            count(o["macs"]),
            count(o["flops"]),
        )
        for o in found["operators"]
    ]
    lines = [
        f"{printable(name)}: {found['nodes']} nodes, {found['edges']} edges",
        paragraph("work", f"{count(totals['macs'], 'MAC')}, {count(totals['flops'], 'FLOP')}"),
        paragraph("parameters", f"{count(totals['parameters'])} ({size(totals['weight_bytes'])})"),
        paragraph("traffic", f"{size(totals['bytes_read'])} read, {size(totals['bytes_written'])} written"),
        paragraph("memory", f"{size(plan['weight_bytes'])} weights, {size(plan['peak_activation_bytes'])} activations"),
        "",
        columns(inputs),
        "",
        columns(outputs),
        "",
        columns(operators, right=(3, 4, 5)),
    ]
    if found["unknown_operators"]:
        names = ", ".join(f"{printable(n)} ({c})" for n, c in found["unknown_operators"].items())
        lines += ["", paragraph("no cost model", names)]
    if found["stated_operators"]:
        names = ", ".join(f"{printable(n)} ({c})" for n, c in found["stated_operators"].items())
        lines += ["", paragraph("as stated", names)]
    lines += [paragraph("note", note) for note in found["notes"]]
    return "\n".join(lines)


def _dims(shape: Any) -> str:
    return "x".join(printable(str(d)) for d in shape) or "scalar"
