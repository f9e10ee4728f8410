"""A callback of Hugging Face's Trainer: warns before the first step, compares at the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from perfpass.errors import needs

with needs("transformers", "the callback of Hugging Face's Trainer"):
    from transformers import TrainerCallback

from perfpass.torch.estimation import estimate
from perfpass.torch.inspected import mixed, unwrapped
from perfpass.torch.watch import Watch

if TYPE_CHECKING:
    import os

    from perfpass.devices import Device

_ZERO = {1: "zero1", 2: "zero2", 3: "zero3"}


class StepCost(TrainerCallback):  # type: ignore[misc]
    """Predicts a step when the first batch reaches the model, before it is computed, and measures all that follow.

    ``journal``: where records go; ``device``: which device is meant, else the one that torch has. The shapes are those
    of the first batch; ``input_shape`` and ``batch`` (of a pass on one device, as `perfpass.torch.estimate` takes them)
    are needed for compiled models alone, which cannot be looked into while they run. Nothing here stops a run.
    """

    def __init__(
        self,
        journal: str | os.PathLike[str] | None = None,
        *,
        device: str | Device | None = None,
        input_shape: Any = None,
        batch: int | None = None,
        warmup: int = 3,
        say: Callable[[str], None] = print,
    ) -> None:
        self._how = (journal, warmup, say)
        self._device, self._shape, self._batch = device, input_shape, batch
        self.watch: Watch | None = None
        self._hook: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Waits for the first batch."""
        journal, warmup, say = self._how
        first = state.is_world_process_zero
        self.watch = watch = Watch(journal if first else None, warmup=warmup, say=say if first else _silent)
        model, optimizer = given["model"], given.get("optimizer")
        how: dict[str, Any] = {
            "device": self._device,
            "optimizer": optimizer if optimizer is not None else "adamw",
            "precision": mixed("bf16" if args.bf16 else "fp16" if args.fp16 else "") or None,
            "accumulation": args.gradient_accumulation_steps,
            "devices": args.world_size,
            "sharding": _sharding(args),
        }

        def asked(**shapes: Any) -> None:
            watch.predicting(lambda: estimate(model, **shapes, **how), state.max_steps)

        if self._shape is not None:
            asked(input_shape=self._shape, batch=self._batch or args.per_device_train_batch_size)
        elif args.torch_compile or unwrapped(model)[1]:
            watch.predicting(_needs_shape)
        else:

            def before(module: Any, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
                self._unhook()
                asked(example_inputs=named or positional)

            self._hook = model.register_forward_pre_hook(before, with_kwargs=True)

    def on_step_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Starts the clock."""
        if self.watch is not None:
            self.watch.begin()

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Stops it."""
        if self.watch is not None:
            self.watch.end()

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Says what was predicted beside what was measured."""
        self._unhook()
        if self.watch is not None:
            self.watch.close()

    def _unhook(self) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None


def _needs_shape() -> Any:
    raise ValueError("a compiled model is asked by its shapes: give input_shape to the callback")


def _silent(text: str) -> None:
    pass


def _sharding(args: Any) -> str | None:
    plugin = getattr(args, "deepspeed_plugin", None)
    if plugin is not None:
        return _ZERO.get(int(plugin.zero_stage))
    return "zero3" if getattr(args, "fsdp", None) else None
