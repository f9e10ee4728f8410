"""Graph networks on classes of nodes beside PyTorch Geometric on the whole graph: the same output, in less time.

    python benchmarks/quotient.py [--runs 15] [--hidden 512] [--json FILE]

Networks are GraphSAGE with random weights: three layers of the published width (the paper's three blocks), and six (the
published code's). Graphs: the 9,000-node encoder of examples/ and a decoder of 32 layers. One run measures all: both
networks in turn on each graph, in one process, on the same threads. Outputs must agree to 1e-5. The time of a whole
prediction (features, classes, network) is stated beside.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import report
import torch
from torch_geometric.nn import SAGEConv

from perfpass import features, load
from perfpass.devices import device as find_device
from perfpass.graph import OpGraph
from perfpass.predictors.published.dippm import DippmPredictor
from perfpass.predictors.published.graph_classes import classes
from perfpass.predictors.published.graph_network import GraphNetwork, Spec
from perfpass.predictors.published.run_features import run_features

ROOT = Path(__file__).resolve().parent.parent
LEAST_RATIO, LARGEST_MS = 20.0, 15.0


# Llama-2 7B (Touvron et al., "Llama 2", 2023), as its config.json has it.
DECODER = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}


def decoder() -> OpGraph:
    """A decoder of 32 layers, from its config alone."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.json"
        config.write_text(json.dumps(DECODER))
        return load(config, batch=1)


def sage(depth: int, width: int, inputs: int, rng: np.random.Generator) -> tuple[Spec, dict[str, np.ndarray]]:
    """Layers with ReLU between them, mean aggregation, and weights of the size that training starts from."""
    graph: list[dict[str, Any]] = []
    weights = {}
    for i in range(depth):
        first = inputs if i == 0 else width
        name = f"graph.{len(graph)}"
        graph += [{"kind": "sage", "inputs": first, "outputs": width, "aggregation": "mean"}, {"kind": "relu"}]
        for part, shape in (
            ("lin_l.weight", (width, first)),
            ("lin_l.bias", (width,)),
            ("lin_r.weight", (width, first)),
        ):
            weights[f"{name}.{part}"] = rng.uniform(-1, 1, shape).astype(np.float32) / np.float32(np.sqrt(first))
    return Spec(tuple(graph), "mean", ()), weights


def peer(spec: Spec, weights: dict[str, np.ndarray], nodes: np.ndarray, edge_index: np.ndarray) -> Callable[[], Any]:
    """The same network by PyTorch Geometric on the whole graph."""
    layers = []
    for i, layer in enumerate(spec.graph):
        if layer["kind"] == "sage":
            conv = SAGEConv(layer["inputs"], layer["outputs"])
            own = {
                n.removeprefix(f"graph.{i}."): torch.from_numpy(v)
                for n, v in weights.items()
                if n.startswith(f"graph.{i}.")
            }
            conv.load_state_dict(own)
            layers.append(conv.eval())
    x, edges = torch.from_numpy(nodes), torch.from_numpy(edge_index.astype(np.int64))

    def run() -> np.ndarray:
        with torch.inference_mode():
            h = x
            for conv in layers:
                h = conv(h, edges).relu()
            return h.mean(dim=0, keepdim=True).numpy()

    return run


def measure(name: str, graph: OpGraph, depth: int, width: int, runs: int) -> dict[str, Any]:
    """One graph, one network, both ways."""
    found = features.extract(graph, "dippm")
    # The raw sizes reach 10^5; their logarithms keep float32 sums comparable.
    nodes = np.log1p(np.abs(found.nodes))
    spec, weights = sage(depth, width, nodes.shape[1], np.random.default_rng(depth))
    network = GraphNetwork(spec, weights)
    whole = peer(spec, weights, nodes, found.edge_index)
    on = classes(nodes, found.edge_index, spec.rounds)
    expected = whole()
    error = float(np.abs(network.readout(on) - expected).max() / np.abs(expected).max())
    assert error <= 1e-5, f"{name}: outputs differ by {error:.2e}"

    def prediction() -> np.ndarray:
        fresh = features.extract(graph, "dippm")
        return network.readout(classes(np.log1p(np.abs(fresh.nodes)), fresh.edge_index, spec.rounds))

    ways: dict[str, tuple[Callable[[], Any], int]] = {
        "pyg_whole_graph": (whole, max(5, runs // 3)),
        "network": (lambda: network.readout(on), runs),
        "classes_and_network": (lambda: network.readout(classes(nodes, found.edge_index, spec.rounds)), runs),
        "features_classes_and_network": (prediction, runs),
    }
    times = {way: report.timed(call, count)[1] for way, (call, count) in ways.items()}
    return {
        "graph": name,
        "nodes": len(nodes),
        "edges": int(found.edge_index.shape[1]),
        "layers": depth,
        "hidden": width,
        "classes": len(on),
        "error": error,
        "times": times,
        "ratio": times["pyg_whole_graph"].median_ms / times["classes_and_network"].median_ms,
    }


def shipped(name: str, graph: OpGraph, runs: int) -> dict[str, Any]:
    """DIPPM as it ships: operator graph to time, memory and energy of one run."""
    predictor = DippmPredictor()
    how = run_features(find_device("a100-80gb"), precision="fp32", runtime="torch", layout="nchw", mode="inference")
    _, timing = report.timed(lambda: predictor.outputs(graph, how[None]), runs)
    return {"graph": name, "prediction": timing}


def main() -> None:
    """Measure, print a table, and say whether the aims are met."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--json", metavar="FILE", type=Path)
    options = parser.parse_args()
    # NumPy has its threads from the environment at its import; torch gets as many.
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", min(2, os.cpu_count() or 1))))
    graphs = {
        "DeBERTa-v3-large encoder": load(ROOT / "examples" / "deberta_v3_large.onnx"),
        "Llama decoder, 32 layers": decoder(),
    }
    rows = [
        measure(name, graph, depth, options.hidden, options.runs) for name, graph in graphs.items() for depth in (3, 6)
    ]
    ours = [shipped(name, graph, options.runs) for name, graph in graphs.items()]
    header = ["graph", "layers", "PyG ms", "network ms", "with classes", "with features", "PyG / with classes"]
    print(
        report.table(
            header,
            [
                [row["graph"], str(row["layers"]), *map(str, row["times"].values()), f"{row['ratio']:.1f}"]
                for row in rows
            ],
        )
    )
    for row in ours:
        print(f"{row['graph']}, DIPPM as it ships: {row['prediction']} ms")
    results = {"hidden": options.hidden, "threads": torch.get_num_threads(), "rows": rows, "shipped": ours}
    report.publish("quotient", results, ("torch", "torch-geometric", "numpy"), options.json)
    slowest = max(row["times"]["features_classes_and_network"].median_ms for row in rows)
    print(f"at least {LEAST_RATIO:.0f} times PyG: {'yes' if min(r['ratio'] for r in rows) >= LEAST_RATIO else 'NO'}")
    print(f"a prediction in at most {LARGEST_MS:.0f} ms: {'yes' if slowest <= LARGEST_MS else 'NO'}")


if __name__ == "__main__":
    main()
