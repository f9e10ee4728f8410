"""Memory of training a language model on one to many devices: what each rank holds, counted from the architecture.

`training_memory` counts, for every stage of a pipeline, weights, gradients, master copies and states of the optimizer
as its layout shards them (ZeRO: arXiv:1910.02054, section 5; PyTorch FSDP: arXiv:2304.11277), activations that wait for
their gradients (`perfpass.llm.activations`; Korthikanti et al., arXiv:2205.05198, section 4), as many micro-batches of
them as the schedule has under way (1F1B and interleaved: arXiv:2104.04473, section 2.2), and the logits with their
loss. Nothing is fitted; what a program takes beside (workspaces, caches) is `Recipe.workspace_bytes`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from perfpass.errors import ArgumentError
from perfpass.llm.activations import saved_by_head, saved_by_layer
from perfpass.llm.recipe import COPIED, FROZEN, LOSSES, OPTIMIZERS, PRECISIONS, SHARDINGS, Adapter, Layout, Recipe

if TYPE_CHECKING:
    from perfpass.llm.architecture import LanguageModel, Layer

# Whose step makes a copy of all it updates in torch.optim: Adam's of the roots of second moments, Adafactor's update.
_COPYING = ("adam", "adamw", "adamw_bf16", "adafactor")


@dataclass(frozen=True)
class StageMemory:
    """Bytes that a device of one pipeline stage holds at its peak.

    ``gathered``: whole weights of the layers that run, where the rest is sharded, and autocast's 16-bit copies.
    ``activations`` wait for their
    gradients; ``working`` is alive beside them at the peak: the logits and their loss, or a layer that is computed
    anew, and gradients on their way. ``update`` is what the optimizer's step makes; it counts where activations are
    gone. ``late``: gradients that do not exist yet where activations are most; ``remaining``: activations where all of
    them do. ``host``: bytes of the host's memory, beside those of the device.
    """

    weights: float
    gradients: float
    master: float
    moments: float
    gathered: float
    activations: float
    working: float
    update: float
    workspace: float
    late: float = 0.0
    remaining: float = 0.0
    host: float = 0.0

    @property
    def held(self) -> float:
        """What stays from step to step."""
        return self.weights + self.gradients + self.master + self.moments + self.workspace

    @property
    def peak(self) -> float:
        """The most that is alive at once."""
        first = self.gathered + self.activations + self.working - self.late
        return self.held + max(first, self.remaining, self.update)


@dataclass(frozen=True)
class TrainingMemory:
    """`StageMemory` of every pipeline stage, the first first."""

    stages: tuple[StageMemory, ...]

    @property
    def fullest(self) -> int:
        """The stage whose peak is highest."""
        return max(range(len(self.stages)), key=lambda i: self.stages[i].peak)

    @property
    def peak_bytes(self) -> float:
        """Of the fullest stage."""
        return self.stages[self.fullest].peak


@dataclass(frozen=True)
class _Parameters:
    """Parameters on a device: beside experts, of experts; of these, in matrices of layers, and outside of layers."""

    plain: float
    experts: float
    matrices: float
    tables: float
    adapters: float

    @property
    def all(self) -> float:
        return self.plain + self.experts


def stage_layers(model: LanguageModel, pipeline: int) -> tuple[tuple[Layer, ...], ...]:
    """The layers of each stage; where they do not divide, the first stages have one more.

    Raises ArgumentError for more stages than layers, and for models that are no plain decoders.
    """
    if model.is_encoder_decoder or model.is_hybrid:
        kind = "an encoder-decoder" if model.is_encoder_decoder else "recurrent in part"
        raise ArgumentError(f"{model.name} is {kind}; memory of training is counted for decoders with attention alone")
    layers = [layer for count, layer in model.layers for _ in range(count)]
    if pipeline > len(layers):
        raise ArgumentError(f"{pipeline} pipeline stages for {len(layers)} layers; give at most one for each")
    each, more = divmod(len(layers), pipeline)
    cuts = [0]
    for stage in range(pipeline):
        cuts.append(cuts[-1] + each + (stage < more))
    return tuple(tuple(layers[a:b]) for a, b in pairwise(cuts))


def in_flight(layout: Layout, stage: int, micro_batches: int) -> float:
    """Micro-batches whose activations of the whole stage are held at once, in the steady part of the schedule.

    1F1B: as many as there are stages behind (arXiv:2104.04473, section 2.2.1); interleaved: chunks of the forward
    passes before the first backward (Megatron-LM's schedules.py), over the chunks of a stage; zero-bubble: on every
    stage as many as the first has under 1F1B, or nearly twice that (arXiv:2401.10241, table 2).
    """
    if layout.pipeline == 1:
        return 1.0
    behind = layout.pipeline - stage - 1
    if layout.schedule != "1f1b":
        most = layout.pipeline if layout.schedule == "zb_h1" else 2 * layout.pipeline - 1
        return float(min(most, micro_batches))
    if layout.virtual == 1:
        return float(min(behind + 1, micro_batches))
    chunks = 2 * behind + (layout.virtual - 1) * layout.pipeline + 1
    return min(chunks, micro_batches * layout.virtual) / layout.virtual


def training_memory(
    model: LanguageModel, layout: Layout, recipe: Recipe, *, layers: tuple[tuple[Layer, ...], ...] = ()
) -> TrainingMemory:
    """The memory of every stage; ``layers``: those of each stage, where they are not split evenly.

    Raises ArgumentError for what cannot be laid out so.
    """
    stages = layers or stage_layers(model, layout.pipeline)
    if len(stages) != layout.pipeline:
        raise ArgumentError(f"layers of {len(stages)} stages for a pipeline of {layout.pipeline}")
    return TrainingMemory(tuple(_stage(model, layout, recipe, s, stages[s]) for s in range(layout.pipeline)))


def _stage(model: LanguageModel, layout: Layout, recipe: Recipe, stage: int, layers: tuple[Layer, ...]) -> StageMemory:
    states = PRECISIONS[recipe.precision]
    first, last = stage == 0, stage == layout.pipeline - 1
    held = _held(model, layout, recipe, layers, first=first, last=last)
    taught = held.pop("taught")
    if first and recipe.towers != "none" and not _trains_towers(recipe):
        held["weights"] += _frozen_towers(model, layout, recipe)
    tokens = recipe.micro_batch * recipe.sequence / layout.context
    saved = [saved_by_layer(layer, model.hidden, layout, recipe) for layer in layers]
    each = sum(s.kept(recipe.recompute) for s in saved) * tokens
    whole = max((s.whole for s in saved), default=0.0) * tokens
    passing = max((s.passing for s in saved), default=0.0) * tokens
    activations, host = in_flight(layout, stage, recipe.micro_batches) * each, 0.0
    if recipe.recompute == "offloaded":  # the layer that runs and the one on its way
        kept = min(2 * max((s.stream for s in saved), default=0.0) * tokens, activations)
        activations, host = kept, activations - kept
    working = (whole if recipe.recompute in ("full", "offloaded") else 0.0) + passing + held.pop("under_way")
    quantized = recipe.adapter is not None and FROZEN[recipe.adapter.frozen] < 2
    if quantized:  # a matrix is unpacked for its product
        working += states.weight * max(layer.widest(model.hidden) for layer in layers) / layout.tensor
    table = model.vocabulary * model.hidden / layout.tensor * _gradient(recipe)
    table /= layout.shards if layout.sharding in ("zero2", "zero3") else 1
    layer_gradient = max(sum(_of_layer(model, layout, layer)) for layer in layers) * _gradient(recipe)
    fresh = not recipe.gradient_buffers and recipe.micro_batches == 1 and layout.pipeline == 1 and not recipe.adapter
    logits = 0.0
    if last:
        activations += saved_by_head(model.hidden, layout, recipe) * tokens
        by_activation, beside = LOSSES[recipe.loss]
        copied = recipe.loss in COPIED and states.activation == 4
        element = tokens / recipe.loss_chunks * model.vocabulary / layout.tensor
        logits = element * by_activation * states.activation
        lossy = element * (max(beside - 4, 0.0) if copied else beside) + (0.0 if recipe.loss == "eager" else logits)
        if quantized and recipe.adapter and recipe.adapter.head_frozen:
            lossy += states.weight * model.vocabulary * model.hidden / layout.tensor
        working = max(working + (table if fresh else 0.0), lossy)
        logits = logits if recipe.loss == "eager" else 0.0  # the model's output holds them to the end of the step
    # In the first layer's backward pass its own gradients are still to come, and those of the table; of a table that is
    # the head's as well, autograd adds two gradients at the end into a third.
    after = whole + passing - layer_gradient
    after = max(after, 2 * table) if model.tied and first and last else after - table
    found = StageMemory(
        activations=activations + logits,
        working=working,
        workspace=recipe.workspace_bytes,
        late=held["gradients"] / (1 + _buckets(layout, recipe)) if fresh else 0.0,
        remaining=logits + max(0.0, after) + held["gathered"] * (layout.sharding == "zero3") if fresh else 0.0,
        host=host,
        **held,
    )
    return _offloaded(found, recipe, len(layers), taught)


def _offloaded(found: StageMemory, recipe: Recipe, layers: int, taught: float) -> StageMemory:
    """With what `Recipe.offload` names on the host; two layers' gradients (and weights) are under way on the device.

    ``taught``: elements that the device's optimizer steps. Of "states" the host has their weights and gradients in
    single precision beside the moments.
    """
    if recipe.offload == "none":
        return found
    if recipe.offload == "states":
        host = found.host + max(found.master, 4.0 * taught) + 4.0 * taught + found.moments
        return replace(found, master=0.0, moments=0.0, update=0.0, host=host)
    share = min(1.0, 2 / max(layers, 1))
    whole = recipe.offload == "parameters"
    gone = found.master + found.moments + (1 - share) * (found.gradients + (found.weights if whole else 0.0))
    return replace(
        found,
        weights=share * found.weights if whole else found.weights,
        gradients=share * found.gradients,
        master=0.0,
        moments=0.0,
        update=0.0,
        late=0.0,
        remaining=0.0,
        host=found.host + gone + share * (found.gradients + (found.weights if whole else 0.0)),
    )


def _buckets(layout: Layout, recipe: Recipe) -> int:
    """Copies of the gradients that torch's DDP makes messages of (`gradient_as_bucket_view` is off by default)."""
    return int(not recipe.gradient_buffers and layout.shards > 1 and layout.sharding in ("none", "zero1"))


def _trains_towers(recipe: Recipe) -> bool:
    return recipe.towers == "trained" and recipe.adapter is None


def _frozen_towers(model: LanguageModel, layout: Layout, recipe: Recipe) -> float:
    """Bytes of towers that are loaded and not trained; where the model is packed, so are they (bitsandbytes)."""
    packed = FROZEN[recipe.adapter.frozen] if recipe.adapter else FROZEN["none"]
    each = packed if packed < FROZEN["none"] else PRECISIONS[recipe.precision].weight
    return each * model.beside / layout.tensor / (layout.shards if layout.sharding == "zero3" else 1)


def _gradient(recipe: Recipe) -> float:
    return PRECISIONS[recipe.precision].gradient if recipe.gradient_bytes is None else recipe.gradient_bytes


def _held(
    model: LanguageModel, layout: Layout, recipe: Recipe, layers: tuple[Layer, ...], *, first: bool, last: bool
) -> dict[str, float]:
    """Bytes of weights, gradients, master copies, moments, gathered weights and the update; elements "taught"."""
    states = PRECISIONS[recipe.precision]
    found = _parameters(model, layout, recipe, layers, first=first, last=last)
    zero = SHARDINGS.index(layout.sharding)
    split, split_experts = layout.shards, layout.expert_shards
    gradient = _gradient(recipe)
    count, own = OPTIMIZERS[recipe.optimizer]
    moment = states.moment if own is None else own
    copied = moment if recipe.foreach and recipe.optimizer in _COPYING else 0.0

    def sharded(each: float, from_stage: int, plain: float, experts: float) -> float:
        if zero >= from_stage:
            return each * (plain / split + experts / split_experts)
        return each * (plain + experts)

    if recipe.adapter:
        taught, base = found.adapters, FROZEN[recipe.adapter.frozen]
        matrices = found.matrices if base < 2 else 0.0
        matrices += model.vocabulary * model.hidden / layout.tensor * (last and recipe.adapter.head_frozen)
        frozen = states.weight * (found.all - matrices) + (base if base < 2 else states.weight) * matrices
        frozen = frozen / split if zero == 3 else frozen
        casts = states.casts * (found.matrices if zero < 3 and base == FROZEN["none"] else 0.0)
        each, whole = base if base < 2 else states.weight, float(zero == 3 and split > 1)
        own_states = PRECISIONS["fp32"] if recipe.adapter.single else states
        widest = max((layer.parameters(model.hidden) for layer in layers), default=0) / layout.tensor
        return {
            "weights": frozen + sharded(own_states.weight, 3, taught, 0.0),
            "gradients": sharded(own_states.gradient, 2, taught, 0.0),
            "master": sharded(own_states.master, 1, taught, 0.0),
            "moments": sharded(count * (own_states.moment if own is None else own), 1, taught, 0.0),
            "gathered": casts + whole * (widest * each + found.tables * states.weight),
            "under_way": whole * widest * each,
            "update": sharded(own_states.moment if copied else 0.0, 1, taught, 0.0),
            "taught": sharded(1.0, 1, taught, 0.0),
        }
    cast = states.casts * (found.matrices if zero < 3 else 0.0)
    casts = 0.0 if states.stream else cast
    weights = sharded(states.weight, 3, found.plain, found.experts) + casts
    moments = sharded(count * moment, 1, found.plain, found.experts)
    if recipe.optimizer == "muon":  # tables and norms are Adam's
        moments += sharded(moment, 1, found.plain + found.experts - found.matrices, 0.0)
    gathered, under_way = 0.0, 0.0
    if states.stream:
        gathered = cast + states.casts * (model.vocabulary * model.hidden / layout.tensor if last else 0.0)
    if zero == 3 and split > 1:
        # A layer and the tables, which stay gathered from the forward pass to the backward; there the next layer, too,
        # and the gradient of the one that ran.
        widest = max((sum(_of_layer(model, layout, layer)) for layer in layers), default=0.0)
        gathered += (widest + found.tables) * states.activation
        under_way = widest * (states.activation + gradient)
    if not recipe.gradient_buffers and split > 1:
        if zero == 3 and states.master:  # FSDP's 16-bit weights exist while they are gathered
            weights = casts
        elif zero == 2:  # gathered for the whole step, beside its shard
            weights += found.all / split * states.weight
    return {
        "weights": weights,
        "gradients": sharded(gradient * (1 + _buckets(layout, recipe)), 2, found.plain, found.experts),
        "master": sharded(states.master, 1, found.plain, found.experts),
        "moments": moments,
        "gathered": gathered,
        "under_way": under_way,
        "update": sharded(copied, 1, found.plain, found.experts),
        "taught": sharded(1.0, 1, found.plain, found.experts),
    }


def _of_layer(model: LanguageModel, layout: Layout, layer: Layer) -> tuple[float, float]:
    """Parameters of a layer on a device: beside experts, of experts. Norms and routers are whole on every rank."""
    whole = float(layer.parameters(model.hidden))
    experts, split_experts = 0.0, 0.0
    alone = float(layer.norms)
    if layer.experts:
        e = layer.experts
        experts = float(e.count * (e.expert_elements + e.expert_extra))
        split_experts = experts / (layout.expert * layout.experts_share)
        alone += e.count * model.hidden + e.extra
    if layer.attention and layer.attention.is_latent:
        a = layer.attention  # projections down to the latents are whole on every rank
        alone += model.hidden * (a.q_rank + a.kv_rank + a.rope_dim)
    return alone + (whole - experts - alone) / layout.tensor, split_experts


def _parameters(
    model: LanguageModel, layout: Layout, recipe: Recipe, layers: tuple[Layer, ...], *, first: bool, last: bool
) -> _Parameters:
    plain, experts = 0.0, 0.0
    for layer in layers:
        beside, of_experts = _of_layer(model, layout, layer)
        plain, experts = plain + beside, experts + of_experts
    matrices = plain + experts - sum(layer.norms for layer in layers)
    table = model.vocabulary * model.hidden / layout.tensor
    count = (1 if first else 0) + (1 if last and not (model.tied and first) else 0)
    tables = count * table + (model.embedding_extra + model.unmet if first else model.hidden if last else 0)
    plain += tables + (model.beside / layout.tensor if first and _trains_towers(recipe) else 0.0)
    adapters = 0.0
    if recipe.adapter:
        adapters = sum(adapter_parameters(layer, model.hidden, recipe.adapter) for layer in layers) / layout.tensor
    return _Parameters(plain, experts, matrices, tables, adapters)


def adapter_parameters(layer: Layer, hidden: int, adapter: Adapter) -> int:
    """Parameters of the adapters beside one layer: rank x (inputs + outputs) of every target, DoRA's outputs beside."""
    shapes: dict[str, tuple[int, int]] = {}
    if layer.attention:
        a = layer.attention
        shapes |= {
            "query": (hidden, a.heads * a.head_dim),
            "key": (hidden, a.kv_heads * a.head_dim),
            "value": (hidden, a.kv_heads * a.value_dim),
            "output": (a.heads * a.value_dim, hidden),
        }
    if layer.dense:
        width = layer.dense.width
        shapes |= {"up": (hidden, width), "down": (width, hidden)}
        if layer.dense.matrices == 3:
            shapes["gate"] = (hidden, width)
    return sum(
        adapter.rank * sum(shapes[name]) + adapter.decomposed * shapes[name][1]
        for name in adapter.targets
        if name in shapes
    )


def parameters_of_a_device(model: LanguageModel, layout: Layout, stage: int = 0) -> float:
    """Parameters that a device of a stage holds whole, before any sharding over replicas."""
    layers = stage_layers(model, layout.pipeline)[stage]
    recipe = Recipe(1, 1)
    last = stage == layout.pipeline - 1
    return _parameters(model, layout, recipe, layers, first=stage == 0, last=last).all
