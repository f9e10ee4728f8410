"""Makes data/graphs/memory_runs.parquet: memory that sources measured, beside what is counted of the same runs.

    python -m perfpass.training.memory.measured_runs SHARED_DATA

A row is one measurement of inference or of a training step. What was counted of it without a device (weights, planned
activations, what the simulated allocator holds, what autograd would save) stands beside it, so that fitting and grading
need neither the frameworks nor the networks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.devices import device
from perfpass.errors import FormatError
from perfpass.graph import costs, liveness
from perfpass.graph.saved import saved_activations
from perfpass.graph.table import Tables, operator_table
from perfpass.predictors.estimate import PlannedRun
from perfpass.predictors.memory.allocation import BLOCK_BYTES, alignment_bytes, autocasts, columns_of, winograd_bytes
from perfpass.predictors.way import Way
from perfpass.predictors.workload import PRECISIONS
from perfpass.records import schema
from perfpass.records.build import memory_networks as networks
from perfpass.records.location import data_directory
from perfpass.records.parquet import read_frame
from perfpass.whole_file import replacing

if TYPE_CHECKING:
    import pandas

    from perfpass.graph import OpGraph

FILE = "memory_runs.parquet"
_GB, _GIB = 1e9, 2.0**30
# torch 1.13 with cudnn.benchmark keeps what its search took; the source's README names the setting.
_SEARCHES = "1.13.1"
# The engines of Stable Diffusion at 512 x 512 are built for up to so many images (NVIDIA/TensorRT, demo/Diffusion; 4
# where larger), and hold what those need at every batch. NVIDIA's program gives its engines one block.
_ENGINE_BATCH = 16


@dataclass(frozen=True)
class MemoryRun:
    """One measurement (bytes, NaN where not measured) and what was counted of its run (bytes, at its precision).

    ``in_use`` as the driver reports it: ``with_driver`` says whether what the driver keeps for itself is in it (NVML's
    first interface counts it; a difference to the idle device leaves it out). ``backward_bytes`` and ``gradient_bytes``
    are those of `perfpass.graph.saved.SavedActivations`, of training; ``n_devices`` share the batches of one program,
    and ``workspace_bytes`` is what cuDNN's search may choose where the program turns it on.
    """

    source: str
    licence: str
    network: str
    device: str
    mig_profile: str
    runtime: str
    runtime_version: str
    precision: str
    mode: str
    batch: int
    convolutions: bool
    searches: bool
    with_driver: bool
    in_use: float
    reserved: float
    alive: float
    weight_bytes: float
    activation_bytes: float
    planned_reserved: float
    backward_bytes: float
    gradient_bytes: float
    parameters: float
    optimizer: str = ""
    n_devices: int = 1
    workspace_bytes: float = 0.0


def _counted(
    graphs: list[OpGraph], on: str, runtime: str, precision: str, *, shared: bool = False, training: bool = False
) -> dict[str, Any]:
    """What is counted of stages that run one after another: weights of all, the largest of the rest.

    onnxruntime and TensorRT give every stage an allocator of its own, so there the rest adds up; ``shared``: the
    program gave its engines one block.
    """
    float_as = PRECISIONS[precision][0]
    way = Way(device(on), precision=precision, runtime=runtime)
    found: dict[str, list[float]] = {name: [] for name in ("weight", "activation", "beside", "backward", "gradient")}
    parameters = 0.0
    for graph in graphs:
        plan = liveness.plan(graph, float_as=float_as, alignment_bytes=alignment_bytes(runtime))
        planned = PlannedRun(graph=graph, plan=plan, batch=1, way=way, float_as=float_as)
        reserved = float(columns_of(planned)["reserved_bytes"][0])
        found["weight"].append(plan.weight_bytes)
        found["activation"].append(plan.peak_activation_bytes)
        found["beside"].append(max(reserved - plan.weight_bytes, plan.peak_activation_bytes))
        if training:
            kept = saved_activations(graph, float_as, BLOCK_BYTES, autocast=autocasts(precision))
            found["backward"].append(kept.backward)
            found["gradient"].append(kept.gradients)
        parameters += costs.count(graph, float_as=float_as).totals["parameters"]
    together = sum if runtime in ("onnxruntime", "tensorrt") and not shared else max
    weights = sum(found["weight"])
    return {
        "weight_bytes": weights,
        "activation_bytes": together(found["activation"]),
        "planned_reserved": weights + together(found["beside"]),
        "backward_bytes": max(found["backward"], default=0.0),
        "gradient_bytes": max(found["gradient"], default=0.0),
        "parameters": parameters,
    }


def _optimum(records: Path) -> Iterator[MemoryRun]:
    rows = schema.read(records / "networks.parquet", "network")
    rows = rows[(rows.source == "optimum_benchmark") & rows.peak_memory_bytes.notna() & (rows.output_tokens < 1)]
    for row in rows.itertuples():
        if row.model.startswith("BAAI/bge-base"):
            name, graphs = "bert-base", networks.bert_base(row.batch, row.sequence)
        elif row.allocated_bytes > 0 and not row.quantization and "Llama-2-7b" in row.model:
            # BetterTransformer and FlashAttention-2 keep no scores.
            fused = "fp16+" in row.variant
            name, graphs = "llama-2-7b", networks.llama_2_7b(row.batch, row.sequence, "sdpa" if fused else "eager")
        else:
            continue
        runtime = "tensorrt" if "tensorrt" in row.runtime else row.runtime
        yield MemoryRun(
            row.source, row.licence, name, row.device, "", runtime, row.runtime_version, row.precision, "inference",
            row.batch, False, False, True, row.peak_memory_bytes, row.reserved_bytes, row.allocated_bytes,
            **_counted(graphs, row.device, runtime, row.precision),
        )  # fmt: skip


def _onnxruntime(records: Path) -> Iterator[MemoryRun]:
    rows = schema.read(records / "networks.parquet", "network")
    rows = rows[(rows.source == "ort_stable_diffusion") & rows.peak_memory_bytes.notna()]
    for row in rows.itertuples():
        runtime = "tensorrt" if "tensorrt" in row.variant.lower() else row.runtime
        searches = runtime.startswith("torch") and row.runtime_version.startswith(_SEARCHES)
        graphs = networks.stable_diffusion(_ENGINE_BATCH if runtime == "tensorrt" else row.batch)
        if runtime == "onnxruntime":  # diffusers' OnnxStableDiffusionPipeline decodes one image after the other
            graphs = [*graphs[:-1], networks.stable_diffusion(1)[-1]]
        yield MemoryRun(
            row.source, row.licence, "stable-diffusion-1.5", row.device, "", runtime, row.runtime_version,
            row.precision, "inference", row.batch, True, searches, False, row.peak_memory_bytes, np.nan, np.nan,
            **_counted(graphs, row.device, runtime, row.precision, shared=row.runtime == "tensorrt"),
        )  # fmt: skip


def _lambda(shared: Path) -> Iterator[MemoryRun]:
    import pandas

    table = pandas.read_csv(shared / "lambda_diffusers" / "sd_v1_benchmark.csv")
    table = table[(table.memory_as_reported > 0) & ~table.autocast]  # -1: out of memory
    # From 32 images on, the runs with xformers hold less than those of 16: another program, which is not stated.
    table = table[~(table.xformers & (table.batch_size >= 32))]
    for row in table.itertuples():
        name, _, profile = row.device_as_reported.removeprefix("NVIDIA ").partition(" MIG ")
        precision = {"half": "fp16", "single": "fp32"}[row.precision]
        graphs = networks.stable_diffusion(row.batch_size, attention="sdpa" if row.xformers else "eager")
        on = device(name).id
        # The script divides torch.cuda.memory_reserved() by 10^9.
        yield MemoryRun(
            "lambda_diffusers", "MIT", "stable-diffusion-1.4", on, profile, "torch", "", precision, "inference",
            row.batch_size, True, False, False, np.nan, row.memory_as_reported * _GB, np.nan,
            **_counted(graphs, on, "torch", precision),
        )  # fmt: skip


_CLASSES = {"cityscapes": 19, "ade20k": 150, "voc12aug": 21}
_METHODS = {"fcn": "fcn", "deeplabv3": "deeplabv3"}


def _winograd(graph: OpGraph) -> float:
    """Its configurations set cudnn_benchmark (configs/_base_/default_runtime.py)."""
    table = operator_table(graph, costs.count(graph, float_as="float32"))
    return float(winograd_bytes(Tables.one(table))[0])


def _segmentation(shared: Path) -> Iterator[MemoryRun]:
    """FCN and DeepLabV3 on ResNet-50 and -101 of mmsegmentation: alive in training, SGD with momentum."""
    table = read_frame(shared / "openmmlab_model_zoo" / "train.parquet", "a table of openmmlab")
    table = table[
        (table.precision == "fp32") & table.config.notna() & table.memory_mib.notna() & (table.device == "NVIDIA V100")
    ]
    for row in table.itertuples():
        method, _, rest = row.config.partition("_")
        depth, _, rest = rest.partition("_")
        size, _, rest = rest.partition("_")
        classes = _CLASSES.get(rest.rpartition("_")[2])
        if method not in _METHODS or classes is None or depth not in ("r50-d8", "r101-d8", "r50b-d8", "r101b-d8"):
            continue
        height, width = (int(side) for side in size.split("x"))
        name = f"{_METHODS[method]}_resnet{101 if '101' in depth else 50}"
        batch = int(row.batch_size_per_gpu)
        graphs = networks.segmentation(name, batch, height, width, classes, "b-" not in depth)  # ResNetV1c, or V1b
        yield MemoryRun(
            "openmmlab", "Apache-2.0", name, "v100-sxm2-16gb", "", "torch", "", "fp32", "training", batch,
            True, False, False, np.nan, np.nan, row.memory_mib * 2.0**20,
            **_counted(graphs, "v100-sxm2-16gb", "torch", "fp32", training=True), optimizer="momentum",
            n_devices=int(row.n_gpus), workspace_bytes=max(map(_winograd, graphs)),
        )  # fmt: skip


def _torchtune(shared: Path) -> Iterator[MemoryRun]:
    """Llama 3.2 3B, all of it trained on packed sequences, with AdamW and weights of bf16: alive.

    The page adds options one by one; those above it change what is kept by rules of their own.
    """
    import pandas

    table = pandas.read_csv(shared / "llm_training_memory" / "training_memory_throughput.csv")
    table = table[table.repo.str.startswith("pytorch/torchtune") & (table.variant == "+ Packed Dataset")]
    for row in table.itertuples():
        graphs = networks.llama_3_2_3b(2, 4096)  # of its "Batch size" and "Max sequence length"
        yield MemoryRun(
            "torchtune", "BSD-3-Clause", "llama-3.2-3b", "a100-sxm4-80gb", "", "torch", "", "bf16", "training", 2,
            False, False, False, np.nan, np.nan, row.memory_mib * 2.0**20,
            **_counted(graphs, "a100-sxm4-80gb", "torch", "bf16", training=True), optimizer="adamw",
        )  # fmt: skip


def write(path: Path, runs: list[MemoryRun]) -> None:
    """Write the table. Raises FileError."""
    import pandas

    with replacing(path) as file:
        pandas.DataFrame([asdict(run) for run in runs]).to_parquet(
            file, index=False, compression="zstd", compression_level=19
        )


def read(path: Path) -> pandas.DataFrame:
    """The table. Raises FileError, and FormatError for another file."""
    table = read_frame(path, "a table of measured memory")
    if missing := {field.name for field in fields(MemoryRun)} - set(table.columns):
        raise FormatError(f"{path}: no table of measured memory; it lacks {', '.join(sorted(missing))}")
    return table


def main(arguments: list[str]) -> None:
    """Count the networks of every source."""
    import warnings

    from perfpass.importers import torchvision_schemas

    torchvision_schemas.define()
    shared, folder = Path(arguments[0]), data_directory()
    records = folder / "records"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runs = [
            *_optimum(records),
            *_onnxruntime(records),
            *_lambda(shared),
            *_segmentation(shared),
            *_torchtune(shared),
        ]
    write(folder / "graphs" / FILE, runs)
    for source in dict.fromkeys(run.source for run in runs):
        print(f"{source}: {sum(run.source == source for run in runs)} rows")


if __name__ == "__main__":
    main(sys.argv[1:])
