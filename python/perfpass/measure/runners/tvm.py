"""Apache TVM 0.19: the traced torch model through Relay, built for this machine's CPU without tuning records."""

from __future__ import annotations

import os
import platform
import warnings
from functools import partial
from typing import Any

import numpy as np

from perfpass.errors import UnsupportedError, missing_package
from perfpass.measure.configuration import Configuration
from perfpass.measure.models import Built
from perfpass.measure.runners import tvm_kernels
from perfpass.measure.runners.on_host import HostSession
from perfpass.measure.runners.prepared import Prepared, compiled


def opened(configuration: Configuration, built: Built | None, prepared: Prepared | None = None) -> HostSession:
    """One configuration in TVM's graph executor, opt_level 3, default schedules."""
    tvm = _tvm(configuration)
    from tvm.contrib import graph_executor

    if prepared is None:
        assert built is not None
        library, values, facts = _compile(configuration, built)
    else:
        library, values, facts = tvm.runtime.load_module(prepared.path), prepared.values(), prepared.facts
    executor: Any = graph_executor.GraphModule(library["default"](tvm.cpu()))
    for name, x in values.items():
        executor.set_input(name, tvm.nd.array(x))
    return HostSession(executor.run, facts, partial(tvm_kernels.timed, library, tvm.cpu(), values))


def prepare(configuration: Configuration, built: Built, folder: str) -> Prepared:
    """The model as a shared library in ``folder``, weights inside."""
    labelled: dict[str, str] = {}
    return compiled(*_compile(configuration, built, labelled), folder, labelled)


def _tvm(configuration: Configuration) -> Any:
    if configuration.device != "cpu":
        raise UnsupportedError(f"TVM is measured on the CPU only here, not on {configuration.device}")
    if configuration.threads is not None:
        os.environ["TVM_NUM_THREADS"] = str(configuration.threads)
    os.environ.setdefault("TOPHUB_LOCATION", "NONE")  # no download of schedules
    try:
        import tvm
    except ImportError as error:
        raise missing_package(error, "tvm", "runtime tvm") from error
    return tvm


def _compile(
    configuration: Configuration, built: Built, labelled: dict[str, str] | None = None
) -> tuple[Any, dict[str, np.ndarray], dict[str, Any]]:
    """The built library, values of its inputs, and what is to be said of it; ``labelled`` gets the fused functions."""
    tvm = _tvm(configuration)
    import torch
    from tvm import relay

    inputs = built.inputs(configuration, "cpu")
    built.module.eval().float()
    target = tvm.target.Target(f"llvm -mcpu={_cpu_name(tvm)}")
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            traced = torch.jit.trace(built.positional(tuple(inputs)), tuple(inputs.values()), strict=False)
            described = [(name, (tuple(x.shape), str(x.dtype).removeprefix("torch."))) for name, x in inputs.items()]
            relay_module, parameters = relay.frontend.from_pytorch(traced, described)
        watching = [] if labelled is None else [tvm_kernels.watching(labelled)]
        with tvm.transform.PassContext(opt_level=3, instruments=watching):
            library = relay.build(relay_module, target=target, params=parameters)
    except MemoryError:
        raise
    except Exception as error:
        raise UnsupportedError(
            f"{configuration.model}: TVM cannot build it: {' '.join(str(error).split())[-300:]}"
        ) from error
    facts = built.facts(configuration) | {"target": str(target), "threads": configuration.threads}
    return library, {name: x.numpy() for name, x in inputs.items()}, facts


def _cpu_name(tvm: Any) -> str:
    name = str(tvm.get_global_func("target.llvm_get_system_cpu")())
    return name or platform.machine()
