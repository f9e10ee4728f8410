"""What is not known of the time of a network, by cause, and the bounds that follow (`learned.spread`).

On a board with few records it is no less than what is known of a board without any.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from perfpass.predictors.learned.spread import Spread

# Issue time over device time from which on the host counts. No record states its host, so such a run is no better known
# than one on a board with few records.
HOST_BOUND_ISSUE = 0.5
# From here on its unknown speed widens the bounds, with the logarithm, up to `HOST_BOUND_ISSUE`: they grow no faster
# than the time falls.
HOST_COUNTS = 0.125
_ENOUGH = 100.0
# What may not be known of a question (`RatioTrees._lacks`), in words.
WORDS: Mapping[str, str] = {
    "measurement": "how single runs differ",
    "laboratory": "another laboratory's set-up",
    "network": "the distance from every network learned from",
    "domain": "a kind of network or operator that was not learned from",
    "device": "a board with few records or none to learn from",
    "vendor": "another vendor's kernels",
    "generation": "an older generation of boards than present libraries are written for",
    "rare software": "a precision or layout that few boards were measured in",
    "unmeasured software": "a precision, runtime or layout that no board was measured in",
    "host": "the host, whose speed nobody stated",
    "slice": "what a slice lacks of its GPU",
    "beside": "a batch size or an amount of work beside those learned from",
}
CAUSES = tuple(WORDS)
# Those whose error is of what the device does, and of no host.
_OF_DEVICE = ("network", "device", "rare software", "unmeasured software", "beside")
# Those of the network and its size, which measurements of a device do not take away.
OF_NETWORK = tuple(CAUSES.index(name) for name in ("network", "domain", "beside"))


def bounds(
    spread: Spread, lacks: Mapping[str, np.ndarray], unrecorded: Mapping[str, np.ndarray] | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """[N] log bounds below and above the median, and [N, CAUSES] the lacks that make them.

    ``lacks`` [N] by cause; ``unrecorded``: the same as if no record were of the board. A record takes nothing away: the
    bounds are the narrower of both, but for what a slice lacks of its GPU, which is the same.
    """
    unknown = spread.matrix(lacks)
    low, high = spread.of_matrix(unknown)
    if unrecorded is None:
        return low, high, unknown
    none = spread.matrix({**unrecorded, "slice": lacks["slice"]})
    lower, upper = spread.of_matrix(none)
    unknown = np.where((upper - lower < high - low)[:, None], none, unknown)
    return np.maximum(low, lower), np.minimum(high, upper), unknown


def host_lack(issue: np.ndarray) -> np.ndarray:
    """How far the host counts, 0 to 1, by its time over the device's: its speed is not known."""
    share = np.log(np.maximum(issue, HOST_COUNTS) / HOST_COUNTS) / np.log(HOST_BOUND_ISSUE / HOST_COUNTS)
    return np.asarray(np.minimum(share, 1.0))


def as_it_waits(lacks: Mapping[str, np.ndarray], waits: np.ndarray) -> dict[str, np.ndarray]:
    """What is not known of N runs on GPUs, by CAUSES: of the host as far as they wait for it, of the device as far as
    they do not.

    ``waits`` [N]: the host's share of the time (`roofline.issue_share`), 0 to 1. A run takes the smooth maximum of host
    and device, whose logarithm moves with that of the host by this share, and with that of the device by the rest; a
    lack is of squares.
    """
    works = np.square(1.0 - waits)
    found = {name: lack * works if name in _OF_DEVICE else lack for name, lack in lacks.items()}
    return found | {"host": np.square(waits)}


def scarcity(rows: np.ndarray | float) -> np.ndarray:
    """How little is known of a device by its records: 1 with none, a half with `_ENOUGH`."""
    return np.asarray(1.0 / (1.0 + np.asarray(rows) / _ENOUGH))
