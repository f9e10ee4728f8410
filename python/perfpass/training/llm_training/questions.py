"""Records of training as questions: which model in which layout, by which recipe, or why it is not asked."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from perfpass.errors import ArgumentError, PerfPassError
from perfpass.json_text import parse
from perfpass.llm import megatron
from perfpass.llm.architecture import Attention, LanguageModel, Layer, Mlp
from perfpass.llm.configuration import language_model
from perfpass.llm.recipe import Adapter, Kernels, Layout, Recipe
from perfpass.llm.training import StageMemory, stage_layers, training_memory

if TYPE_CHECKING:
    import pandas

# Not in the tables. litgpt's configurations (config_hub/finetune): rank 32 on queries and values, but for some models
# every matrix; ranks of QLoRA, of LoRA. fsdp_qlora's train.py: rank 64 everywhere.
_EVERYWHERE = ("query", "key", "value", "output", "gate", "up", "down")
_LITGPT = (("query", "value"), 32, 32)
_LITGPT_EVERYWHERE = {"gemma": (16, 8), "phi": (8, 8), "tiny-llama": (32, 32)}
_FROZEN = {"qlora": "nf4", "lora": "none"}

_Asked = TypeVar("_Asked")


@dataclass(frozen=True)
class Question:
    """What a record asks; ``stages``: layers of each pipeline stage, where not even; ``last``: those of the last one.

    ``stage``: the pipeline stage whose memory was read, -1 the last, None the fullest.

    ``attention_known``: whether the source says which attention ran.
    """

    model: LanguageModel
    layout: Layout
    recipe: Recipe
    last: tuple[Layer, ...] = ()
    stages: tuple[tuple[Layer, ...], ...] = ()
    stage: int | None = None
    attention_known: bool = True

    @property
    def memory(self) -> StageMemory:
        """Of the device that was read, without workspaces. Raises ArgumentError."""
        stages = list(self.stages or stage_layers(self.model, self.layout.pipeline))
        if self.last:
            stages[-1] = self.last
        found = training_memory(self.model, self.layout, self.recipe, layers=tuple(stages))
        return found.stages[found.fullest if self.stage is None else self.stage]


def question(row: Any) -> Question:
    """The question of a row of kind ``llm_training``. Raises ArgumentError, saying why, where it asks none."""
    if row.source == "megatron_lm":
        return _megatron(row)
    if row.source == "internevo":
        return _internevo(row)
    if row.source == "bigscience":
        return _bigscience(row)
    if row.source == "training_pages":
        return _pages(row)
    raise ArgumentError("no peak memory")


def asked(rows: pandas.DataFrame) -> tuple[list[Question | None], list[str]]:
    """A question for each row, or None and why."""

    def counted(row: Any) -> Question:
        found = question(row)
        _ = found.memory
        return found

    return each(rows, counted)


def each(rows: pandas.DataFrame, of: Callable[[Any], _Asked]) -> tuple[list[_Asked | None], list[str]]:
    """``of`` each row, or None and why."""
    out: list[_Asked | None] = []
    why: list[str] = []
    for row in rows.itertuples():
        try:
            out.append(of(row))
            why.append("")
        except PerfPassError as error:
            out.append(None)
            why.append(str(error))
    return out, why


def _megatron(row: Any) -> Question:
    if row.n_devices < 1:
        raise ArgumentError("number of devices: not stated")
    arguments = parse(row.arguments, row.run)
    stated = arguments.get("attention-backend")
    # Megatron's own layers (not Transformer Engine's) have the unfused attention alone.
    own = arguments.get("transformer-impl") == "local"
    unfused = own or stated == "unfused"
    run = megatron.read(arguments, devices=int(row.n_devices), sharding=row.sharding, unfused=unfused)
    # Releases of Transformer Engine up to 2.0 fell back to it where kernels had to be deterministic.
    known = own or stated is not None or "deterministic-mode" not in arguments or row.variant.startswith("dev")
    return Question(run.model, run.layout, run.recipe, run.last, stage=-1, attention_known=known)


def _sizes(row: Any, *, gated: bool, width: int, tied: bool, norm: int, biases: bool) -> LanguageModel:
    if row.layers < 1 or row.hidden < 1:
        raise ArgumentError("sizes of the model: not stated")
    hidden, heads = int(row.hidden), int(row.heads) if row.heads > 0 else int(row.hidden) // 128
    each = hidden // heads
    extra = 4 * hidden if biases else 0
    attention = Attention(heads, int(row.kv_heads) if row.kv_heads > 0 else heads, each, each, extra=extra)
    mlp = Mlp(width, 3 if gated else 2, extra=width + hidden if biases else 0)
    layer = Layer(attention, dense=mlp, norms=2 * norm * hidden)
    return LanguageModel(row.model, "decoder", hidden, int(row.vocabulary), ((int(row.layers), layer),), tied=tied)


def _layout(row: Any, **changes: Any) -> Layout:
    values: dict[str, Any] = {
        "tensor": max(int(row.tensor), 1),
        "pipeline": max(int(row.pipeline), 1),
        "virtual": max(int(row.virtual), 1),
        "context": max(int(row.context), 1),
        "data": max(int(row.data), 1),
        "sharding": row.sharding or "none",
    }
    return Layout(**(values | changes))


def _micro_batches(row: Any, layout: Layout) -> int:
    if row.batch < 1:
        return max(1, layout.pipeline)
    return max(1, int(row.batch) // (int(row.micro_batch) * layout.data))


def _internevo(row: Any) -> Question:
    if row.tensor * row.pipeline > row.n_devices or row.n_devices % (row.tensor * row.pipeline):
        raise ArgumentError("the layout does not divide the devices")
    model = _sizes(row, gated=True, width=int(row.intermediate), tied=False, norm=1, biases=False)
    layout = _layout(row, sequence_parallel=row.tensor > 1)
    recipe = Recipe(
        int(row.micro_batch),
        int(row.sequence),
        _micro_batches(row, layout),
        precision="bf16",
        recompute=row.recompute,
        loss="shifted",
        gradient_bytes=2.0 + 4.0,  # its optimizer casts them to single precision at the step, beside those in halves
        foreach=True,
    )
    return Question(model, layout, recipe)


def _bigscience(row: Any) -> Question:
    model = _sizes(row, gated=False, width=4 * int(row.hidden), tied=True, norm=2, biases=True)
    layout = _layout(row)
    # From this table on the page's runs have the BF16 optimizer, which adds gradients up in single precision beside
    # those in halves, on every rank ("4bytes x params and it's not sharded across gpus").
    rebalanced = "Rebalancing" in row.variant
    in_bf16 = rebalanced or row.precision == "bf16"
    recipe = Recipe(
        int(row.micro_batch),
        int(row.sequence),
        _micro_batches(row, layout),
        precision="bf16" if in_bf16 else "fp16",
        recompute="full",
        kernels=Kernels("unfused", dropout=True),
        gradient_bytes=2.0 + 4.0 * in_bf16,
    )
    return Question(model, layout, recipe, stages=_rebalanced(model, layout) if rebalanced else ())


def _rebalanced(model: LanguageModel, layout: Layout) -> tuple[tuple[Layer, ...], ...]:
    """Stages where both ends of the table count as a layer."""
    each, rest = divmod(model.layer_count + 2, layout.pipeline)
    if rest:
        raise ArgumentError("the layout does not divide the layers and tables")
    (_, layer), ends = model.layers[0], (0, layout.pipeline - 1)
    return tuple((layer,) * (each - (stage in ends)) for stage in range(layout.pipeline))


def _pages(row: Any) -> Question:
    litgpt = row.variant.startswith("LitGPT")
    if not litgpt and "bitsandbytes" not in row.variant:
        raise ArgumentError("what is computed anew: not stated, or chosen operator by operator")
    if "CPU Offload=True" in row.variant:
        raise ArgumentError("weights on the host: not counted")
    if row.sequence < 1 or row.micro_batch < 1 or not row.network:
        raise ArgumentError("sizes of the model or of the batch: not stated")
    if row.task == "sft":
        raise ArgumentError("the optimizer: not stated")
    if row.task not in _FROZEN:
        raise ArgumentError("adapters other than low-rank ones: not counted")
    qlora = row.task == "qlora"
    targets, rank = _litgpt(row.variant, qlora) if litgpt else (_EVERYWHERE, 64)
    # 4-bit products of bitsandbytes kept their inputs (until its pull request 1270, July 2024) beside what autograd
    # saves, so that those of a loss live until the next one takes its name: in litgpt's loop through a forward pass
    # more; of blocks computed anew no longer than their own backward pass. litgpt's configurations have dropout, and
    # its GPT has a head of its own, which is quantized with the rest (lightning's BitsandbytesPrecision).
    kept = qlora * (2 if litgpt else 1)
    adapter = Adapter(rank, targets, _FROZEN[row.task], dropout=litgpt, inputs_kept=kept, head_frozen=litgpt and qlora)
    model = language_model(row.network)
    model = dataclasses.replace(model, tied=False) if litgpt else model
    layout = Layout(data=int(row.n_devices), sharding="zero3" if row.sharding == "zero3" else "none")
    recipe = Recipe(
        int(row.micro_batch),
        int(row.sequence),
        precision="bf16_true",
        recompute="none" if litgpt else "full",
        kernels=Kernels(fused_norms=False, fused_gates=False),
        loss="parallel" if litgpt else "shifted",
        adapter=adapter,
        foreach=True,
    )
    return Question(model, layout, recipe)


def _litgpt(variant: str, qlora: bool) -> tuple[tuple[str, ...], int]:
    """Targets and rank of a configuration of LitGPT, named "LitGPT; phi-2/lora.yaml"."""
    name = variant.partition("; ")[2]
    found = next((ranks for kin, ranks in _LITGPT_EVERYWHERE.items() if name.startswith(kin)), None)
    targets, *ranks = (_EVERYWHERE, *found) if found else _LITGPT
    return targets, ranks[0 if qlora else 1]
