"""The networks that records of kind ``network`` name: which public definition each is, and what `predict` is asked.

`named_definitions` has our names; `fill` gives them to rows whose source uses another name; `questions` turns rows
into what a user would ask: a table of `data/graphs/networks_*.parquet`, a batch, a device, a precision, a runtime. What
a record does not state and the definition decides (an image size, say) is marked in ``shape_from``.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import numpy as np

from perfpass.devices import device
from perfpass.errors import PerfPassError
from perfpass.records.named_definitions import Definition, definition_of
from perfpass.records.named_models import fill

if TYPE_CHECKING:
    from typing import Any

    import pandas

    from perfpass.devices import Device

# What a user asks who runs this software: the nearest runtime that `predict` has. Engines that issue fused kernels from
# C++ are asked as TensorRT, frameworks that issue operator by operator as PyTorch.
ASKED_AS = {
    "torch": "torch",
    "torch.compile": "torch.compile",
    "torchscript": "torch",
    "torch7": "torch",
    "tensorflow": "torch",
    "mxnet": "torch",
    "paddle": "torch",
    "onnxruntime": "onnxruntime",
    "tensorrt": "tensorrt",
    "onnxruntime+tensorrt": "tensorrt",
    "paddle+tensorrt": "tensorrt",
    "tensorflow+tensorrt": "tensorrt",
    "torch+tensorrt": "tensorrt",
    "faster_transformer": "tensorrt",
    "bytetransformer": "tensorrt",
    "lightseq": "tensorrt",
    "kernl": "tensorrt",
    "deepspeed": "tensorrt",
    "aitemplate": "tensorrt",
}
# (source, runtime) that is asked otherwise: the zoos of PaddleClas, PaddleDetection and PaddleSeg time Paddle's
# deployed predictor, which rewrites a program's graph (normalizations into convolutions, activations behind them) and
# issues what is left from C++, as a compiled graph of PyTorch is. Who trains in Paddle runs operators one by one.
_DEPLOYED = {("paddle_zoo", "paddle"): "torch.compile"}
# Frameworks of these records that ran attention as two products around a softmax: PyTorch has a fused one since 2.0,
# transformers uses it since the end of 2023.
_EAGER = ("torch", "torch.compile", "torchscript", "tensorflow", "mxnet", "paddle")
_FUSED_FROM_YEAR = 2024
_FUSED_WORDS = ("BetterTransformer", "FlashAttention", "fa2", "xformers", "sdp")
# (source, runtime) of engines that were built from a file with attention in parts and left it so. The container is that
# of October 2021, and TensorRT makes one kernel of it from 8.6 (2023) on ("You will need TensorRT 8.6 to get those
# fusions", its maintainers in issue 3280); ONNX Runtime looks for it behind layer norms of another form.
_IN_PARTS = {("deeplearningexamples", "tensorrt"), ("deeplearningexamples", "onnxruntime")}
# FasterTransformer 5.0, whose pages these are, fuses attention of 384 tokens at most, and none in fp32
# (BaseAttentionLayer.h, getAttentionType): a vision transformer at 384 pixels has 577.
_FUSED_TOKENS, _PATCH = 384, 16
# (source, runtime) whose kernels were replayed as a CUDA graph: NVIDIA's demo of BERT times `perf --enable_graph` (its
# scripts/inference_benchmark.sh), which captures each shape once; kernl's Inductor is the nightly of October 2022, in
# which "By default, CUDA graphs is enabled" (its experimental/benchmarks/README.md; off in torch.compile's default).
REPLAYED = frozenset({("demobert", "tensorrt"), ("kernl", "torch.compile")})
# Of DeepLearningExamples' Triton rows: what the backend makes of the model.
_TENSORRT, _AUTOMATIC_FP16 = "accelerator: NVIDIA TensorRT", "accelerator: Automatic FP16"
_ORT_FP16 = "O4"  # onnxruntime's last level of optimum: everything in fp16
# Optimum's first level: "basic general optimizations"; fusions of transformers begin with O2 (its documentation).
_ORT_BASIC = "O1"
# Mask R-CNN takes one time in TF32 and in halves, EfficientDet that of a loop over a data set: boxes, masks, files.
_DETECTORS = ("mask-rcnn-resnet50", "efficientdet-d0")
# What DeepLearningExamples times around a forward pass in PyTorch. SSD's clock starts before the next batch of pictures
# is fetched and copied (ssd/train.py, benchmark_inference_loop). nnU-Net's runs from the start of one batch to that of
# the next, with what loads it and the copy of all predictions back (utils/logger.py; nnunet/nn_unet.py, test_step).
_LOOPS = ("ssd300-resnet50", "nnunet-2d", "nnunet-3d")
# What PyTorch's records say where kernels were captured and replayed: their host issues none.
_REPLAYED = ("CUDA graphs on", "Cuda graphs")
# mmdetection's and detectron2's times hold what picks, suppresses and pastes behind the network: 17 to 37 ms beside a
# V100 (OpenMMLab's, the middle half), where the same laboratory's networks without it are told 5 % too fast.
_BOXES, _BOXES_TOO = "ends_with_post_processing", "network and post-processing of one image"
# (source, task) whose converted model does so itself: mmdeploy rewrites mmdetection's suppression into an operator of
# the engine (TRTBatchedNMSop, its mmdet/core/post_processing/bbox_nms.py), behind which real images have real boxes.
_BOXES_INSIDE = {("mmdeploy", "detection")}
_PROMPT_AND_TOKENS = "prompt and all new tokens"  # a timing begins with it
# Options of Stable Diffusion's web interface that keep networks in host memory until they run.
_OFFLOADED = ("medvram", "lowvram", "medvram,lowvram")
EAGER = "+eager"  # suffix of a table's name
_OPTIMIZERS = {"language": "adamw", "speech": "adamw", "recommendation": "sgd"}
COLUMNS = (
    "network", "table_source", "table_model", "table_size", "batch", "device", "precision", "runtime", "optimizer",
    "shape_from", "refused",
)  # fmt: skip


def questions(rows: pandas.DataFrame, keys: Any = None) -> pandas.DataFrame:
    """What `predict` is asked for each row of kind ``network``, with the index of ``rows``; `COLUMNS`.

    ``refused`` says why a row is no question of one graph on one device; else it is empty. ``keys``: the tables there
    are (`perfpass.records.tables.RecordedTables`); a row whose table is missing is refused, too.
    """
    import pandas

    named = fill(rows)
    boards = {name: _device(name) for name in {_board(row) for row in named.itertuples(index=False)}}
    asked = [_question(row, boards[_board(row)]) for row in named.itertuples(index=False)]
    found = pandas.DataFrame(asked, columns=list(COLUMNS), index=rows.index)
    if keys is not None:
        names = zip(found.table_source, found.table_model, found.table_size, strict=True)
        absent = np.array([k not in keys for k in names]) & (found.refused == "").to_numpy()
        found.loc[absent, "refused"] = "the definition has no table"
    return found


def _question(row: Any, target: Device | None) -> tuple[Any, ...]:
    refused, definition = _refused(row), definition_of(row.network)
    if not refused and definition is None:
        refused = "network not known by a definition" if row.network else "network not named"
    asked_as = _DEPLOYED.get((row.source, row.runtime)) or ASKED_AS.get(row.runtime, "")
    runtime = "tensorrt" if _TENSORRT in row.variant else asked_as
    if not refused and not runtime:
        refused = f"runtime {row.runtime or 'not stated'} is not predicted"
    if not refused and target is None:
        refused = "the device is not in the catalogue"
    if not refused and not row.precision:
        refused = "no precision stated"
    if not refused and row.mode == "training" and runtime != "torch":
        refused = "a training step in another runtime than PyTorch"
    if not refused and definition is not None and row.mode == "training" and not definition.trained:
        refused = "a step that is not that of the definition"
    if not refused and runtime == "tensorrt" and _without_tf32(row, target):
        refused = "fp32 with TF32 switched off, which no precision of this runtime asks"
    size, shape_from = _size(row, definition) if definition else (0, "")
    if not refused and size <= 0:
        refused = "the size of the input is not stated"
    model = _table_model(row, definition, shape_from) if definition else ""
    optimizer = _optimizer(row) if row.mode == "training" else None
    where = target.id if target else ""
    source = definition.source if definition else ""
    return (
        row.network, source, model, size, row.batch, where, _precision(row), runtime, optimizer, shape_from, refused
    )  # fmt: skip


def _refused(row: Any) -> str:
    if row.n_devices > 1 or row.tensor_parallel > 1 or row.pipeline_parallel > 1:
        return "several devices"
    if row.n_devices < 0:
        return "number of devices not stated"
    if _generates(row):
        return "generation, not one pass of a graph"
    if "most_weights_frozen" in row.caveats:
        return "most weights are frozen"
    if "several_models_in_the_server" in row.caveats:
        return "several models in one answer"
    if "sliding_window" in row.caveats:
        return "the image is cut into windows"
    if row.network == "ssd300-resnet50" and row.runtime == "tensorflow":
        return "another network of this name"  # SSD320 with a feature pyramid
    if row.network == "neumf" and row.runtime == "tensorflow":
        return "the unit of the rate is not stated"  # by the size of the figures, millions of samples
    if row.network in _DETECTORS and row.source == "deeplearningexamples":
        return "the loop around a detector is timed"
    if row.network in _LOOPS and row.source == "deeplearningexamples" and row.mode == "inference":
        return "what loads the pictures is timed, too"
    if row.mode == "inference" and any(word in row.variant.split() for word in _OFFLOADED):
        return "weights move between host and device in the run"
    if row.runtime == "torch" and any(words in row.variant for words in _REPLAYED):
        return "replayed as a CUDA graph"
    boxes = _BOXES in row.caveats or row.timing == _BOXES_TOO or (row.source, row.task) in _BOXES_INSIDE
    if row.mode == "inference" and boxes:
        return "boxes and masks behind the network are in the time and in no graph"
    if row.quantization:
        return "weights quantised by the framework"
    if row.batch < 1:
        return "no batch stated"
    return ""


def _generates(row: Any) -> bool:
    """Whether a decoder ran token by token: a search with beams, a sampler, a pipeline that writes text."""
    words = row.output_tokens > 0 or row.task == "decoding" or "generation_length_not_fixed" in row.caveats
    words = words or row.timing.startswith(_PROMPT_AND_TOKENS)
    return bool(words or row.beams > 0 or (row.task == "translation" and row.mode == "inference"))


def _precision(row: Any) -> str:
    """As it ran, where the options of the run change what is stated."""
    if _AUTOMATIC_FP16 in row.variant:
        return "amp"
    if row.source == "optimum_benchmark" and _ORT_FP16 in row.variant:
        return "fp16"
    return str(row.precision)


def _without_tf32(row: Any, target: Device | None) -> bool:
    """FasterTransformer's page on vision transformers heads its table of an A100 "FP32", beside the switch that makes
    it so (NVIDIA_TF32_OVERRIDE=0); 13 TFLOP/s are fp32's there, too.
    """
    own = row.source == "fastertransformer" and row.network.startswith("vit") and row.precision == "fp32"
    return own and target is not None and "tf32" in target.peak_flops


def _board(row: Any) -> str:
    return str(row.device) + (f":{row.mig_profile}" if row.mig_profile else "")


def _device(name: str) -> Device | None:
    with contextlib.suppress(PerfPassError):
        return device(name)
    return None


def _size(row: Any, definition: Definition) -> tuple[int, str]:
    """Tokens, pixels or tenths of a second, and who says so: stated, mean, default (of the definition)."""
    stated = -1
    if definition.sized_by == "tokens":
        stated = row.sequence
        if row.padding_removed and row.mean_sequence > 0:
            return round(row.mean_sequence), "mean"
    elif definition.sized_by == "pixels":
        stated = row.img_height
        # "512 x 2048", "800 x 1333": bounds within which an image keeps its sides; most images are 4 by 3.
        if row.source == "openmmlab" and (row.img_height, row.img_width) in ((512, 2048), (800, 1333)):
            return (512 if row.img_width == 2048 else definition.default), "default"
    elif definition.sized_by == "audio" and row.audio_s > 0:
        stated = round(10 * row.audio_s)
    if stated > 0:
        return int(stated), "stated"
    return definition.default, "default" if definition.sized_by != "fixed" else "definition"


def _table_model(row: Any, definition: Definition, shape_from: str) -> str:
    name = definition.heads.get((row.source, row.mode)) or definition.heads.get(("", row.mode)) or definition.model
    if definition.steps:
        name += f"-{row.steps if row.steps > 0 else definition.steps}-steps"
    height, width = (
        (row.img_height, row.img_width) if shape_from == "stated" else (definition.default, definition.width)
    )
    if definition.sized_by == "pixels" and width > 0 and width != height:
        name += f"@{height}x{width}"
    if not definition.attention:
        return name
    eager = row.runtime in _EAGER and row.software_year < _FUSED_FROM_YEAR
    fused = any(word in row.variant for word in _FUSED_WORDS)
    parts = (row.source, row.runtime) in _IN_PARTS or _unfused(row, definition)
    parts |= row.source == "optimum_benchmark" and row.variant.endswith("; " + _ORT_BASIC)
    return name + (EAGER if parts or (eager and not fused) else "")


def _unfused(row: Any, definition: Definition) -> bool:
    """Whether FasterTransformer's own kernels, in a plugin of TensorRT too, ran attention in parts."""
    if row.source != "fastertransformer" or row.runtime not in ("faster_transformer", "tensorrt"):
        return False
    patches = definition.sized_by == "pixels" and row.network.startswith("vit")
    tokens = (definition.default // _PATCH) ** 2 + 1 if patches else row.sequence
    return row.precision in ("fp32", "tf32") or tokens > _FUSED_TOKENS


def _optimizer(row: Any) -> str:
    return _OPTIMIZERS.get(row.domain, "momentum")
