"""Apache TVM 0.27: the exported torch model through Relax, built for this machine's CPU by the default pipeline."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from perfpass.errors import UnsupportedError
from perfpass.measure.configuration import Configuration
from perfpass.measure.models import Built
from perfpass.measure.runners.on_host import HostSession
from perfpass.measure.runners.prepared import Prepared, compiled


def opened(configuration: Configuration, built: Built | None, prepared: Prepared | None = None) -> HostSession:
    """One configuration in TVM's virtual machine; without tuning records every operator is plain loops."""
    import tvm
    from tvm import relax

    if prepared is None:
        assert built is not None
        executable, values, facts = _compile(configuration, built)
    else:
        executable, values, facts = tvm.runtime.load_module(prepared.path), prepared.values(), prepared.facts
    machine: Any = relax.VirtualMachine(executable, tvm.cpu())
    inputs = [tvm.runtime.tensor(x) for x in values.values()]
    return HostSession(lambda: machine["main"](*inputs), facts)


def prepare(configuration: Configuration, built: Built, folder: str) -> Prepared:
    """The model as a shared library in ``folder``, weights inside."""
    return compiled(*_compile(configuration, built), folder)


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
