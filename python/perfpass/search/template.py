"""One model at many batch sizes, read but twice."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from perfpass.graph import OpGraph, at_batch
from perfpass.importers import load
from perfpass.predictors.workload import check_batch

# Two batch sizes whose difference is 1, so that no dimension is rounded; not 1, which exports often treat apart.
_BATCHES = (2, 3)


class Template:
    """A model whose batch is set without reading it again: every dimension is affine in the batch size.

    >>> template = Template("resnet50.onnx")
    >>> scores = scorer.score(template.at(batch) for batch in range(1, 257))
    """

    def __init__(self, model: Any, *, dims: Mapping[str, int] | None = None, input_shape: Any = None) -> None:
        """``model`` in any form but that of an OpGraph, whose batch is fixed; arguments and errors as `perfpass.load`.

        Raises ArgumentError where the model is not the same network at every batch size.
        """
        self._read = partial(load, model, dims=dims, input_shape=input_shape)
        self._low, self._high = (self._read(batch=b) for b in _BATCHES)
        self.at(1)

    def at(self, batch: int) -> OpGraph:
        """The graph at a batch size. Raises ArgumentError for one that is not 1 to 2^20."""
        if self._low.stated:  # formulas of a user's own need not be affine
            return self._read(batch=check_batch(batch))
        return at_batch(self._low, self._high, _BATCHES, check_batch(batch))
