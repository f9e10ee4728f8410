"""Relax module to features: the native walk, its plain twin and TVM's own visitor, on a module of 10,000 bindings.

    .venv-relax/bin/python benchmarks/relax_walk.py [--json FILE] [--runs N] [--peer-runs N]

Every timing of perfpass starts at the module and ends with costs, node features and edges of the schema `operator`,
as in featurize.py. The peers are the plain walk (TVM's Python interface) with the same features, and TVM's
`relax.analysis.post_order_visit` that notes operator, shape and type of every call and the data flow, without
features. What was timed is checked: both walks give the same graph, and its MACs are those of the closed form.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from report import figure, publish, table, timed
from tvm import ir, relax

from perfpass import features
from perfpass.graph import OpGraph, costs
from tvm_perfpass.relax.walk import load, walk_plain

LAYERS = 167  # 60 bindings each: a little over 10,000
HIDDEN, HEADS, HEAD = 768, 12, 64


def decoder(layers: int, batch: int = 1, length: int = 128) -> tvm.IRModule:
    """A GPT-style decoder as TVM's importers write it: 60 bindings a layer, weights as parameters of main."""
    builder = relax.BlockBuilder()
    weights: list[relax.Var] = []
    op, emit = relax.op, builder.emit

    def kind(*shape: int) -> relax.TensorType:
        return relax.TensorType(shape, "float32")

    def weight(*shape: int) -> relax.Var:
        weights.append(relax.Var(f"weight_{len(weights)}", kind(*shape)))
        return weights[-1]

    # The parameters of a function are known before its body.
    data, mask = relax.Var("data", kind(batch, length, HIDDEN)), relax.Var("mask", kind(1, length, length))
    per_layer = [(HIDDEN,), (HIDDEN,), *[(HIDDEN, HIDDEN), (HIDDEN,)] * 4, (HIDDEN,), (HIDDEN,)]
    per_layer += [(HIDDEN, 4 * HIDDEN), (4 * HIDDEN,), (4 * HIDDEN, HIDDEN), (HIDDEN,)]
    for _ in range(layers):
        for shape in per_layer:
            weight(*shape)
    given = iter(weights)

    def norm(x: relax.Expr) -> relax.Expr:
        mean = emit(op.mean(x, axis=[-1], keepdims=True))
        centered = emit(op.subtract(x, mean))
        variance = emit(op.mean(emit(op.multiply(centered, centered)), axis=[-1], keepdims=True))
        root = emit(op.sqrt(emit(op.add(variance, relax.const(1e-5, "float32")))))
        return emit(op.add(emit(op.multiply(emit(op.divide(centered, root)), next(given))), next(given)))

    def dense(x: relax.Expr, inputs: int) -> relax.Expr:
        flat = emit(op.reshape(x, (batch * length, inputs)))
        return emit(op.add(emit(op.matmul(flat, next(given))), next(given)))

    def split(x: relax.Expr, axes: tuple[int, ...]) -> relax.Expr:
        divided = emit(op.permute_dims(emit(op.reshape(x, (batch, length, HEADS, HEAD))), axes))
        return emit(op.reshape(divided, (batch * HEADS, length, HEAD)))

    with builder.function("main", [data, mask, *weights]):
        with builder.dataflow():
            x: relax.Expr = data
            for _ in range(layers):
                normed = norm(x)
                query, key, value = (split(dense(normed, HIDDEN), (0, 2, 1, 3)) for _ in range(3))
                key = emit(op.permute_dims(key, (0, 2, 1)))
                scores = emit(op.multiply(emit(op.matmul(query, key)), relax.const(HEAD**-0.5, "float32")))
                context = emit(op.matmul(emit(op.nn.softmax(emit(op.add(scores, mask)))), value))
                merged = emit(op.permute_dims(emit(op.reshape(context, (batch, HEADS, length, HEAD))), (0, 2, 1, 3)))
                x = emit(op.add(x, emit(op.reshape(dense(merged, HIDDEN), (batch, length, HIDDEN)))))
                inner = dense(norm(x), HIDDEN)
                gate = emit(op.sigmoid(emit(op.multiply(inner, relax.const(1.702, "float32")))))
                inner = emit(op.multiply(inner, gate))
                x = emit(op.add(x, emit(op.reshape(dense(inner, 4 * HIDDEN), (batch, length, HIDDEN)))))
            out = builder.emit_output(x)
        builder.emit_func_output(out)
    return builder.get()


def decoder_macs(layers: int, batch: int = 1, length: int = 128) -> int:
    """Multiply-accumulates of `decoder`, by hand: four projections, two batched products, the MLP."""
    tokens = batch * length
    return layers * (12 * tokens * HIDDEN * HIDDEN + 2 * batch * HEADS * length * length * HEAD)


def visited(mod: tvm.IRModule) -> tuple[list[Any], list[tuple[int, int]]]:
    """Operators with shapes and types, and the data flow, by TVM's own visitor."""
    nodes: list[Any] = []
    calls: dict[int, int] = {}

    def visit(expression: Any) -> None:
        if isinstance(expression, ir.Call):
            shape = [int(size) for size in expression.ty.shape.values]
            calls[expression.__chandle__()] = len(nodes)
            nodes.append((expression.op.name, shape, str(expression.ty.dtype), expression.attrs, expression.args))

    relax.analysis.post_order_visit(mod["main"], visit)
    producer: dict[int, int] = {}
    for block in mod["main"].body.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, ir.Call):
                producer[binding.var.__chandle__()] = calls[binding.value.__chandle__()]
    edges = [
        (producer[argument.__chandle__()], consumer)
        for consumer, (*_, arguments) in enumerate(nodes)
        for argument in arguments
        if isinstance(argument, relax.Var) and argument.__chandle__() in producer
    ]
    return nodes, edges


def featurized(graph: OpGraph) -> tuple[OpGraph, costs.Costs, features.Features]:
    """Costs, node features, edges and statics of the schema `operator`."""
    counted = costs.count(graph)
    return graph, counted, features.extract(graph, "operator", counted)


def check(condition: bool, what: str) -> None:
    """Ends the benchmark when what it timed is wrong; not an assert, which -O removes."""
    if not condition:
        raise SystemExit(f"wrong result, timings are void: {what}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results here")
    parser.add_argument("--runs", type=int, default=30, help="timed runs of perfpass (default 30)")
    parser.add_argument("--peer-runs", type=int, default=3, help="timed runs of each peer (default 3)")
    options = parser.parse_args()

    mod = decoder(LAYERS)
    bindings = sum(len(block.bindings) for block in mod["main"].body.blocks)
    (graph, counted, made), ours = timed(lambda: featurized(load(mod)), options.runs, warm_up=3)
    _, alone = timed(lambda: load(mod), options.runs, warm_up=3)
    (twin, _, same), plain = timed(lambda: featurized(walk_plain(mod).graph), options.peer_runs)
    (nodes, edges), visitor = timed(lambda: visited(mod), options.peer_runs)

    macs = decoder_macs(LAYERS)
    check(int(counted.totals["macs"]) == macs, f"{counted.totals['macs']} MACs, {macs} by hand")
    check(np.array_equal(made.nodes, same.nodes), "the walks give other node features")
    check(np.array_equal(made.edge_index, same.edge_index), "the walks give other edges")
    check(np.array_equal(graph.dims, twin.dims), "the walks give other shapes")
    check(len(nodes) == graph.node_count, f"{len(nodes)} calls visited, {graph.node_count} nodes")
    check(len(set(edges)) == graph.edge_count, f"{len(set(edges))} edges visited, {graph.edge_count} in the graph")

    peers = {"plain walk, same features": plain, "post_order_visit": visitor}
    rows = [
        ["perfpass, walk and features", str(ours), ""],
        ["perfpass, walk alone", str(alone), ""],
        *[[name, str(timing), figure(timing.median_ms / ours.median_ms)] for name, timing in peers.items()],
    ]
    print(f"Relax decoder, {bindings} bindings, {graph.edge_count} edges")
    print(table(["what", "ms", "times slower than ours"], rows))
    results = {
        "case": "Relax decoder",
        "bindings": bindings,
        "edges": int(graph.edge_count),
        "macs": macs,
        "perfpass": ours,
        "walk": alone,
        "peers": peers,
        "ratios": {name: timing.median_ms / ours.median_ms for name, timing in peers.items()},
    }
    publish("relax_walk", results, ("numpy", "apache-tvm", "apache-tvm-ffi"), options.json)


if __name__ == "__main__":
    main()
