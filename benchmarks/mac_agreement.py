"""MACs counted by perfpass beside public counters, on real architectures; every difference is listed with its reason.

    python benchmarks/mac_agreement.py [--json FILE] [--models N] [--onnx N]

Part 1: each architecture is traced on the meta device and counted, and torch's own FlopCounterMode counts the same
forward pass (its FLOPs / 2). Part 2: a part of them is exported to ONNX, and the ONNX file, the torch trace and
onnx-tool are compared: MACs, parameters, total bytes. No weight is downloaded.
docs/research/mac-agreement.md explains the
differences.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import math
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from architectures import ONNX, TORCHVISION, TRANSFORMERS, build, shapes, timm_names
from report import publish, table
from torch.utils.flop_counter import FlopCounterMode

from perfpass.graph import OpGraph, costs
from perfpass.importers import onnx as onnx_importer
from perfpass.importers import torchvision_schemas
from perfpass.importers.torch import trace, trace_owned

torchvision_schemas.define()
BATCH = 2
# Operators with MACs that FlopCounterMode does not count, and why a network's total may differ from it.
NOT_COUNTED_BY_TORCH = {
    "deform_conv": "deformable convolution is torchvision's own operator",
}


def flops_by_torch(model: torch.nn.Module, inputs: dict[str, torch.Tensor], positional: bool) -> int:
    """FlopCounterMode over one forward pass on the meta device."""
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        if positional:
            model(*inputs.values())
        else:
            model(**inputs)
    return int(counter.get_total_flops())


def meta_inputs(wanted: Any) -> tuple[dict[str, torch.Tensor], bool]:
    """The inputs that `trace` would make, and whether they are positional."""
    if not isinstance(wanted, dict):
        return {"input": torch.empty((BATCH, *wanted), device="meta")}, True
    return {
        name: torch.empty((BATCH, *shape), dtype=getattr(torch, kind), device="meta")
        for name, (shape, kind) in wanted.items()
    }, False


def agreement(source: str, name: str) -> dict[str, Any]:
    """One row: MACs by both, and what explains a difference."""
    wanted = shapes(source, name)
    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = build(source, name).eval().requires_grad_(False)
    graph = trace_owned(model, wanted, batch=BATCH)
    counted = costs.count(graph)
    ours = int(counted.macs.sum())
    inputs, positional = meta_inputs(wanted)
    theirs, odd = divmod(flops_by_torch(model, inputs, positional), 2)
    row = {
        "source": source,
        "model": name,
        "nodes": graph.node_count,
        "macs": ours,
        "torch_macs": theirs,
        "difference": ours - theirs,
    }
    reasons = []
    if ours != theirs or odd:
        excess = macs_by_kind(graph, counted, set(NOT_COUNTED_BY_TORCH))
        reasons = [f"{NOT_COUNTED_BY_TORCH[k]}: {v} MACs" for k, v in excess.items() if v]
        row["explained"] = sum(excess.values()) == ours - theirs and not odd
    return row | {"agrees": ours == theirs and not odd, "reason": "; ".join(reasons)}


def macs_by_kind(graph: OpGraph, counted: costs.Costs, kinds: set[str]) -> dict[str, int]:
    """MACs of the operators of the given kinds."""
    sums = dict.fromkeys(sorted(kinds), 0)
    for node in np.flatnonzero(counted.macs):
        kind = graph.op_name(int(node))
        if kind in sums:
            sums[kind] += int(counted.macs[node])
    return sums


def export(model: torch.nn.Module, wanted: Any, path: Path) -> None:
    """The network as it is: no constant is folded and batch normalization stays a node of its own."""
    if isinstance(wanted, dict):
        inputs = tuple(torch.zeros((BATCH, *shape), dtype=getattr(torch, kind)) for shape, kind in wanted.values())
    else:
        inputs = (torch.zeros((BATCH, *wanted)),)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model,
            inputs,
            str(path),
            dynamo=False,
            do_constant_folding=False,
            training=torch.onnx.TrainingMode.PRESERVE,
            opset_version=17,
        )


def distinct_values(model: torch.nn.Module) -> None:
    """Give every parameter and statistic random values.

    torch's exporter merges tensors with equal content, such as the zero biases of a new model, into one initializer.
    """
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            if tensor.is_floating_point():
                tensor.uniform_(0.01, 0.02, generator=generator)


def macs_by_onnx_tool(path: Path) -> int:
    """onnx-tool's MACs of convolutions and matrix products (it counts other operators too, by rules of its own)."""
    import onnx_tool

    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = onnx_tool.Model(str(path), {"constant_folding": True, "verbose": False}).graph
        graph.shape_infer()
        graph.profile()
    products = ("Conv", "ConvTranspose", "Gemm", "MatMul")
    return sum(int(node.macs[0]) for node in graph.nodemap.values() if node.op_type in products)


def bias_additions(graph: OpGraph) -> int:
    """Output elements of convolutions and dense layers with a bias: onnx-tool counts the addition as a MAC each."""
    total = 0
    for node in range(graph.node_count):
        inputs = graph.node_inputs(node)
        if graph.op_name(node) in ("conv", "conv_transpose", "dense") and len(inputs) > 2 and inputs[2] >= 0:
            total += math.prod(graph.shape(int(graph.node_outputs(node)[0])))
    return total


def three_routes(source: str, name: str, folder: Path) -> dict[str, Any]:
    """One network as an ONNX file, as a torch trace, and as onnx-tool counts it."""
    wanted = shapes(source, name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = build(source, name).eval()
    distinct_values(model)
    traced = trace(model, wanted, batch=BATCH)
    path = folder / f"{name}.onnx"
    export(model, wanted, path)
    read = onnx_importer.read(path)
    by_torch, by_onnx = costs.count(traced).totals, costs.count(read).totals
    by_tool = macs_by_onnx_tool(path)
    path.unlink()
    moved = [t["bytes_read"] + t["bytes_written"] for t in (by_torch, by_onnx)]
    return {
        "source": source,
        "model": name,
        "nodes": [traced.node_count, read.node_count],
        "macs": [by_torch["macs"], by_onnx["macs"]],
        "parameters": [by_torch["parameters"], by_onnx["parameters"]],
        "bytes": moved,
        "bytes_ratio": moved[1] / moved[0],
        "onnx_tool_macs": by_tool,
        "bias_additions": bias_additions(read),
        "macs_equal": by_torch["macs"] == by_onnx["macs"],
        "parameters_equal": by_torch["parameters"] == by_onnx["parameters"],
        "onnx_tool_equal": by_tool in (by_onnx["macs"], by_onnx["macs"] + bias_additions(read)),
    }


def attempt(call: Callable[[], dict[str, Any]], source: str, name: str) -> dict[str, Any]:
    """The row, or what stopped it."""
    try:
        return call()
    except Exception as error:  # one architecture that fails must not hide the others
        return {
            "source": source,
            "model": name,
            "failed": f"{type(error).__name__}: {' '.join(str(error).split())[:200]}",
        }


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results here")
    parser.add_argument("--models", type=int, metavar="N", help="only the first N architectures of part 1")
    parser.add_argument("--onnx", type=int, metavar="N", help="only the first N exports of part 2")
    options = parser.parse_args()
    torch.set_num_threads(1)

    start = time.perf_counter()
    names = [("torchvision", n) for n in TORCHVISION] + [("transformers", n) for n in TRANSFORMERS]
    names += [("timm", n) for n in timm_names()]
    counted = [attempt(lambda s=s, n=n: agreement(s, n), s, n) for s, n in names[: options.models]]
    with tempfile.TemporaryDirectory() as folder:
        routes = [attempt(lambda s=s, n=n: three_routes(s, n, Path(folder)), s, n) for s, n in ONNX[: options.onnx]]

    done = [row for row in counted if "failed" not in row]
    agreeing = sum(row["agrees"] for row in done)
    lines = [[r["source"], r["model"], f"{r['macs']:,}", f"{r['torch_macs']:,}", f"{r['difference']:,}"] for r in done]
    print(table(["source", "model", f"perfpass MACs (batch {BATCH})", "FlopCounterMode / 2", "difference"], lines))
    print(f"\n{agreeing} of {len(done)} architectures agree exactly")
    for row in done:
        if not row["agrees"]:
            print(f"  {row['model']}: {row['reason'] or 'unexplained'}")
    exported = [row for row in routes if "failed" not in row]
    lines = [
        [
            r["model"],
            f"{r['macs'][0]:,}",
            "equal" if r["macs_equal"] else f"{r['macs'][1]:,}",
            "equal" if r["parameters_equal"] else f"{r['parameters'][0]:,} / {r['parameters'][1]:,}",
            f"{r['bytes_ratio']:.3f}",
            "equal" if r["onnx_tool_equal"] else f"{r['onnx_tool_macs']:,}",
        ]
        for r in exported
    ]
    print("\n" + table(["model", "torch MACs", "ONNX MACs", "parameters", "bytes ONNX/torch", "onnx-tool MACs"], lines))
    for row in [*counted, *routes]:
        if "failed" in row:
            print(f"  not run: {row['model']}: {row['failed']}")
    results = {"batch": BATCH, "seconds": round(time.perf_counter() - start, 1), "torch": counted, "onnx": routes}
    publish("mac_agreement", results, ("torch", "torchvision", "timm", "transformers", "onnx-tool"), options.json)
    if any(not row["agrees"] and not row.get("explained") for row in done):
        sys.exit("MACs differ without an explanation")
    if not all(row["macs_equal"] for row in exported):
        sys.exit("the ONNX route and the torch route count different MACs")


if __name__ == "__main__":
    main()
