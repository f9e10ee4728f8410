"""A callback of Hugging Face's Trainer: warns before the first step, compares at the end."""

from __future__ import annotations

from typing import Any

from perfpass.errors import needs

with needs("transformers", "the callback of Hugging Face's Trainer"):
    from transformers import TrainerCallback

from perfpass.torch.callback import StepCallback
from perfpass.torch.estimation import estimate
from perfpass.torch.inspected import mixed, unwrapped

_ZERO = {1: "zero1", 2: "zero2", 3: "zero3"}


class StepCost(StepCallback, TrainerCallback):  # type: ignore[misc]
    """Predicts a step when the first batch reaches the model, before it is computed, and measures all that follow.

    Takes what `perfpass.torch.callback.StepCallback` does. ``input_shape`` and ``batch`` are needed for compiled models
    alone, which cannot be looked into while they run. Sequences are of one length where the arguments say that they are
    packed (``packing`` of TRL's SFTConfig), unless ``equal_lengths`` is given.
    """

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Waits for the first batch."""
        watch = self._watching(state.is_world_process_zero)
        model, optimizer = given["model"], given.get("optimizer")
        how: dict[str, Any] = {
            "device": self._device,
            "optimizer": optimizer if optimizer is not None else "adamw",
            "precision": mixed("bf16" if args.bf16 else "fp16" if args.fp16 else "") or None,
            "accumulation": args.gradient_accumulation_steps,
            "devices": args.world_size,
            "sharding": _sharding(args),
            "equal_lengths": _packs(args) if self._equal_lengths is None else self._equal_lengths,
        }

        def asked(**shapes: Any) -> None:
            watch.predicting(lambda: estimate(model, **shapes, **how), state.max_steps)

        if self._shape is not None:
            asked(input_shape=self._shape, batch=self._batch or args.per_device_train_batch_size)
        elif args.torch_compile or unwrapped(model)[1]:
            watch.predicting(_needs_shape)
        else:
            self._at_first_call([model], lambda _, inputs: asked(example_inputs=inputs))

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
        self._closed()


def _needs_shape() -> Any:
    raise ValueError("a compiled model is asked by its shapes: give input_shape to the callback")


def _packs(args: Any) -> bool:
    return bool(getattr(args, "packing", False))


def _sharding(args: Any) -> str | None:
    plugin = getattr(args, "deepspeed_plugin", None)
    if plugin is not None:
        return _ZERO.get(int(plugin.zero_stage))
    return "zero3" if getattr(args, "fsdp", None) else None
