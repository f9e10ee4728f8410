"""What observing costs inside ONNX Runtime: creation of sessions and runs, with and without, on real models.

    python benchmarks/ort_session.py [--json FILE] [--seconds S] [MODEL ...]

Models with random weights are exported into a temporary folder. Every figure is a ratio of neighbours: one session (or
run) with the observer and one without, in alternating order, one thread; the median of the ratios and their 10th and
90th percentile are told, so that a machine that is slow for a while slows both. Beside the time on the wall stands the
process's own time on the processor, which other programs disturb less. "With" includes ``observe()``. A third session
has the provider but no observation: what it takes longer is onnxruntime's own work for any plug-in. The provider is
registered before, once, as in any process. Outputs must be bit-identical, or the timings are void.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import architectures
import numpy as np
import onnxruntime as ort
from report import figure, publish, summary, table

from ort_extension import observer

MODELS = [
    *(("torchvision", name) for name in ("resnet50", "densenet121", "googlenet", "efficientnet_b0")),
    *(("torchvision", name) for name in ("mobilenet_v3_small", "shufflenet_v2_x1_0")),
    *(("timm", name) for name in ("vit_tiny_patch16_224", "convnext_atto", "mixer_s32_224", "mobilevit_xxs")),
    *(("timm", name) for name in ("swin_tiny_patch4_window7_224", "efficientvit_b0")),
    *(("transformers", name) for name in ("distilbert-base", "electra-small", "segformer-b0", "vit-base")),
]
FEWEST, MOST = 12, 120  # rounds


def export(source: str, name: str, path: Path) -> None:
    import torch

    torch.manual_seed(0)
    shapes = architectures.shapes(source, name)
    inputs = shapes if isinstance(shapes, dict) else {"image": (shapes, "float32")}

    class Tensors(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = architectures.build(source, name)

        def forward(self, *tensors: torch.Tensor) -> Any:
            if source != "transformers":
                return self.model(*tensors)
            return self.model(**dict(zip(inputs, tensors, strict=True)), return_dict=False)[0]

    arguments = tuple(torch.ones(1, *shape, dtype=getattr(torch, dtype)) for shape, dtype in inputs.values())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Tensors().eval(), arguments, str(path), input_names=list(inputs), opset_version=17, dynamo=False
        )


PLAIN, IDLE, OBSERVED = range(3)


def session(path: Path, kind: int) -> tuple[ort.InferenceSession, observer.Observation | None]:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    observation = observer.observe(options) if kind == OBSERVED else None
    if kind == IDLE:
        ours = [device for device in ort.get_ep_devices() if device.ep_name == observer.PROVIDER]
        options.add_provider_for_devices(ours[:1], {})
    return ort.InferenceSession(str(path), options), observation


@dataclass(frozen=True)
class Times:
    """Milliseconds per kind of session, a list for each round."""

    wall: list[list[float]] = field(default_factory=list)
    processor: list[list[float]] = field(default_factory=list)


def rounds(call: Callable[[int], object], kinds: list[int], seconds: float) -> Times:
    """Times of the call for every kind in turn, another first in every round."""
    times = Times()
    deadline = time.perf_counter() + seconds
    while len(times.wall) < FEWEST or (len(times.wall) < MOST and time.perf_counter() < deadline):
        wall, processor = [0.0] * len(kinds), [0.0] * len(kinds)
        first = len(times.wall) % len(kinds)
        for i in [*range(first, len(kinds)), *range(first)]:
            start = time.perf_counter(), time.process_time()
            result = call(kinds[i])
            wall[i] = 1e3 * (time.perf_counter() - start[0])
            processor[i] = 1e3 * (time.process_time() - start[1])
            del result  # the end of a session is no part of its creation
        times.wall.append(wall)
        times.processor.append(processor)
    return times


def ratio(times: list[list[float]], kind: int = -1) -> dict[str, float]:
    """Of one kind to the first."""
    found = summary([values[kind] / values[0] for values in times])
    return {"median": found.median_ms, "low": found.low_ms, "high": found.high_ms, "rounds": found.runs}


def compared(times: Times) -> dict[str, Any]:
    return {
        "without": summary([values[0] for values in times.wall]),
        "with": summary([values[-1] for values in times.wall]),
        "ratio": ratio(times.wall),
        "processor_ratio": ratio(times.processor),
    }


def feeds(plain: ort.InferenceSession) -> dict[str, np.ndarray]:
    random = np.random.default_rng(7)
    return {
        node.name: random.integers(1, 99, size=node.shape)
        if node.type == "tensor(int64)"
        else random.normal(size=node.shape).astype(np.float32)
        for node in plain.get_inputs()
    }


def measure(name: str, path: Path, seconds: float) -> dict[str, Any]:
    plain, _ = session(path, PLAIN)
    observed, observation = session(path, OBSERVED)
    assert observation is not None
    inputs = feeds(plain)
    both = [s.run(None, inputs) for s in (plain, observed)]
    if any(a.tobytes() != b.tobytes() for a, b in zip(*both, strict=True)):
        sys.exit(f"{name}: outputs differ, timings are void")
    start = time.perf_counter()
    graph = observation.graph
    graph_ms = 1e3 * (time.perf_counter() - start)
    if graph is None:
        sys.exit(f"{name}: no graph: {observation.problem}")
    walks: list[float] = []

    def create(kind: int) -> ort.InferenceSession:
        made, seen = session(path, kind)
        if seen is not None:
            walks.append(1e3 * seen.walk_us / seen.nodes)
        return made

    sessions = rounds(create, [PLAIN, IDLE, OBSERVED], seconds)
    creation = compared(sessions) | {"idle_processor_ratio": ratio(sessions.processor, IDLE)}
    runner = {PLAIN: plain, OBSERVED: observed}
    run = compared(rounds(lambda kind: runner[kind].run(None, inputs), [PLAIN, OBSERVED], seconds / 2))
    return {
        "model": name,
        "nodes": observation.nodes,
        "megabytes": path.stat().st_size / 1e6,
        "creation": creation,
        "run": run,
        "walk_ns_per_node": {"median": statistics.median(walks), "least": min(walks)},
        "graph_ms": graph_ms,
    }


def row(result: dict[str, Any]) -> list[str]:
    def spread(found: dict[str, float]) -> str:
        return f"{found['median']:.3f} ({found['low']:.3f} to {found['high']:.3f})"

    return [
        result["model"],
        str(result["nodes"]),
        figure(result["creation"]["without"].median_ms),
        spread(result["creation"]["ratio"]),
        spread(result["creation"]["processor_ratio"]),
        f"{result['creation']['idle_processor_ratio']['median']:.3f}",
        figure(result["run"]["without"].median_ms),
        spread(result["run"]["ratio"]),
        f"{result['walk_ns_per_node']['median']:.0f} ({result['walk_ns_per_node']['least']:.0f})",
        figure(result["graph_ms"]),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results here")
    parser.add_argument("--seconds", type=float, default=8.0, help="for the sessions of one model (default 8)")
    parser.add_argument("models", nargs="*", metavar="MODEL", help="only these")
    options = parser.parse_args()
    if reason := observer.why_not():
        sys.exit(reason)
    from perfpass.importers import torchvision_schemas

    torchvision_schemas.define()
    chosen = [(source, name) for source, name in MODELS if not options.models or name in options.models]
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for source, name in chosen:
            path = Path(folder) / f"{name}.onnx"
            export(source, name, path)
            results.append(measure(name, path, options.seconds))
            path.unlink()
            print(*row(results[-1]), sep="  ", flush=True)
    titles = ["model", "nodes", "session ms", "with / without", "on the processor", "idle", "run ms", "with / without"]
    print(table([*titles, "walk ns a node (least)", "graph ms"], [row(result) for result in results]))
    overall = {
        "creation_ratio": statistics.median(r["creation"]["ratio"]["median"] for r in results),
        "creation_processor_ratio": statistics.median(r["creation"]["processor_ratio"]["median"] for r in results),
        "creation_idle_processor_ratio": statistics.median(
            r["creation"]["idle_processor_ratio"]["median"] for r in results
        ),
        "run_ratio": statistics.median(r["run"]["ratio"]["median"] for r in results),
        "walk_ns_per_node": statistics.median(r["walk_ns_per_node"]["median"] for r in results),
    }
    print("medians over models: " + ", ".join(f"{name} {value:.4g}" for name, value in overall.items()))
    publish("ort_session", {"overall": overall, "models": results}, ("onnxruntime", "numpy"), options.json)


if __name__ == "__main__":
    main()
