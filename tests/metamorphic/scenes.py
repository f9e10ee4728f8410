"""The questions that promises are tried on: drawn from all combinations, the same ones every time."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from . import boards
from .networks import LADDERS, NETWORKS
from .questions import OfflineBatch, Question, Run, Served, ask
from .relations import with_bounds

BATCHES = (1, 2, 3, 4, 8, 16, 24, 32, 64, 100, 128, 256)
FEW_BATCHES = (1, 4, 32, 100)
_INFERENCE: tuple[dict[str, Any], ...] = (
    *({"precision": p} for p in ("fp32", "fp32", "fp16", "fp16", "amp", "bf16", "amp_bf16", "tf32", "fp64")),
    *({"precision": p, "layout": "nhwc"} for p in ("fp32", "amp")),
    *({"precision": p, "runtime": "torch.compile"} for p in ("fp32", "fp16", "amp", "amp_bf16")),
    *({"precision": p, "runtime": "onnxruntime"} for p in ("fp32", "fp16")),
    *({"precision": p, "runtime": "tensorrt"} for p in ("fp16", "int8", "fp8")),
    {"precision": "fp32", "runtime": "tvm"},
)
_TRAINING: tuple[dict[str, Any], ...] = (
    *({"precision": p, "mode": "training"} for p in ("fp32", "amp", "fp16", "amp_bf16", "tf32")),
    {"precision": "fp32", "mode": "training", "optimizer": "adamw"},
    {"precision": "amp", "mode": "training", "runtime": "torch.compile"},
    {"precision": "amp", "mode": "training", "layout": "nhwc"},
)
EAGER_OR_COMPILED = ("torch", "torch.compile")
# On a CPU these are asked of the few runtimes that people use there.
_ON_CPU: tuple[dict[str, Any], ...] = (
    {"precision": "fp32"},
    {"precision": "bf16"},
    {"precision": "fp32", "runtime": "torch.compile"},
    {"precision": "fp32", "runtime": "onnxruntime"},
    {"precision": "fp32", "runtime": "tvm"},
    {"precision": "fp32", "mode": "training"},
)
LANGUAGE_MODELS = (
    *("llama-3.1-8b", "llama-3.1-70b", "llama-2-7b", "llama-2-13b", "qwen3-32b", "qwen3-8b", "mixtral-8x7b"),
    *("gpt-oss-20b", "gpt-oss-120b", "deepseek-v3", "gemma-2-9b", "opt-6.7b", "mistral-7b"),
)
LANGUAGE_LADDERS = (
    ("llama-3.2-1b", "llama-3.2-3b", "llama-3.1-8b", "llama-3.1-70b"),
    ("llama-2-7b", "llama-2-13b"),
    ("qwen3-0.6b", "qwen3-1.7b", "qwen3-8b", "qwen3-32b"),
    ("opt-125m", "opt-1.3b", "opt-6.7b"),
    ("pythia-70m", "pythia-160m", "pythia-410m", "pythia-1.4b", "pythia-2.8b", "pythia-12b"),
    ("gemma-2-2b", "gemma-2-9b", "gemma-2-27b"),
)
SERVING_GPUS = (
    *("h100-sxm5-80gb", "h200-sxm-141gb", "b200-sxm-180gb", "b300-sxm-288gb", "gb200-186gb", "a100-sxm4-40gb"),
    *("a100-sxm4-80gb", "l40s", "l4", "a10", "a30", "v100-sxm2-32gb", "t4", "rtx-3090", "rtx-4090", "rtx-5090"),
    *("mi300x", "mi325x", "mi250-gcd", "rtx-a6000", "rtx-6000-ada", "rtx-pro-6000-blackwell", "h100-pcie-80gb"),
    *("titan-v", "rtx-2080-ti", "max-1550", "gaudi2-96gb"),
)
PROMPTS = (1, 32, 128, 500, 1024, 2048, 4096, 8192, 16000)
ANSWERS = (2, 32, 128, 256, 512, 1024, 2048, 8192)
LOADS = (1, 2, 4, 8, 16, 24, 32, 64, 100, 128, 256, 512)


@dataclass(frozen=True)
class Scene:
    """Relations and the chain of questions that each is judged on."""

    relations: tuple[str, ...]
    questions: tuple[Question, ...]


def _way(draw: random.Random, name: str, *, training: bool = True) -> dict[str, Any]:
    """A precision, runtime, layout and mode that the device has."""
    ways = _ON_CPU if name in boards.CPUS else (*_INFERENCE, *(_TRAINING if training else ()))
    kept = [w for w in ways if boards.can(name, w["precision"]) and (training or "mode" not in w)]
    if boards.device(name).vendor != "NVIDIA":
        kept = [w for w in kept if w.get("runtime") != "tensorrt"]
    return draw.choice(kept)


def _device(draw: random.Random) -> str:
    return draw.choice(boards.CPUS if draw.random() < 0.2 else boards.GPUS)


def run_of(draw: random.Random, *, training: bool = True, networks: Sequence[str] = tuple(NETWORKS)) -> Run:
    """Any run of one of ``networks`` that its device can do."""
    name = _device(draw)
    return Run(draw.choice(networks), name, draw.choice(FEW_BATCHES), **_way(draw, name, training=training))


def batch(draw: random.Random) -> Iterator[Scene]:
    """One network on one device at growing batches."""
    run = run_of(draw)
    kind = "cpu" if run.device in boards.CPUS else "gpu"
    yield Scene(("batch", f"batch-throughput-{kind}"), tuple(replace(run, batch=b) for b in BATCHES))


def _of_one_size(run: Run) -> bool:
    """Whether the device is known at one size of image alone, by trees that have its host in them."""
    return run.device in boards.OF_ANOTHER_HOST and run.mode == "inference"


def size(draw: random.Random) -> Iterator[Scene]:
    """One network at growing images or sequences."""
    run = run_of(draw, networks=[name for name, network in NETWORKS.items() if network.sizes])
    if _of_one_size(run):
        return
    yield Scene(("size",), tuple(replace(run, size=s) for s in NETWORKS[run.network].sizes))


def depth(draw: random.Random) -> Iterator[Scene]:
    """Networks of one family, each with more layers or wider ones."""
    run = run_of(draw)
    if _of_one_size(run):
        return
    yield Scene(("depth",), tuple(replace(run, network=name) for name in draw.choice(LADDERS)))


def training(draw: random.Random) -> Iterator[Scene]:
    """A forward pass and the step that holds it; its optimizers."""
    run = run_of(draw, training=False)
    while run.runtime not in EAGER_OR_COMPILED:
        run = run_of(draw, training=False)
    step = replace(run, mode="training", optimizer="none")
    yield Scene(("training",), (run, step))
    yield Scene(("optimizer",), tuple(replace(step, optimizer=o) for o in ("none", "sgd", "momentum", "adam")))


def processes(draw: random.Random) -> Iterator[Scene]:
    """Several processes on one GPU or one slice of it, in ways of which sharing is predicted."""
    name = draw.choice(boards.SLICED)
    where = draw.choice([name, *dict.fromkeys(a for a, _ in boards.slices(name))])
    ways = [w for w in _INFERENCE if w.get("runtime", "torch") in EAGER_OR_COMPILED and w["precision"] != "tf32"]
    run = Run(draw.choice(tuple(NETWORKS)), where, draw.choice(FEW_BATCHES), **draw.choice(ways))
    yield Scene(("processes",), tuple(replace(run, processes=n) for n in (1, 2, 3, 5, 8)))


def slice(draw: random.Random) -> Iterator[Scene]:
    """One run on every slice of a GPU, and on the whole."""
    name = draw.choice(boards.SLICED)
    run = Run(draw.choice(tuple(NETWORKS)), name, draw.choice(BATCHES), **_way(draw, name))
    for smaller, larger in boards.slices(name):
        yield Scene(("slice",), (replace(run, device=smaller), replace(run, device=larger)))
    if everything := boards.whole_slice(name):
        yield Scene(("whole",), (run, replace(run, device=everything)))


def board(draw: random.Random) -> Iterator[Scene]:
    """One run on every device, from worse to better."""
    run = replace(run_of(draw), batch=draw.choice(BATCHES))
    names = boards.CPUS if run.device in boards.CPUS else boards.GPUS
    for worse, better in boards.ordered(names, run.precision):
        yield Scene(("board",), (replace(run, device=worse), replace(run, device=better)))


def _answered(make: Callable[[random.Random], Any], draw: random.Random) -> Any:
    """The first draw that is not refused: most of what is drawn at random does not fit."""
    return next(q for q in iter(lambda: make(draw), None) if not isinstance(ask(q), str))


def _any_served(draw: random.Random) -> Served:
    return Served(
        draw.choice(LANGUAGE_MODELS),
        draw.choice(SERVING_GPUS),
        draw.choice((128, 1024, 4096)),
        draw.choice((32, 128, 1024)),
        draw.choice((1, 8, 64)),
        runtime=draw.choice(("vllm", "vllm", "trtllm", "sglang", "tgis")),
        tp=draw.choice((1, 1, 2, 4, 8)),
    )


def served(draw: random.Random, **fixed: Any) -> Served:
    """Any language model behind a server that is not refused."""
    return _answered(lambda again: replace(_any_served(again), **fixed), draw)


def serving(draw: random.Random) -> Iterator[Scene]:
    """One language model behind a server: its prompts, its answers, its load, its split."""
    asked = served(draw)
    yield Scene(("serving-prompt",), tuple(replace(asked, input_length=n) for n in PROMPTS))
    yield Scene(("serving-answer",), tuple(replace(asked, output_length=n) for n in ANSWERS))
    yield Scene(("serving-load", "serving-throughput"), tuple(replace(asked, concurrency=n) for n in LOADS))
    yield Scene(("serving-split",), tuple(replace(asked, tp=n) for n in (1, 2, 4, 8)))


def serving_depth(draw: random.Random) -> Iterator[Scene]:
    """Language models of one family."""
    asked = served(draw, tp=1)
    yield Scene(("serving-depth",), tuple(replace(asked, model=name) for name in draw.choice(LANGUAGE_LADDERS)))


def serving_board(draw: random.Random) -> Iterator[Scene]:
    """One server on every GPU, from worse to better."""
    asked = served(draw, tp=1, precision="fp16")
    for worse, better in boards.ordered(SERVING_GPUS, "fp16"):
        yield Scene(("serving-board",), (replace(asked, device=worse), replace(asked, device=better)))


def _any_offline(draw: random.Random) -> OfflineBatch:
    return OfflineBatch(
        draw.choice(LANGUAGE_MODELS),
        draw.choice(SERVING_GPUS),
        draw.choice((1, 8, 32)),
        draw.choice((128, 1024)),
        draw.choice((32, 128, 1024)),
        runtime=draw.choice(("vllm", "vllm", "trtllm", "deepspeed", "llama.cpp")),
        devices=draw.choice((1, 1, 2, 4)),
    )


def _offline(draw: random.Random, **fixed: Any) -> OfflineBatch:
    return _answered(lambda again: replace(_any_offline(again), **fixed), draw)


def offline(draw: random.Random) -> Iterator[Scene]:
    """One offline batch: its requests, its prompts, its answers."""
    asked = _offline(draw)
    if asked.runtime != "llama.cpp":  # there the batch is prompt tokens at a time
        yield Scene(("offline-batch",), tuple(replace(asked, batch=n) for n in (1, 2, 4, 8, 16, 32, 64, 128)))
    yield Scene(("offline-prompt",), tuple(replace(asked, input_tokens=n) for n in PROMPTS[1:7]))
    yield Scene(("offline-answer",), tuple(replace(asked, output_tokens=n) for n in ANSWERS[:7]))


def offline_depth(draw: random.Random) -> Iterator[Scene]:
    """Language models of one family."""
    asked = _offline(draw, devices=1)
    yield Scene(("offline-depth",), tuple(replace(asked, model=name) for name in draw.choice(LANGUAGE_LADDERS)))


def offline_board(draw: random.Random) -> Iterator[Scene]:
    """One offline batch on every GPU, from worse to better."""
    asked = _offline(draw, devices=1)
    for worse, better in boards.ordered(SERVING_GPUS, "fp16"):
        yield Scene(("offline-board",), (replace(asked, device=worse), replace(asked, device=better)))


def kept(_draw: random.Random) -> Iterator[Scene]:
    """Questions that were once answered against the order: asked in every sample."""
    vit = Run("vit_base_patch16_224.onnx", "a100-sxm4-40gb", 128)
    yield Scene(("slice",), (replace(vit, device="a100-sxm4-40gb:7g.40gb"), vit))
    deberta = Run("deberta_v3_large_dynamic.onnx", "h100-sxm5-80gb", 8, precision="amp")
    names = [f"{deberta.device}:{profile}" for profile in ("3g.40gb", "4g.40gb", "7g.80gb")]
    yield Scene(("slice",), tuple(replace(deberta, device=name) for name in (*names, deberta.device)))
    yield Scene(("whole",), (deberta, replace(deberta, device=names[-1])))
    half = replace(deberta, precision="fp16")
    yield Scene(("batch", "batch-throughput-gpu"), tuple(replace(half, batch=b) for b in BATCHES))
    for name in ("resnet50.onnx", "mobilenet_v2"):
        run = Run(name, "ryzen-9-9950x", 1, runtime="onnxruntime")
        yield Scene(("batch", "batch-throughput-cpu"), tuple(replace(run, batch=b) for b in BATCHES))
        for precision in ("fp32", "fp16", "amp"):
            run = Run(name, "l4", 1, precision=precision)
            yield Scene(("board",), (run, replace(run, device="rtx-4090")))
    # From batch 2 on its projections are products with a weight that is broadcast over the tokens.
    for run in (Run("vgg19", "titan-rtx", 1), Run("vit_b_16", "l4", 1)):
        yield Scene(("batch", "batch-throughput-gpu"), tuple(replace(run, batch=b) for b in BATCHES))
    run = Run("squeezenet1_1", "epyc-9755", 1, runtime="torch.compile")
    yield Scene(("training",), (run, replace(run, mode="training", optimizer="none")))
    run = Run("vit_base_patch16_224.onnx", "a100-sxm4-80gb:1g.20gb", 1)
    yield Scene(("processes",), (replace(run, processes=5), replace(run, processes=8)))
    run = Run("vgg11", "l40", 1, layout="nhwc")
    yield Scene(("depth",), (run, replace(run, network="vgg13")))
    batch = OfflineBatch("llama-3.1-8b", "mi300x", 8, 1024, 1024)
    yield Scene(("offline-board",), (batch, replace(batch, device="mi325x")))


# How many draws of each make the whole: some 12,000 questions, in minutes on one core.
DRAWS: dict[Callable[[random.Random], Iterator[Scene]], int] = {
    kept: 1, batch: 240, size: 120, depth: 160, training: 120, processes: 80, slice: 120, board: 40,
    serving: 60, serving_depth: 80, serving_board: 12, offline: 60, offline_depth: 60, offline_board: 12,
}  # fmt: skip


def scenes(
    kind: Callable[[random.Random], Iterator[Scene]],
    draws: int,
    seed: int = 0,
    networks: Collection[str] = NETWORKS,
) -> Iterator[Scene]:
    """The first ``draws`` of a kind that ask about ``networks`` alone; draw i is the same whatever else is asked."""
    kept, i = 0, 0
    while kept < draws:
        drawn = list(kind(random.Random(f"{kind.__name__} {seed} {i}")))
        i += 1
        if all(q.network in networks for scene in drawn for q in scene.questions if isinstance(q, Run)):
            kept += 1
            yield from (Scene(with_bounds(*scene.relations), scene.questions) for scene in drawn)
