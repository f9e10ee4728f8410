"""Triton beside TVM in one process, in either order: each brings an LLVM, and loaded later Triton's ends the process.

TVM 0.19 loads libtvm.so, and with it libLLVM.so, for the whole process (RTLD_GLOBAL). libtriton.so carries another LLVM
whose symbols give way to those: loaded later, it registers its command-line options in TVM's LLVM, which has them
already and aborts ("Option 'print-pipeline-passes' registered more than once!"). PyTorch's CUDA build requires Triton
and imports it unasked (torch._dynamo, torchvision, torch_geometric, diffusers). With RTLD_DEEPBIND a library is bound
to its own symbols first. That is asked for Triton's alone, and only where an LLVM is visible to the whole process.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ExtensionFileLoader, ModuleSpec, PathFinder
from types import ModuleType

_EXTENSION = "triton._C.libtriton"


class _OwnSymbolsFirst(ExtensionFileLoader):
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        flags = sys.getdlopenflags()
        sys.setdlopenflags(flags | os.RTLD_DEEPBIND)
        try:
            return super().create_module(spec)
        finally:
            sys.setdlopenflags(flags)


class _Finder(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != _EXTENSION or not _llvm_is_visible_to_all():
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, ExtensionFileLoader):
            spec.loader = _OwnSymbolsFirst(spec.loader.name, spec.loader.path)
        return spec


def _llvm_is_visible_to_all() -> bool:
    return hasattr(ctypes.CDLL(None), "LLVMContextCreate")


def install() -> None:
    """From now on Triton's extension is bound to its own LLVM, where another one would replace it. Imports nothing."""
    if hasattr(os, "RTLD_DEEPBIND") and not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
