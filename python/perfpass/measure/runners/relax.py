"""Apache TVM 0.27: the exported torch model through Relax, built for this machine's CPU by the default pipeline."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.errors import UnsupportedError
from perfpass.measure.configuration import Configuration
from perfpass.measure.models import Built
from perfpass.measure.runners.prepared import Prepared, random_input


class RelaxSession:
    """One configuration in TVM's virtual machine; without tuning records every operator is plain loops."""

    def __init__(self, configuration: Configuration, built: Built | None, prepared: Prepared | None = None) -> None:
        import tvm
        from tvm import relax

        if prepared is None:
            assert built is not None
            executable, values, self.facts = _compile(configuration, built)
        else:
            executable = tvm.runtime.load_module(prepared.path)
            values = {name: random_input(shape, dtype) for name, shape, dtype in prepared.inputs}
            self.facts = prepared.facts
        self._machine: Any = relax.VirtualMachine(executable, tvm.cpu())
        self._inputs = [tvm.runtime.tensor(x) for x in values.values()]

    def lap(self) -> float:
        """One run of the machine; the CPU's are synchronous. In ms."""
        start = time.perf_counter_ns()
        self._machine["main"](*self._inputs)
        return (time.perf_counter_ns() - start) / 1e6

    def reset_memory(self) -> None:
        """The machine keeps no peak."""

    def memory(self) -> dict[str, int]:
        """Nothing; the peak resident size of the process tells."""
        return {}

    def kernels(self) -> list[dict[str, Any]]:
        """Nothing: kernels are measured in Relay's graph executor alone."""
        return []

    def close(self) -> None:
        """Frees the machine."""
        self._machine = None


def prepare(configuration: Configuration, built: Built, folder: str) -> Prepared:
    """The model as a shared library in ``folder``, weights inside."""
    executable, values, facts = _compile(configuration, built)
    path = Path(folder) / "model.so"
    executable.export_library(str(path))
    inputs = [(name, list(x.shape), str(x.dtype)) for name, x in values.items()]
    return Prepared(str(path), inputs, facts | {"model_file_bytes": path.stat().st_size})


def _compile(configuration: Configuration, built: Built) -> tuple[Any, dict[str, np.ndarray], dict[str, Any]]:
    """The executable, values of its inputs, and what is to be said of it."""
    import torch
    import tvm
    from tvm import relax
    from tvm.relax.frontend.torch import from_exported_program

    inputs = built.inputs(configuration, "cpu")
    built.module.eval().float()
    target = tvm.target.Target({"kind": "llvm", "mcpu": str(tvm.get_global_func("target.llvm_get_system_cpu")())})
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exported = torch.export.export(built.positional(tuple(inputs)), tuple(inputs.values()))
            module = from_exported_program(exported, keep_params_as_input=False)
        executable = relax.build(module, target=target)
    except MemoryError:
        raise
    except Exception as error:
        raise UnsupportedError(
            f"{configuration.model}: TVM cannot build it: {' '.join(str(error).split())[-300:]}"
        ) from error
    facts = built.facts(configuration) | {"target": str(target), "threads": configuration.threads, "dialect": "relax"}
    return executable, {name: x.numpy() for name, x in inputs.items()}, facts
