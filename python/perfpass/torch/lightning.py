"""A callback of Lightning: warns before the first step, compares at the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from perfpass.errors import needs

with needs("lightning", "the callback of Lightning"):
    from lightning.pytorch import Callback

from perfpass.torch.estimation import estimate
from perfpass.torch.watch import Watch

if TYPE_CHECKING:
    import os

    from perfpass.devices import Device


class StepCost(Callback):  # type: ignore[misc]
    """Predicts a step when the first batch reaches the network, before it is computed, and measures all that follow.

    ``journal``: where records go; ``device``: which device is meant, else the one that torch has. The shapes are those
    with which the LightningModule or the largest module in it is first called (a `training_step` calls what it likes),
    or ``input_shape`` and ``batch``, as `perfpass.torch.estimate` takes them. Nothing here stops a run.
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
        super().__init__()
        self._how = (journal, warmup, say)
        self._device, self._shape, self._batch = device, input_shape, batch
        self.watch: Watch | None = None
        self._hooks: list[Any] = []
        self._step = -1

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Waits for the first batch."""
        journal, warmup, say = self._how
        first = trainer.is_global_zero
        self.watch = watch = Watch(journal if first else None, warmup=warmup, say=say if first else _silent)
        self._step = -1
        how: dict[str, Any] = {
            "device": self._device,
            "optimizer": trainer.optimizers[0] if trainer.optimizers else "none",
            "precision": str(trainer.precision),
            "accumulation": trainer.accumulate_grad_batches,
            "devices": trainer.world_size,
        }
        total = trainer.estimated_stepping_batches
        steps = int(total) if total != float("inf") else None

        def asked(module: Any, **shapes: Any) -> None:
            watch.predicting(lambda: estimate(module, **shapes, **how), steps)

        inner = max(pl_module.children(), key=_elements, default=pl_module)
        if self._shape is not None:
            asked(inner, input_shape=self._shape, batch=self._batch or 1)
            return

        def before(module: Any, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
            self._unhook()
            asked(module, example_inputs=named or positional)

        for module in dict.fromkeys((pl_module, inner)):
            self._hooks.append(module.register_forward_pre_hook(before, with_kwargs=True))

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
        self._ended(None)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Keeps what was measured."""
        self._ended(exception)

    def _ended(self, error: BaseException | None) -> None:
        self._unhook()
        if self.watch is not None:
            self.watch.close(error)

    def _unhook(self) -> None:
        while self._hooks:
            self._hooks.pop().remove()


def _elements(module: Any) -> int:
    return sum(p.numel() for p in module.parameters())


def _silent(text: str) -> None:
    pass
