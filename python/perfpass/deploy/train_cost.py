"""`perfpass.train_cost`: whether a training run fits, how long it takes, what it costs, in one layout or the best."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

from perfpass.deploy import train_arguments
from perfpass.deploy.training_run import RunCost, Searched, cells, energy_cells, run_cost, step_energy_j
from perfpass.devices import device as find_device
from perfpass.errors import ArgumentError, DeviceError, PerfPassError
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.assumed import check_together
from perfpass.llm.configuration import language_model
from perfpass.llm.families import attends_eagerly, composes_norms
from perfpass.llm.recipe import Adapter, Kernels, Layout, Recipe
from perfpass.prediction import Interval
from perfpass.predictors.calibration.steps import corrected_run
from perfpass.predictors.llm_training.predict import Run, run
from perfpass.predictors.llm_training.step import nvlink_domain
from perfpass.predictors.memory.allowance import by_pytorchs_allocator
from perfpass.text import columns, count, interval, paragraph, size

if TYPE_CHECKING:
    import os

    from perfpass.devices import Device

_MICRO_BATCHES = (1, 2, 4, 8)
_SEQUENCE = 4096
_WORTH_SAYING = 0.05  # of the upper bound of memory
_MEMORY_PARTS = (
    ("weights", "weights"),
    ("gradients", "gradients"),
    ("master", "master copy"),
    ("moments", "optimizer"),
    ("gathered", "gathered"),
    ("activations", "activations"),
    ("working", "loss, layer"),
    ("update", "update"),
)


@dataclass(frozen=True)
class TrainCost:
    """A training run: where, in which layout, by which recipe, and what is predicted of it.

    Rates and energy are of all devices; ``usd``, ``carbon_g``, ``hours`` and ``energy_j`` are of ``tokens``, None where
    none were asked for (or no price or grid is known).
    """

    model: str
    device: str
    devices: int
    framework: str
    precision: str
    layout: Layout
    recipe: Recipe
    predicted: Run
    memory_bytes: int
    tokens_per_step: int
    tokens: float | None
    hours: Interval | None
    energy_j: Interval | None
    usd: Interval | None
    carbon_g: Interval | None
    notes: tuple[str, ...]

    @property
    def tokens_per_s(self) -> Interval:
        """Over all devices."""
        step = self.predicted.step_s
        median, low, high = (self.tokens_per_step / s for s in (step.median, step.high, step.low))
        return Interval(median, low, high, "tokens/s")

    @property
    def step_energy_j(self) -> Interval:
        """Of one step, over all devices."""
        return step_energy_j(self.predicted.step_s, self.predicted.power_w, self.devices)

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        found, memory = self.predicted, self.predicted.memory
        optional = {name: getattr(self, name) for name in ("hours", "energy_j", "usd", "carbon_g")}
        return {
            "schema": 1,
            "model": self.model,
            "device": self.device,
            "devices": self.devices,
            "framework": self.framework,
            "precision": self.precision,
            "layout": asdict(self.layout),
            "recipe": asdict(self.recipe),
            "fits_probability": found.fits_probability,
            "memory_in_use_bytes": _plain(found.in_use),
            "device_memory_bytes": self.memory_bytes,
            "fullest_stage": memory.fullest,
            "stages": [{**asdict(stage), "peak": stage.peak} for stage in memory.stages],
            "step_s": _plain(found.step_s),
            "step_parts_s": asdict(found.parts_s),
            "tokens_per_step": self.tokens_per_step,
            "tokens_per_s": _plain(self.tokens_per_s),
            "mfu": found.mfu,
            "power_w_of_a_device": _plain(found.power_w),
            "step_energy_j": _plain(self.step_energy_j),
            "tokens": self.tokens,
            **{name: None if value is None else _plain(value) for name, value in optional.items()},
            "why": list(found.why),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        found = self.predicted
        head = (
            f"{self.model} on {self.devices} x {self.device}, {self.framework}\n{described(self.layout, self.recipe)}"
        )
        rows = [
            ("step", *interval(found.step_s.median, found.step_s.low, found.step_s.high, "s")),
            ("tokens", *cells(self.tokens_per_s)),
            ("of a device", *cells(_scaled(self.tokens_per_s, 1 / self.devices))),
            ("power each", *cells(found.power_w)),
            ("a step takes", *energy_cells(self.step_energy_j)),
            ("memory each", *interval(found.in_use.median, found.in_use.low, found.in_use.high, "byte")),
        ]
        rows += RunCost(self.hours, self.energy_j, self.usd, self.carbon_g).cells()
        table = columns([("", "median", "", "90% interval"), *rows], right=(1,))
        stage = found.memory.stages[found.memory.fullest]
        parts = ", ".join(
            f"{label} {size(getattr(stage, name))}" for name, label in _MEMORY_PARTS if getattr(stage, name)
        )
        spent = sorted(((getattr(found.parts_s, f.name), f.name) for f in fields(found.parts_s)), reverse=True)
        seconds = float(found.parts_s.seconds)
        causes = ", ".join(f"{name} {100 * s / seconds:.0f} %" for s, name in spent if s >= 0.005 * seconds)
        answer = f"P = {found.fits_probability:.2f} in {size(self.memory_bytes)}"
        lines = [head, "", table, "", paragraph("fits", answer)]
        lines.append(paragraph("holds", f"stage {found.memory.fullest + 1} of {self.layout.pipeline}: {parts}"))
        if stage.host:
            lines.append(paragraph("host", f"{size(stage.host)} of the host's memory for each device"))
        lines += [paragraph("step", causes), paragraph("MFU", f"{100 * found.mfu:.0f} % of the 16-bit peak")]
        lines += [paragraph("note", note) for note in self.notes]
        return "\n".join(lines)


@dataclass(frozen=True)
class Layouts(Searched[TrainCost]):
    """What a search found."""

    more: ClassVar[tuple[str, ...]] = ("slower by",)

    def row(self, one: TrainCost) -> tuple[str, ...]:
        found, first = one.predicted, self.best[0].predicted
        why = "" if one is self.best[0] else _slower(first, found)
        memory = size(found.in_use.median)
        words = described(one.layout, one.recipe)
        return words, f"{found.step_s.median:.3g}", "s", f"{found.fits_probability:.2f}", memory, why


def described(layout: Layout, recipe: Recipe) -> str:
    """A layout and recipe in few words."""
    ways = (("tp", layout.tensor), ("pp", layout.pipeline), ("cp", layout.context), ("ep", layout.expert))
    parts = [f"{name}{ranks}" for name, ranks in (*ways, ("dp", layout.data)) if ranks > 1] or ["1 device"]
    if layout.virtual > 1:
        parts.append(f"vp{layout.virtual}")
    parts += [layout.schedule] if layout.schedule != "1f1b" else []
    parts += [layout.sharding] if layout.sharding != "none" else []
    parts.append(f"mb{recipe.micro_batch}x{recipe.micro_batches}")
    parts += [f"recompute {recipe.recompute}"] if recipe.recompute != "none" else []
    return " ".join([*parts, f"offload {recipe.offload}"] if recipe.offload != "none" else parts)


def train_cost(
    model: Any,
    device: str | Device,
    *,
    gpus: int = 1,
    tensor: int = 1,
    pipeline: int = 1,
    virtual: int = 1,
    schedule: str = "1f1b",
    context: int = 1,
    expert: int = 1,
    expert_tensor: int = 0,
    sharding: str | None = None,
    sharding_group: int = 0,
    sequence: int | None = None,
    micro_batch: int = 1,
    global_batch: int | None = None,
    precision: str | None = None,
    optimizer: str = "adamw",
    recompute: str = "none",
    offload: str = "none",
    attention: str | None = None,
    loss: str | None = None,
    framework: str = "megatron",
    lora_rank: int | None = None,
    lora_targets: tuple[str, ...] = ("query", "value"),
    frozen: str = "none",
    dora: bool = False,
    equal_lengths: bool = False,
    towers: str = "frozen",
    fabric_gb_s: float | None = None,
    host_gb_s: float | None = None,
    tokens: float | None = None,
    region: str | None = None,
    carbon_intensity: float | None = None,
    pue: float = 1.0,
    price_table: str | os.PathLike[str] | None = None,
    calibration: bool = True,
) -> TrainCost:
    """What training ``model`` takes on ``gpus`` devices in a layout.

    ``model``: as for `perfpass.predict_llm`. ``sharding``: none, zero1 (default with replicas), zero2, zero3 (FSDP),
    over ``sharding_group`` ranks (0: all). ``expert_tensor``: ranks that share an expert (0: by ``expert``).
    ``sequence``: tokens (default: 4,096, or as many as the model has positions, if those are fewer).
    ``global_batch``: sequences of a step (default: one micro-batch a replica). ``precision``: bf16 (default; fp16
    where the device has no bf16), fp16, fp8, nvfp4 (products alone; master copies in single precision), amp, bf16_true,
    fp32. ``framework``: megatron, torch, deepspeed, other, all with fused kernels; eager PyTorch's step is that of
    `perfpass.train_network_cost`. ``lora_rank``: adapters on ``lora_targets``, the rest
    ``frozen`` as none (16 bits), int8, nf4 or nf4_double; ``dora``: with magnitudes. ``equal_lengths``: sequences
    are packed or padded to one length (else the upper bound of the memory in use holds what PyTorch's allocator keeps
    of other lengths; Megatron-LM packs). ``towers`` of a model that reads pictures or sound: frozen (default: their
    weights are loaded), trained (gradients and states, too, but beside adapters), none.
    ``attention``: flash (default), or unfused, which keeps the probabilities
    (default of "torch" where transformers has no fused one for the model). ``recompute``: none, selective, full,
    offloaded (full, layers' inputs wait on the host). ``offload``: none, states (of the optimizer), optimizer
    (gradients, too, but of Megatron-LM), parameters, which wait on the host. ``schedule``: 1f1b, zb_h1, zb_h2.
    ``fabric_gb_s``: network between hosts, ``host_gb_s``: the host's memory, GB/s of (one direction) for a device.
    ``tokens``: of the run, for hours, energy, money and, with a region or intensity, carbon. ``calibration``: whether
    what `perfpass calibrate` has learned of own steps on the device is used.

    Raises ArgumentError for what cannot be laid out, DeviceError for a device that lacks the precision.
    """
    train_arguments.check(locals())
    read = model if isinstance(model, LanguageModel) else language_model(model)
    board = find_device(device)
    check_together(board, gpus)
    if precision is None:
        precision = "bf16" if "bf16" in board.peak_flops else "fp16"
    eager = attention is None and framework == "torch" and attends_eagerly(read.model_type)
    layout, recipe = _asked(
        gpus=gpus,
        layout={
            "tensor": tensor,
            "pipeline": pipeline,
            "virtual": virtual,
            "context": context,
            "expert": expert,
            "expert_tensor": expert_tensor,
            "sharding_group": sharding_group,
        },
        schedule=schedule,
        sharding=sharding,
        batch=(micro_batch, global_batch, sequence_of(read, sequence)),
        precision=precision,
        recipe={
            "optimizer": optimizer,
            "recompute": recompute,
            # Megatron-LM's own offloading of the optimizer keeps gradients in their buffers.
            "offload": "states" if (offload, framework) == ("optimizer", "megatron") else offload,
            "kernels": Kernels(
                attention or ("unfused" if eager else "flash"),
                fused_norms=framework != "torch" or not composes_norms(read.model_type),
                fused_gates=framework != "torch",
            ),
            "loss": loss or ("eager" if framework == "torch" else "parallel"),
            "foreach": framework == "torch",
            "gradient_buffers": framework != "torch",
            "gradient_bytes": _gradient_bytes(framework, precision, sharding),
            "adapter": _adapter(lora_rank, lora_targets, frozen, dora, framework),
            "towers": towers if read.beside else "none",
        },
    )
    _divides(read, layout)
    rates = {"fabric": 1e9 * (fabric_gb_s or 0.0)}
    if host_gb_s is not None:
        rates["host_bytes_s"] = 1e9 * host_gb_s
    products = train_arguments.PRODUCTS.get(precision, "")
    found = run(
        read, board, layout, recipe, framework=framework, product_precision=products, unequal=not equal_lengths, **rates
    )
    found, corrected = corrected_run(found, board, read.name, wanted=calibration)
    per_step = recipe.micro_batch * recipe.micro_batches * layout.data * recipe.sequence
    steps = None if tokens is None else tokens / per_step
    cost = run_cost(
        found.step_s, found.power_w, steps, board, gpus,
        region=region, carbon_intensity=carbon_intensity, pue=pue, price_table=price_table,
    )  # fmt: skip
    told = {
        _FUSED: gpus == 1 and recipe.adapter is None,
        _OTHER_ALLOCATOR: not by_pytorchs_allocator(board),
        _TOWERS[towers].format(read.beside / 1e9): read.beside > 0,
        _EAGER: eager,
    }
    notes = (
        *(*length_note(read, sequence), *corrected, *(_UNSURE[name] for name in found.why)),
        *(said for said, holds in told.items() if holds),
        *(*_uncounted(recipe, framework), *_kept(found), *cost.notes),
    )
    return TrainCost(
        model=read.name,
        device=board.id,
        devices=gpus,
        framework=framework,
        precision=precision,
        layout=layout,
        recipe=recipe,
        predicted=found,
        memory_bytes=board.usable_bytes,
        tokens_per_step=per_step,
        tokens=tokens,
        hours=cost.hours,
        energy_j=cost.energy_j,
        usd=cost.usd,
        carbon_g=cost.carbon_g,
        notes=notes,
    )


def sequence_of(model: LanguageModel, given: int | None) -> int:
    """Tokens of a sequence: those ``given``, else 4,096, or as many as ``model`` has positions, if those are fewer."""
    return given or min(_SEQUENCE, model.max_positions or _SEQUENCE)


def length_note(model: LanguageModel, given: int | None) -> tuple[str, ...]:
    """What is to be said of `sequence_of`, if anything."""
    tokens, most = sequence_of(model, given), model.max_positions
    if given is None and tokens == most:
        return (f"sequences of {tokens:,} tokens: {model.name} has no more positions",)
    if 0 < most < tokens:
        return (f"{model.name} has {most:,} positions: it does not train on {tokens:,} tokens as it is",)
    return ()


def _gradient_bytes(framework: str, precision: str, sharding: str | None) -> float | None:
    """Of an element, where it is not the precision's: DeepSpeed's BF16 optimizer (stages 0 and 1) adds gradients up in
    single precision beside those in halves (BLOOM's chronicles: "not sharded across gpus").
    """
    return (
        2.0 + 4.0 if framework == "deepspeed" and precision == "bf16" and sharding in (None, "none", "zero1") else None
    )


_FUSED = (
    "a training framework's step: norms, gates and loss are fused or compiled. Eager PyTorch, as `perfpass predict "
    "--mode training` tells it, takes longer: --framework eager"
)
_OTHER_ALLOCATOR = (
    "no framework's memory was measured on it, whose runtime is not PyTorch's for CUDA or ROCm: what a step makes "
    "beside weights, gradients and states may be 0.85 to 1.7 of what is counted"
)
_TOWERS = {
    "none": "the language model alone is counted: what reads pictures or sound beside it ({:.2f} B parameters) is not",
    "frozen": "what reads pictures or sound ({:.2f} B parameters) is counted as frozen weights, as transformers loads "
    "it; with its gradients and states: --towers trained. Its passes over pictures take time and memory beside",
    "trained": "what reads pictures or sound ({:.2f} B parameters) is counted with what its training holds, beside "
    "adapters as frozen weights; its passes over pictures take time and memory beside",
}
_EAGER = (
    "transformers multiplies, masks and multiplies again where no other attention is asked of it for this model: its "
    "probabilities are kept. With a fused kernel (flash_attention_2, another program): --attention flash"
)
_UNSURE = {
    "vendor": "no training of a language model was measured on a board of this vendor, nor the watts of any step: the "
    "intervals are far wider",
    "device": "no training of a language model was measured on this device: the interval is wider",
    "framework": "no framework that was measured: the interval is wider",
    "host": "no run that offloads was measured: the interval is wider",
    "issue": "kernels are issued for longer than they run; the host's speed is not known: the interval is wider",
    "schedule": "no run of a zero-bubble schedule was measured: the interval is wider",
}


def _uncounted(recipe: Recipe, framework: str) -> Iterator[str]:
    if recipe.offload == "states" and framework == "megatron":
        yield "Megatron-LM's --optimizer-cpu-offload leaves gradients on the device, where they are counted"
    if recipe.offload == "parameters" and framework == "megatron":
        yield "Megatron-LM leaves weights and gradients on the device; they are counted on the host, as with DeepSpeed"
    if framework == "torch" and recipe.precision in ("bf16", "fp16") and recipe.adapter is None:
        yield (
            "counted with a master copy and sums in fp32; trainers that load and update weights in bf16 alone "
            "(transformers' Trainer, torchtune) hold less than half of these states: --precision bf16_true"
        )
    if recipe.adapter and recipe.adapter.frozen == "int8":
        yield "unpacking weights of 8 bits was not measured: it is told as that of NF4"
    if recipe.adapter and recipe.adapter.decomposed:
        yield "the norms of DoRA's weights are not in the time: a step takes longer"


def _kept(found: Run) -> Iterator[str]:
    if found.kept_bytes > _WORTH_SAYING * found.in_use.high:
        yield (
            f"up to {size(found.kept_bytes)} of the upper bound is what PyTorch's allocator keeps where sequences "
            "differ in length; it gives that back before it fails. None where they are packed or padded to one length "
            "(--equal-lengths), hardly any with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
        )


def search_layouts(model: Any, device: str | Device, *, gpus: int, **asked: Any) -> Layouts:
    """Every layout of ``gpus`` devices (tensor, pipeline, context and expert ranks, sharding, micro-batch,
    recomputation), the quickest that fits first. ``asked``: what is left of `train_cost`; what is given of a layout
    stays. Raises ArgumentError, DeviceError as `train_cost`.
    """
    read = model if isinstance(model, LanguageModel) else language_model(model)
    board = find_device(device)
    fit: list[TrainCost] = []
    others: list[TrainCost] = []
    refused: PerfPassError | None = None
    divided = {name: asked[name] for name in ("tensor", "pipeline", "context") if asked.get(name) is not None}
    train_arguments.check({"gpus": gpus, **divided})
    for layout in _candidates(read, board, gpus, asked):
        try:
            found = train_cost(read, board, gpus=gpus, **layout)
        except DeviceError:
            raise
        except ArgumentError as error:
            refused = error
            continue
        (fit if found.predicted.fits else others).append(found)
    if not fit and not others:
        raise ArgumentError(
            f"no layout of {gpus} devices can be asked: {refused or 'what is given does not divide them'}"
        )
    fit.sort(key=lambda one: one.predicted.step_s.median / one.tokens_per_step)
    others.sort(key=lambda one: one.predicted.in_use.median)
    return Layouts(tuple(fit), tuple(others), len(fit) + len(others))


def _candidates(model: LanguageModel, board: Device, gpus: int, asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
    def powers(most: int) -> list[int]:
        return [n for n in (1, 2, 4, 8, 16, 32, 64) if n <= most and gpus % n == 0]

    def choices(name: str, among: list[Any]) -> list[Any]:
        return [asked[name]] if asked.get(name) is not None else among

    experts = powers(64) if model.is_mixture else [1]
    for tensor in choices("tensor", [n for n in powers(8) if n <= nvlink_domain(board, n)]):
        for pipeline in choices("pipeline", [p for p in powers(32) if p <= model.layer_count]):
            for context in choices("context", powers(8) if sequence_of(model, asked.get("sequence")) >= 16384 else [1]):
                if gpus % (tensor * pipeline * context):
                    continue
                data = gpus // (tensor * pipeline * context)
                shardings = ["none"] if data * context == 1 else ["zero1", "zero3"] if pipeline == 1 else ["zero1"]
                for sharding in choices("sharding", shardings):
                    for expert in choices("expert", [e for e in experts if data * context * tensor % e == 0]):
                        for micro in choices("micro_batch", list(_MICRO_BATCHES)):
                            for recompute in choices("recompute", ["none", "full"]):
                                yield asked | {
                                    "tensor": tensor,
                                    "pipeline": pipeline,
                                    "context": context,
                                    "expert": expert,
                                    "sharding": sharding,
                                    "micro_batch": micro,
                                    "recompute": recompute,
                                }


def _asked(
    *,
    gpus: int,
    layout: dict[str, int],
    schedule: str,
    sharding: str | None,
    batch: tuple[int, int | None, int],
    precision: str,
    recipe: dict[str, Any],
) -> tuple[Layout, Recipe]:
    asked: dict[str, Any] = dict(layout)
    plain = Layout(**(asked | {"expert": 1, "expert_tensor": 0}))
    ranks = plain.tensor * plain.pipeline * plain.context
    if gpus % ranks:
        raise ArgumentError(f"{ranks} ranks of a replica do not divide {gpus} devices; change tensor, pipeline or gpus")
    data = gpus // ranks
    sharding = sharding or ("zero1" if data * plain.context > 1 else "none")
    split = Layout(**asked, data=data, sharding=sharding, sequence_parallel=plain.tensor > 1, schedule=schedule)
    micro, whole, sequence = batch
    if whole is None:
        whole = micro * data * max(1, plain.pipeline)
    if whole % (micro * data):
        raise ArgumentError(
            f"a global batch of {whole} is no multiple of {data} replicas' micro-batches of {micro}; change one of them"
        )
    if sequence % split.context:
        raise ArgumentError(f"{split.context} context ranks do not divide a sequence of {sequence} tokens")
    steps = whole // (micro * data)
    held = "fp8" if precision == "nvfp4" else precision
    return split, replace(Recipe(micro, sequence, steps, precision=held), **recipe)


def _divides(model: LanguageModel, layout: Layout) -> None:
    chunks = layout.pipeline * layout.virtual
    if layout.virtual > 1 and chunks > model.layer_count:
        raise ArgumentError(
            f"{layout.virtual} chunks of each of {layout.pipeline} stages for the {model.layer_count} layers of "
            f"{model.name}; give at most {max(model.layer_count // layout.pipeline, 1)}, one for each layer"
        )
    if model.heads % layout.tensor:
        raise ArgumentError(f"{layout.tensor} tensor ranks do not divide the {model.heads} heads of {model.name}")


def _adapter(rank: int | None, targets: tuple[str, ...], frozen: str, dora: bool, framework: str) -> Adapter | None:
    if not rank:
        if dora:
            raise ArgumentError("DoRA is of an adapter; give its rank, as lora_rank=16")
        if frozen != "none":
            raise ArgumentError("frozen weights are those beside an adapter; give its rank, as lora_rank=16")
        return None
    return Adapter(rank, targets, frozen, decomposed=dora, single=framework == "torch")


def _slower(first: Run, other: Run) -> str:
    """The cause that makes another layout slower most."""
    name = max(
        (f.name for f in fields(first.parts_s)),
        key=lambda n: getattr(other.parts_s, n) - getattr(first.parts_s, n),
    )
    more = getattr(other.parts_s, name) - getattr(first.parts_s, name)
    return f"{name} +{count(more)} s" if more > 0 else ""


def _scaled(value: Interval, factor: float) -> Interval:
    return value.scaled(factor, value.unit)


def _plain(value: Interval) -> dict[str, Any]:
    return {"median": value.median, "low": value.low, "high": value.high, "unit": value.unit}
