"""The records of vision inference as arrays: one feature row, one time and the group keys per measurement."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

import numpy as np

from perfpass.graph.table import Tables
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
        batch, parts, order = self.rows.batch.to_numpy(), [], []
        for some in ratio_trees.in_one_way(self.ways, self.rows.precision):
            tables, way = Tables.joined([self.tables[i] for i in some]), self.ways[some[0]]
            parts.append(graph_sums(tables, batch[some], way, float(self.byte_scale[some[0]])))
            order += some
        return parts[0].beside(*parts[1:]).take(np.argsort(order))


load = Dataset.load
