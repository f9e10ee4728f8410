"""What the callbacks of Lightning and transformers' Trainer share: what they are given, the watch, the first batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from perfpass.torch.watch import Watch

if TYPE_CHECKING:
    import os

    from perfpass.devices import Device


class StepCallback:
    """A callback that predicts a step when the first batch reaches the network, and measures all that follow.

    ``journal``: where records go; ``device``: which device is meant, else the one that torch has. The shapes are those
    of the first batch, or ``input_shape`` and ``batch`` (of a pass on one device), as `perfpass.torch.estimate` takes
    them. ``equal_lengths``: whether every batch is packed or padded to one length; None where the trainer may say so.
    ``warmup``: steps that are not counted; ``say``: takes the lines for people. Nothing here stops a run.
    """

    def __init__(
        self,
        journal: str | os.PathLike[str] | None = None,
        *,
        device: str | Device | None = None,
        input_shape: Any = None,
        batch: int | None = None,
        equal_lengths: bool | None = None,
        warmup: int = 3,
        say: Callable[[str], None] = print,
    ) -> None:
        super().__init__()
        self._how = (journal, warmup, say)
        self._device, self._shape, self._batch = device, input_shape, batch
        self._equal_lengths = equal_lengths
        self.watch: Watch | None = None
        self._hooks: list[Any] = []

    def _watching(self, first: bool) -> Watch:
        """A new watch; the ``first`` process alone writes and speaks."""
        journal, warmup, say = self._how
        self.watch = Watch(journal if first else None, warmup=warmup, say=say if first else _silent)
        return self.watch

    def _at_first_call(self, modules: Iterable[Any], asked: Callable[[Any, Any], None]) -> None:
        """``asked`` of the module that is called first, and of its inputs, before it computes anything."""

        def before(module: Any, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
            self._unhook()
            asked(module, named or positional)

        for module in modules:
            self._hooks.append(module.register_forward_pre_hook(before, with_kwargs=True))

    def _closed(self, error: BaseException | None = None) -> None:
        """Says what was predicted beside what was measured, and keeps it."""
        self._unhook()
        if self.watch is not None:
            self.watch.close(error)

    def _unhook(self) -> None:
        while self._hooks:
            self._hooks.pop().remove()


def _silent(text: str) -> None:
    pass
