"""Host memory of a CPU run: the resident size of the whole process at its largest, interpreter and libraries included.

peak = runtime + weights x their copies + live activations x a share + what the allocator holds beside them x a share.
The four constants of each runtime were fitted to our own measurements, one process a network, with its peak while the
model was opened or ran, whichever is larger (docs/predictors/memory.md). PyTorch holds the module's weights once;
ONNX Runtime the file's, and packed copies; TVM the library's file and its own copy. The upper bound is one-sided: 98 of
100 measurements of families left out lie below it.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.errors import ArtefactError
from perfpass.late import dataclass
from perfpass.predictors.estimate import Bounds
from perfpass.predictors.learned import artefacts
from perfpass.predictors.memory.allocation import weight_copies

if TYPE_CHECKING:
    from perfpass.predictors.estimate import Columns
    from perfpass.predictors.way import Way

# What a measurement is off by is partly constant (imported libraries, kernels compiled at run time): bounds are shares
# of what is beside the runtime's own memory, and of this much of that.
FLOOR_BYTES = 128.0 * 2**20
SOURCE = "planned by liveness; copies, runtime and bounds by our own measurements of CPU processes"


@dataclass(frozen=True)
class Constants:
    """Of one runtime, in bytes and shares; ``low`` and ``high`` are bounds in units of `spread`."""

    runtime: float
    weights: float
    activations: float
    allocator: float
    low: float = 0.0
    high: float = 0.0

    def peak(self, weights: np.ndarray, activations: np.ndarray, beside: np.ndarray) -> np.ndarray:
        """[N] bytes of the process."""
        return np.asarray(
            self.runtime + self.weights * weights + self.activations * activations + self.allocator * beside
        )

    def spread(self, peak: np.ndarray) -> np.ndarray:
        """[N] bytes that an error is measured in."""
        return np.maximum(peak - self.runtime, 0.0) + FLOOR_BYTES

    def bounds(self, peak: np.ndarray) -> Bounds:
        """The interval around ``peak`` [N]."""
        spread = self.spread(peak)
        return Bounds(peak, np.maximum(0.0, peak + self.low * spread), peak + self.high * spread)


class HostMemory:
    """The constants of every measured runtime, from a trained artefact."""

    def __init__(self, folder: Path | str | None = None) -> None:
        """Reads the shipped artefact, or the one in ``folder``. Raises ArtefactError."""
        self.manifest = artefacts.Artefact(folder or artefacts.shipped("host-memory")).manifest
        try:
            self.constants = {name: Constants(**values) for name, values in self.manifest["runtimes"].items()}
        except (KeyError, TypeError, AttributeError) as error:
            raise ArtefactError(f"the artefact of host memory lacks or misnames {error}") from error

    @staticmethod
    @lru_cache(maxsize=1)
    def load() -> HostMemory:
        """The shipped one, read once per process."""
        return HostMemory()

    def knows(self, runtime: str) -> bool:
        """Whether measurements of the runtime stand behind it."""
        return runtime in self.constants

    def for_core(self, way: Way) -> dict[str, float]:
        """What `inference` reads of ``way`` (cpp_kernels/src/prediction/predictor.cpp)."""
        return {**vars(self.constants[way.runtime]), "floor": FLOOR_BYTES}

    def inference(self, columns: Columns, way: Way) -> tuple[dict[str, Any], Bounds]:
        """Bytes of N runs by what holds them, as `process.inference` gives them, and the peak of the process.

        ``columns``: "weight_bytes", "activation_bytes", and "reserved_bytes" of the runtime's allocator.
        """
        of = self.constants[way.runtime]
        weights, activations = (
            columns["weight_bytes"] * float(weight_copies(way.precision)),
            columns["activation_bytes"],
        )
        beside = np.maximum(0.0, columns["reserved_bytes"] - weights - activations)
        parts: dict[str, Any] = {
            "weights": min(of.weights, 1.0) * weights,
            "activations": min(of.activations, 1.0) * activations,
            "workspace": max(of.weights - 1.0, 0.0) * weights + max(of.activations - 1.0, 0.0) * activations,
            "runtime": of.runtime,
            "allocator": of.allocator * beside,
        }
        return parts, of.bounds(of.peak(weights, activations, beside))
