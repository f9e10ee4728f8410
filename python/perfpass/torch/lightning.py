"""A callback of Lightning: warns before the first step, compares at the end."""

from __future__ import annotations

from typing import Any

from perfpass.errors import needs

with needs("lightning", "the callback of Lightning"):
    from lightning.pytorch import Callback

from perfpass.torch.callback import StepCallback
from perfpass.torch.estimation import estimate


class StepCost(StepCallback, Callback):  # type: ignore[misc]
    """Predicts a step when the first batch reaches the network, before it is computed, and measures all that follow.

    Takes what `perfpass.torch.callback.StepCallback` does. The shapes are those with which the LightningModule or the
    largest module in it is first called (a `training_step` calls what it likes), where they are not given.
    """

    _step = -1

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Waits for the first batch."""
        watch = self._watching(trainer.is_global_zero)
        self._step = -1
        how: dict[str, Any] = {
            "device": self._device,
            "optimizer": trainer.optimizers[0] if trainer.optimizers else "none",
            "precision": str(trainer.precision),
            "accumulation": trainer.accumulate_grad_batches,
            "devices": trainer.world_size,
            "equal_lengths": bool(self._equal_lengths),
        }
        total = trainer.estimated_stepping_batches
        steps = int(total) if total != float("inf") else None

        def asked(module: Any, **shapes: Any) -> None:
            watch.predicting(lambda: estimate(module, **shapes, **how), steps)

        inner = max(pl_module.children(), key=_elements, default=pl_module)
        if self._shape is not None:
            asked(inner, input_shape=self._shape, batch=self._batch or 1)
            return
        first = dict.fromkeys((pl_module, inner))
        self._at_first_call(first, lambda module, inputs: asked(module, example_inputs=inputs))

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Starts the clock at the first pass of a step."""
        if self.watch is not None and self._step != trainer.global_step:
            self._step = trainer.global_step
            self.watch.begin()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Stops it after the update."""
        if self.watch is not None and self._step != trainer.global_step:
            self.watch.end()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Says what was predicted beside what was measured."""
        self._closed()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Keeps what was measured."""
        self._closed(exception)


def _elements(module: Any) -> int:
    return sum(p.numel() for p in module.parameters())
