"""Autocast regions of a module that is traced on the meta device, where PyTorch knows no autocast.

`with torch.autocast(x.device.type, enabled=False)`, and the same with `torch.float32`, keeps a computation in the types
that its tensors have: on the meta device nothing is to be done for it. A region that would cast stays refused.
"""

from __future__ import annotations

from contextlib import nullcontext
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch


def autocast(device_type: str, dtype: torch.dtype | None = None, enabled: bool = True, **more: Any) -> Any:
    """torch.autocast; on the meta device nothing, where it would cast nothing."""
    if device_type == "meta" and (not enabled or dtype == torch.float32):
        return nullcontext()
    return torch.autocast(device_type, dtype, enabled, **more)


class _Torch(ModuleType):
    """torch, or torch.amp, with `autocast` above."""

    def __init__(self, module: ModuleType) -> None:
        super().__init__(module.__name__)
        self.autocast = autocast
        if module is torch:
            self.amp = _Torch(torch.amp)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


_OWN: dict[int, Any] = {id(torch): _Torch(torch), id(torch.amp): _Torch(torch.amp), id(torch.autocast): autocast}


def take_regions(module: torch.nn.Module) -> None:
    """Methods of ``module``, which the caller owns, that open such a region: copies that have globals of their own.

    torch's modules, which other threads use, and the module's class stay as they are.
    """
    for part in module.modules():
        for name, function in _methods(type(part)).items():
            known = function.__globals__
            own = {n: _OWN[id(known[n])] for n in function.__code__.co_names if n in known and id(known[n]) in _OWN}
            copied = FunctionType(function.__code__, known | own, name, function.__defaults__, function.__closure__)
            copied.__kwdefaults__ = function.__kwdefaults__
            part.__dict__[name] = MethodType(copied, part)


def _methods(kind: type) -> dict[str, FunctionType]:
    """Plain methods of a class and those it inherits that name `autocast`, but for torch's own."""
    found: dict[str, FunctionType] = {}
    for one in reversed(kind.__mro__):
        if one.__module__.partition(".")[0] == "torch":
            continue
        for name, value in vars(one).items():
            found.pop(name, None)
            if isinstance(value, FunctionType) and "autocast" in value.__code__.co_names:
                found[name] = value
    return found
