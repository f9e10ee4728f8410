"""Power of a training step: what the board draws at rest, and of the rest of its limit what the step's uses ask for.

Watts grow in proportion to the first use of a board and slowly near its limit, in which the clock gives way: in the
records of Zeus a ShuffleNet that waits for its host draws as good as nothing over rest, one that uses a quarter of the
bandwidth two thirds of the rest of the limit, a BERT at two thirds of the peak nine tenths. With u the uses of peak and
bandwidth together, that is scale u / (u + half). At rest between kernels a board with HBM draws what it draws idle; one
with GDDR keeps its memory at full clock, which takes a share of its limit beside. Three constants, fitted on training
alone (`perfpass.training.training_step.power`).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.errors import ArtefactError
from perfpass.predictors.estimate import Bounds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perfpass.devices import Device

MEASURED_VENDOR = "NVIDIA"
# Of watts of another vendor's board, of which no step was measured, as a logarithm, by hand: half again as many, or as
# few, beside what NVIDIA's boards differ by.
_ANOTHER_VENDOR = 0.4


@dataclass(frozen=True)
class StepPower:
    """``scale``: of what the limit leaves over rest, the share that endless use would ask for; ``half``: the use that
    asks for half of it.

    ``awake``: share of its limit that a board with GDDR draws at rest between kernels, over idle. ``low``, ``high``:
    measured over predicted, 90 %. Artefacts of before have no ``half``: theirs is 0, and the share is ``scale`` times
    the root of the uses.
    """

    scale: float
    awake: float
    low: float
    high: float
    half: float = 0.0

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> StepPower:
        """The inverse of `to_dict`. Raises ArtefactError for what is none."""
        try:
            awake = float(values.get("awake", 0.0))  # artefacts without it were fitted without it
            half = float(values.get("half", 0.0))
            return cls(float(values["scale"]), awake, float(values["low"]), float(values["high"]), half)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ArtefactError(f"an artefact's power cannot be read ({error}); run `perfpass train` again") from None

    def to_dict(self) -> dict[str, float]:
        """Strict JSON."""
        return {name: round(value, 5) for name, value in asdict(self).items()}

    def predict(self, device: Device, compute_use: np.ndarray, memory_use: np.ndarray) -> Bounds:
        """[N] mean board power in W at the uses of the peak and of the bandwidth (0 to 1 each); idle to the limit.

        No step of another vendor than NVIDIA was measured with its watts, so that such boards' bounds are wider.
        """
        limit = device.power_limit_w
        above, below = self.high, self.low
        if device.vendor != MEASURED_VENDOR:
            above = math.exp(math.hypot(math.log(self.high), _ANOTHER_VENDOR))
            below = math.exp(-math.hypot(math.log(self.low), _ANOTHER_VENDOR))
        rest = resting_w(device, limit, self.awake)
        watts = rest + self.scale * asked(compute_use + memory_use, self.half) * (limit - rest)
        return Bounds(*(np.clip(watts * of, min(device.idle_power_w, limit), limit) for of in (1.0, below, above)))


def asked(use: np.ndarray, half: float) -> np.ndarray:
    """[N] of what endless use would ask for, the share that ``use`` [N] does; ``half`` as in `StepPower`."""
    return np.asarray(use / (use + half) if half > 0 else np.sqrt(use))


def resting_w(device: Device, limit_w: float | np.ndarray, awake: float | np.ndarray) -> Any:
    """Watts between two kernels of a step under a limit; ``awake`` as in `StepPower`. Arrays broadcast."""
    gddr = device.memory_type.upper().startswith("GDDR")
    return np.minimum(device.idle_power_w + (awake * limit_w if gddr else 0.0), limit_w)
