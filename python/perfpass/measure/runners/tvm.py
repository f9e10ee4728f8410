"""Apache TVM 0.19: the traced torch model through Relay, built for this machine's CPU without tuning records."""

from __future__ import annotations

import os
import platform
import time
import warnings
from typing import Any

from perfpass.errors import UnsupportedError, missing_package
from perfpass.measure.configuration import Configuration
from perfpass.measure.models import Built, sequence_length


class TvmSession:
    """One configuration in TVM's graph executor, opt_level 3, default schedules."""

    def __init__(self, configuration: Configuration, built: Built) -> None:
        if configuration.device != "cpu":
            raise UnsupportedError(f"TVM is measured on the CPU only here, not on {configuration.device}")
        if configuration.threads is not None:
            os.environ["TVM_NUM_THREADS"] = str(configuration.threads)
        os.environ.setdefault("TOPHUB_LOCATION", "NONE")  # no download of schedules
        try:
            import tvm
            from tvm import relay
            from tvm.contrib import graph_executor
        except ImportError as error:
            raise missing_package(error, "tvm", "runtime tvm") from error
        import torch

        inputs = built.inputs(configuration, "cpu")
        built.module.eval().float()
        target = tvm.target.Target(f"llvm -mcpu={_cpu_name(tvm)}")
        try:
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                traced = torch.jit.trace(built.positional(tuple(inputs)), tuple(inputs.values()), strict=False)
                described = [
                    (name, (tuple(x.shape), str(x.dtype).removeprefix("torch."))) for name, x in inputs.items()
                ]
                relay_module, parameters = relay.frontend.from_pytorch(traced, described)
            with tvm.transform.PassContext(opt_level=3):
                library = relay.build(relay_module, target=target, params=parameters)
        except MemoryError:
            raise
        except Exception as error:
            raise UnsupportedError(
                f"{configuration.model}: TVM cannot build it: {' '.join(str(error).split())[-300:]}"
            ) from error
        self._executor: Any = graph_executor.GraphModule(library["default"](tvm.cpu()))
        for name, x in inputs.items():
            self._executor.set_input(name, tvm.nd.array(x.numpy()))
        self.facts: dict[str, Any] = {
            "parameters": built.parameters,
            "buffers": built.buffers,
            "image_size": built.image_shape[1] if built.image_shape else None,
            "sequence_length": None if built.image_shape else sequence_length(configuration),
            "target": str(target),
            "threads": configuration.threads,
        }

    def lap(self) -> float:
        """One run of the executor; the CPU's are synchronous. In ms."""
        start = time.perf_counter_ns()
        self._executor.run()
        return (time.perf_counter_ns() - start) / 1e6

    def reset_memory(self) -> None:
        """TVM's executor keeps no peak; all of its memory is allocated when it is made."""

    def memory(self) -> dict[str, int]:
        """Nothing; the peak resident size of the process tells."""
        return {}

    def close(self) -> None:
        """Frees the executor."""
        self._executor = None


def _cpu_name(tvm: Any) -> str:
    name = str(tvm.get_global_func("target.llvm_get_system_cpu")())
    return name or platform.machine()
