"""A small architecture search: which ResNet is fastest on a device for its size, under a latency and a memory target.

    python examples/search_widths.py [--device a100-80gb] [--batch 64] [--latency-ms 15] [--memory-gib 1.75]

Depths (blocks of the third stage), widths and resolutions of timm's ResNet are scored by `perfpass.search`, without
weights and without the device. Accuracy is not known here, so networks are judged by their MACs per image, as scaling
studies do: the Pareto front are those that no other network beats in both MACs and latency.
"""

from __future__ import annotations

import argparse
import itertools
import time

import numpy as np

from perfpass.graph import OpGraph, costs
from perfpass.importers import load, torchvision_schemas
from perfpass.search import Scorer

DEPTHS, WIDTHS, SIZES = (4, 6, 12, 23), (32, 64, 96), (160, 192, 224, 256)


def network(depth: int, width: int, size: int, batch: int) -> OpGraph:
    """The graph of a ResNet; traced on the meta device, so no weight is ever made."""
    import torch
    from timm.models.resnet import Bottleneck, ResNet

    with torch.device("meta"):
        module = ResNet(Bottleneck, (3, 4, depth, 3), base_width=width).eval()
    return load(module, input_shape=(3, size, size), batch=batch)


def pareto(work: np.ndarray, latency: np.ndarray) -> list[int]:
    """Indices of the networks with more MACs than every faster one, fastest first."""
    front, most = [], -np.inf
    for i in np.argsort(latency, kind="stable"):
        if work[i] > most:
            front.append(int(i))
            most = work[i]
    return front


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="a100-80gb")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--latency-ms", type=float, default=15.0, help="upper bound of a batch's time (default 15)")
    parser.add_argument("--memory-gib", type=float, default=1.75, help="upper bound of the peak (default 1.75)")
    options = parser.parse_args()
    torchvision_schemas.define()

    grid = list(itertools.product(DEPTHS, WIDTHS, SIZES))
    graphs = [network(*point, options.batch) for point in grid]
    scorer = Scorer(options.device, precision="amp", layout="nhwc")
    start = time.perf_counter()
    scores = scorer.score(graphs, batch=options.batch)
    print(f"{len(grid)} networks scored in {1e3 * (time.perf_counter() - start):.0f} ms on {scorer.devices[0].name}\n")

    macs = np.array([costs.count(graph).totals["macs"] for graph in graphs]) / options.batch
    # The upper bounds must keep the targets: a missed one is found out after training.
    meets = (scores.latency_ms.high <= options.latency_ms) & (
        scores.peak_memory_bytes.high <= options.memory_gib * 2**30
    )
    allowed = np.flatnonzero(meets)
    print("blocks  width  image  GMACs  latency ms (90 %)      memory GiB, up to")
    for i in allowed[pareto(macs[allowed], scores.latency_ms.median[allowed])]:
        depth, width, size = grid[i]
        time_ms, memory = scores.latency_ms, scores.peak_memory_bytes.high[i] / 2**30
        interval = f"{time_ms.median[i]:7.2f} ({time_ms.low[i]:.2f} to {time_ms.high[i]:.2f})"
        print(f"{depth:6}  {width:5}  {size:5}  {macs[i] / 1e9:5.2f}  {interval:22} {memory:.2f}")
    print(f"\n{len(allowed)} of {len(grid)} networks keep both targets")


if __name__ == "__main__":
    main()
