"""The records of vision inference as arrays: one feature row, one time and the group keys per measurement."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

from perfpass.predictors.inference.features import RATIOS, graph_sums
from perfpass.predictors.learned.ratios import RatioFeatures, Sums
from perfpass.training import ratio_trees


class Dataset(ratio_trees.Dataset):
    """N records of inference."""

    mode: ClassVar[str] = "inference"
    ratios: ClassVar[RatioFeatures] = RATIOS

    @cached_property
    def sums(self) -> Sums:
        """What no efficiency changes, stacked [N]; the features of any efficiencies follow in a second."""
        rows = zip(self.tables, self.workloads, self.rows.device, self.byte_scale, strict=True)
        return Sums.stacked([graph_sums(t, self.devices[d], w, scale) for t, w, d, scale in rows])


load = Dataset.load
