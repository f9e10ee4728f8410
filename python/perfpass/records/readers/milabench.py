"""mila-iqia/milabench: throughput and peak memory of training benchmarks at several batch sizes, from its sizer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfpass.records.schema import Reading
from perfpass.records.sources import add_caveat, table_of

if TYPE_CHECKING:
    import pandas

# Names end in the precision where the source's configuration states one; its other torchvision and Hugging Face
# benchmarks run "tf32-fp16" (autocast to fp16), its timm ones autocast to bf16 (config/base.yaml).
_PRECISIONS = {"-tf32-fp16": "amp", "-fp16": "amp", "-tf32": "tf32", "-fp32": "fp32"}
_AUTOCAST = ("resnet50", "resnet50-noio", "regnet_y_128gf", "t5", "reformer", "whisper")
_AUTOCAST_BF16 = ("focalnet",)
_FROM_DISK = ("resnet50", "convnext_large", "regnet_y_128gf", "focalnet", "lightning")
_SEVERAL = re.compile(r"-(?:gpus|nodes)$")
_INFERENCE = ("llm-chat-completion", "txt-to-image-single", "whisper-transcribe-single")


def model_of(bench: str) -> str:
    """The benchmark's name without its precision."""
    for ending in _PRECISIONS:
        if bench.endswith(ending):
            return bench.removesuffix(ending)
    return bench


def precision_of(bench: str) -> str:
    """As stated by the name or the source's configuration; "" where neither says."""
    for ending, precision in _PRECISIONS.items():
        if bench.endswith(ending):
            return precision
    return "amp" if bench in _AUTOCAST else "amp_bf16" if bench in _AUTOCAST_BF16 else ""


def read(shared: Path) -> Reading:
    """Records of kind ``training``: ``throughput_per_s`` by the source's own rate, ``peak_memory_bytes`` as by NVML.

    Rows of inference benchmarks are refused. The number of GPUs behind the "-gpus" benchmarks is not stated (-1).
    """
    import pandas

    reading = Reading("milabench")
    table = table_of(shared, "milabench", "scaling.csv")
    table = reading.keep(table, ~table.bench.isin(_INFERENCE), "an inference benchmark")
    table = table.reset_index(drop=True)
    several = table.bench.str.contains(_SEVERAL)
    rows = pandas.DataFrame(
        {
            "licence": "MIT",
            "run": table.source_file + ":" + table.unix_time.astype(str),
            "device": table.device,
            "n_devices": (~several).astype(int).where(~several, -1),
            "runtime": "torch",
            "precision": table.bench.map(precision_of),
            "mode": "training",
            "batch": table.batch_size,
            "timing": "the benchmark's own rate over 60 steps",
            "model": table.bench.map(model_of),
            "family": table.bench.str.split("-").str[0],
            "workers": table.cpu_workers,
            "throughput_per_s": table.throughput_items_s,
            "peak_memory_bytes": table.memory_mib * 2.0**20,
            "caveats": "",
        }
    )
    rows["caveats"] = add_caveat(rows.caveats, several.to_numpy(), "number_of_gpus_not_stated")
    from_disk = rows.model.isin(_FROM_DISK).to_numpy()
    rows["caveats"] = add_caveat(rows.caveats, from_disk, "reads_images_from_disk")
    rows["caveats"] = add_caveat(rows.caveats, _below_smaller_batch(table), "memory_below_a_smaller_batch")
    reading.add("training", rows)
    return reading


def _below_smaller_batch(table: pandas.DataFrame) -> np.ndarray:
    """[N] whether the peak is over 5 % below that of a smaller batch of the same benchmark, device and workers (B2)."""
    ordered = table.sort_values("batch_size")
    keys = [ordered.device, ordered.bench, ordered.cpu_workers]
    largest = ordered.groupby(keys, dropna=False).memory_mib.transform(lambda m: m.cummax())
    return np.asarray((ordered.memory_mib < 0.95 * largest).reindex(table.index))
