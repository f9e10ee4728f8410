"""Model to features: perfpass against what people do today, on graphs of about 10,000 nodes, in one run.

    python benchmarks/featurize.py [--json FILE] [--runs N] [--peer-runs N]

The encoder is DeBERTa-v3's 24 layers at width 512, exported here by torch: with its 0.57 GB of weights inside the
file, in an external file, and structure only; the decoders come from graphs.py. Every timing of perfpass starts at the
file (or the Relay module) and ends with costs, node features and edges of the schema `operator`. The peers are
`onnx.load` with a plain Python featurization (after `onnx.shape_inference` where shapes are missing), once with the
very features of perfpass and once with the few that are quick to write down, onnx-tool, and Python's `post_order_visit`
into networkx. What was timed is checked: same edges and MACs for every storage of a graph and as the peers and the
closed form count them, and the same matrix, edges and statics as the peer with the same features. Peak memory is read
in a fresh process per file.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from graphs import onnx_decoder, onnx_decoder_macs, relay_decoder, relay_decoder_macs
from peers import onnx_featurized, onnx_tool_macs, relay_networkx
from report import Timing, figure, publish, table, timed
from same_features import SameFeatures, onnx_same_features

from perfpass import devices, features
from perfpass.graph import OpGraph, costs
from perfpass.importers import onnx as onnx_importer
from perfpass.importers import torchvision_schemas
from perfpass.predictors import predict_graph

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
DECODER_LAYERS = 167  # 60 nodes each: a little over 10,000
DEVICE = "a100-80gb"
ENCODER_DIMS = {"batch": 1, "sequence": 128}


@dataclass(frozen=True)
class Case:
    """A file to featurize; `dims` are given where its shapes must be inferred from open dimensions."""

    name: str
    path: Path
    infer: bool
    macs: int | None = None  # closed form, where there is one
    dims: dict[str, int] | None = None

    @property
    def megabytes(self) -> float:
        return sum(path.stat().st_size for path in self.path.parent.glob(f"{self.path.stem}.*")) / 1e6


def encoder_cases(folder: Path) -> list[Case]:
    """DeBERTa-v3's 24 layers at half width: three storages, each with all shapes present and with none."""
    sys.path.append(str(EXAMPLES))
    import export

    torchvision_schemas.define()
    exported = export.deberta_v3(hidden_size=512, heads=8)
    weights = folder / "exported.onnx"
    export.export_with_weights(exported, weights)
    dynamic = onnx.load(weights)
    dynamic.graph.ClearField("value_info")
    shapes = export.with_shapes(export.structure_only(onnx.load(weights)), exported.arguments, weights)
    shaped = onnx.ModelProto()
    shaped.CopyFrom(dynamic)
    for field in ("input", "output", "value_info"):
        shaped.graph.ClearField(field)
        getattr(shaped.graph, field).extend(getattr(shapes.graph, field))
    cases = []
    for label, stem, model, dims in (
        ("shapes present", "shaped", shaped, None),
        ("shapes inferred", "dynamic", dynamic, ENCODER_DIMS),
    ):
        paths = {name: folder / f"{stem}_{name}.onnx" for name in ("inside", "outside", "structure")}
        onnx.save(model, paths["inside"])
        onnx.save(model, paths["outside"], save_as_external_data=True, location=f"{stem}_outside.data")
        onnx.save(export.structure_only(model), paths["structure"])
        for storage, name in (
            ("structure only", "structure"),
            ("weights inside", "inside"),
            ("weights outside", "outside"),
        ):
            cases.append(Case(f"encoder, {storage}, {label}", paths[name], infer=dims is not None, dims=dims))
    return cases


def decoder_cases(folder: Path) -> list[Case]:
    """The decoder, structure only, with all shapes present and with none."""
    macs = onnx_decoder_macs(DECODER_LAYERS)
    bare = onnx_decoder(DECODER_LAYERS)
    shaped = onnx.shape_inference.infer_shapes(bare, data_prop=True)
    cases = []
    for label, stem, model, infer in (
        ("shapes present", "decoder_shaped", shaped, False),
        ("shapes inferred", "decoder_bare", bare, True),
    ):
        path = folder / f"{stem}.onnx"
        onnx.save(model, path)
        cases.append(Case(f"decoder, structure only, {label}", path, infer, macs))
    return cases


@dataclass(frozen=True)
class Featurized:
    """What perfpass makes of a model in one measurement."""

    graph: OpGraph
    costs: costs.Costs
    features: features.Features

    @property
    def macs(self) -> int:
        return int(self.costs.totals["macs"])


def featurized(graph: OpGraph) -> Featurized:
    """Costs, node features, edges and statics of the schema `operator`."""
    counted = costs.count(graph)
    return Featurized(graph, counted, features.extract(graph, "operator", counted))


_PEAK = """
import re, sys
from perfpass import features
from perfpass.graph import costs
from perfpass.importers import onnx
if len(sys.argv) > 1:
    graph = onnx.read(sys.argv[1], dims={pair.split("=")[0]: int(pair.split("=")[1]) for pair in sys.argv[2:]})
    features.extract(graph, "operator", costs.count(graph))
# Not getrusage: its peak includes that of the process that started this one.
print(int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) * 1024)
"""


def peak_resident_mb(*arguments: str) -> float:
    """Peak resident memory of a fresh process that featurizes a file, in MB; without a file, of the imports."""
    run = subprocess.run([sys.executable, "-c", _PEAK, *arguments], check=True, capture_output=True, text=True)
    return int(run.stdout) / 1e6


def check(condition: bool, what: str) -> None:
    """Ends the benchmark when what it timed is wrong; not an assert, which -O removes."""
    if not condition:
        sys.exit(f"wrong result, timings are void: {what}")


def check_same(name: str, plain: SameFeatures, ours: features.Features) -> None:
    """All features equal; nodes only where the peer has their shapes, and statics only where it has all of them."""
    check(np.array_equal(plain.edge_index, ours.edge_index), f"{name}: other edges than the plain featurization")
    close = np.isclose(plain.nodes, ours.nodes, rtol=1e-6, atol=1e-7) | ~plain.known[:, None]
    columns = [ours.node_names[i] for i in np.flatnonzero(~close.all(axis=0))]
    check(not columns, f"{name}: other {', '.join(columns)} than the plain featurization")
    check(bool(plain.known.mean() > 0.9), f"{name}: the plain featurization has the shapes of {plain.known.mean():.0%}")
    if plain.known.all():
        check(np.allclose(plain.statics, ours.statics, rtol=1e-6, atol=1e-7), f"{name}: other statics")


def measured(name: str, ours: Timing, peers: dict[str, Timing], extra: dict[str, Any]) -> dict[str, Any]:
    """One row of the results, printed as it comes."""
    ratios = {peer: timing.median_ms / ours.median_ms for peer, timing in peers.items()}
    print(f"{name}: {ours} ms, " + ", ".join(f"{peer} {timing} ms" for peer, timing in peers.items()), flush=True)
    return {"case": name, "perfpass": ours, "peers": peers, "ratios": ratios, **extra}


def onnx_row(case: Case, runs: int, peer_runs: int) -> dict[str, Any]:
    """Times one ONNX file, with its peers, and checks that both count the same."""

    def ours() -> Featurized:
        return featurized(onnx_importer.read(case.path, dims=case.dims))

    result, timing = timed(ours, runs, warm_up=3)
    plain, plain_timing = timed(lambda: onnx_featurized(case.path, case.dims or {}, case.infer), peer_runs)
    same, same_timing = timed(lambda: onnx_same_features(case.path, case.dims or {}, case.infer), peer_runs)
    peers = {"onnx.load + Python, same features": same_timing, "onnx.load + Python": plain_timing}
    check_same(case.name, same, result.features)
    if case.macs is not None:
        check(result.macs == case.macs, f"{case.name}: {result.macs} MACs, {case.macs} by hand")
    if not case.infer:
        # Where shapes must be inferred, onnx.shape_inference leaves some open, and with them MACs.
        check(result.macs == plain.macs, f"{case.name}: {result.macs} MACs, {plain.macs} by the plain featurization")
    if "weights inside" in case.name:  # onnx-tool needs the weights
        inputs = {
            name: np.ones((1, 128), dtype=np.int64)
            for name in (value.name for value in onnx.load(case.path, load_external_data=False).graph.input)
        }
        peers["onnx-tool"] = timed(lambda: onnx_tool_macs(case.path, inputs), peer_runs, warm_up=0)[1]
    dims = [f"{name}={size}" for name, size in (case.dims or {}).items()]
    return measured(
        case.name,
        timing,
        peers,
        {
            "nodes": len(plain.nodes),
            "kept_nodes": result.graph.node_count,
            "edges": int(result.features.edge_index.shape[1]),
            "macs": result.macs,
            "parameters": int(result.costs.totals["parameters"]),
            "file_mb": case.megabytes,
            "equal_rows": int(same.known.sum()),
            "peak_resident_mb": peak_resident_mb(str(case.path), *dims),
            "prediction": prediction_timing(result.graph, runs),
        },
    )


def relay_row(runs: int, peer_runs: int) -> dict[str, Any]:
    """Times a Relay module of 10,000 calls, with Python's walk as the peer."""
    os.environ.setdefault("TOPHUB_LOCATION", "NONE")  # TVM would look for schedules on the network
    from tvm_perfpass import import_relay

    mod = relay_decoder(DECODER_LAYERS)
    result, timing = timed(lambda: featurized(import_relay(mod)), runs, warm_up=3)
    walked, walked_timing = timed(lambda: relay_networkx(mod), peer_runs)
    macs = relay_decoder_macs(DECODER_LAYERS)
    check(result.macs == macs, f"Relay decoder: {result.macs} MACs, {macs} by hand")
    return measured(
        "Relay decoder",
        timing,
        {"post_order_visit + networkx": walked_timing},
        {
            "nodes": sum(1 for _, kind in walked.nodes(data="operator") if kind not in ("Var", "Constant")),
            "kept_nodes": result.graph.node_count,
            "edges": int(result.features.edge_index.shape[1]),
            "macs": result.macs,
            "prediction": prediction_timing(result.graph, runs),
        },
    )


def prediction_timing(graph: OpGraph, runs: int) -> Timing:
    """All metrics of one graph on DEVICE, predictor loaded."""
    device = devices.device(DEVICE)

    def predict() -> Any:
        return predict_graph(graph, device, batch=1, precision="fp32", mode="inference", runtime="torch", layout="nchw")

    prediction, timing = timed(predict, runs, warm_up=2)
    for metric in ("latency_ms", "throughput_per_s", "peak_memory_bytes", "energy_j", "power_w"):
        interval = getattr(prediction, metric)
        check(0 < interval.low <= interval.median <= interval.high, f"{metric}: {interval}")
    return timing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results here")
    parser.add_argument("--runs", type=int, default=30, help="timed runs of perfpass per row (default 30)")
    parser.add_argument("--peer-runs", type=int, default=3, help="timed runs of each peer per row (default 3)")
    options = parser.parse_args()

    rows = []
    makers: tuple[Callable[[Path], list[Case]], ...] = (encoder_cases, decoder_cases)
    for maker in makers:
        with tempfile.TemporaryDirectory() as folder:
            rows += [onnx_row(case, options.runs, options.peer_runs) for case in maker(Path(folder))]
    encoders = [row for row in rows if row["case"].startswith("encoder")]
    for key in ("edges", "macs", "parameters"):
        check(len({row[key] for row in encoders}) == 1, f"{key} of the encoder differ between storages")
    rows.append(relay_row(options.runs, options.peer_runs))
    baseline = peak_resident_mb()

    print()
    print(
        table(
            ["model", "nodes", "file MB", "perfpass ms", "fastest peer ms", "times faster", "prediction ms", "peak MB"],
            [
                [
                    row["case"],
                    str(row["nodes"]),
                    figure(row["file_mb"]) if "file_mb" in row else "",
                    str(row["perfpass"]),
                    figure(min(timing.median_ms for timing in row["peers"].values())),
                    figure(min(row["ratios"].values())),
                    figure(row["prediction"].median_ms),
                    figure(row["peak_resident_mb"]) if "peak_resident_mb" in row else "",
                ]
                for row in rows
            ],
        )
    )
    print(f"peak resident memory of the imports alone: {figure(baseline)} MB")
    packages = ("numpy", "onnx", "onnx-tool", "networkx", "xtc-tvm-python-bindings")
    publish("featurize", {"rows": rows, "imports_resident_mb": baseline}, packages, options.json)


if __name__ == "__main__":
    main()
