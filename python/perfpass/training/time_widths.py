"""Widths of predicted times: errors of held-out networks, devices and software, and of sources outside the corpus.

Of inference, by kind of device (`perfpass.training.spread`); training steps share the errors. What is left out together
counts alike: a family of networks, a device, a device with its software, another laboratory in one domain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from perfpass.predictors.learned.intervals import EVIDENCE
from perfpass.predictors.learned.spread import Spread
from perfpass.predictors.learned.time_lacks import CAUSES, host_lack, scarcity
from perfpass.training import spread
from perfpass.training.spread import Errors

if TYPE_CHECKING:
    from perfpass.training.ratio_trees import Dataset, Residuals

# Log half-widths that fits are drawn to, and those of what no error shows. By hand: another vendor's kernels;
# a slice of a GPU (0.26 for 1g, where the 90 % quantile of measured time over that of 7g, over the ratio of rooflines,
# is 0.25 in ParvaGPU's records); a generation before Ampere; a factor of 2 in batch size or 10 in work beside what was
# measured.
PRIOR: Mapping[str, float] = {
    "measurement": 0.06,
    "laboratory": 0.12,
    "network": 0.5,
    "domain": 0.4,
    "device": 0.3,
    "vendor": 0.7,
    "generation": 0.2,
    "rare software": 0.3,
    "unmeasured software": 0.5,
    "host": 0.3,
    "slice": 0.3,
    "beside": 0.15,
}
# A part with more rows is thinned, evenly: its error as a whole is what counts.
MOST_ROWS = 300


def of_networks(dataset: Dataset, found: Residuals, kind: str = "network") -> Errors:
    """Errors on networks held out, on devices that are known; families count alike, as sources of a ``kind``."""
    rows = dataset.rows.iloc[found.row]
    counts = rows.device.map(dataset.rows.device.value_counts()).to_numpy(np.float64)
    lacks = _lacks(
        len(rows), network=np.minimum(found.distance, 1.0), device=scarcity(counts), host=host_lack(found.issue)
    )
    return Errors.of(found.residual, lacks, f"{kind}:" + rows.family.to_numpy(dtype=object))


def of_devices(
    residual: np.ndarray, issue: np.ndarray, evidence: np.ndarray, generation: np.ndarray | float, name: str
) -> Errors:
    """Errors on a device that was left out, with what training rows held of its software (indices of EVIDENCE).

    ``generation`` [N]: of each row's board (`roofline.generations_before_ampere`).
    """
    lacks = _lacks(
        len(residual), device=1.0, generation=generation, host=host_lack(issue),
        **{f"{level} software": (evidence == i).astype(np.float64) for i, level in enumerate(EVIDENCE) if i},
    )  # fmt: skip
    return Errors.of(residual, lacks, f"device:{name}")


def fit(parts: Iterable[Errors], times: Mapping[str, float] | None = None) -> Spread:
    """The widths that ship, from all parts; those of the prior where no part has an error.

    ``times``: how much a kind of what is left out counts, beside 1 (`Errors.weighted`).
    """
    kept = [part.thinned(MOST_ROWS) for part in parts if len(part)]
    if kept:
        return spread.fit(Errors.joined(kept), PRIOR, times=times)
    prior = tuple(PRIOR[cause] for cause in CAUSES)
    return Spread(CAUSES, prior, prior, spread.TAILS, 0, 0)


def bounds(
    parts: Iterable[Errors], asked: Errors, times: Mapping[str, float] | None = None
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """[N] log bounds of what is ``asked``, as those that ship, but from ``parts`` alone.

    A question of a user comes from another laboratory than any record.
    """
    lacks = dict(zip(asked.causes, asked.lacks.T, strict=True)) | dict(spread.ANOTHER_LABORATORY)
    return fit(parts, times).bounds(lacks)


def _lacks(count: int, **values: np.ndarray | float) -> dict[str, np.ndarray]:
    given = {name.replace("_", " "): value for name, value in values.items()}
    return {c: np.broadcast_to(np.asarray(given.get(c, float(c == "measurement"))), (count,)) for c in CAUSES}
