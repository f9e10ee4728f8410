"""Tuning records of TVM 0.27 as a calibration of the Relax pass."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from relax_modules import module, tensor
from tuning_record_promises import *  # noqa: F403 - the promises shared with 0.19
from tvm import relax

from tvm_perfpass.relax import PredictPerformance


def weight(*shape):
    return relax.const(np.ones(shape, "float32"))


@pytest.fixture(scope="module")
def dense_network():
    def make(m, n, k):
        x = relax.Var("x", tensor((m, k)))
        return module([x], lambda b, x: relax.op.matmul(x, weight(k, n)))

    return make


@pytest.fixture(scope="module")
def conv_network():
    def make():
        x = relax.Var("x", tensor((1, 16, 16, 16)))
        return module([x], lambda b, x: relax.op.nn.conv2d(x, weight(32, 16, 3, 3), padding=1))

    return make


@pytest.fixture(scope="module")
def annotate():
    return lambda module, device, calibration: PredictPerformance(device, calibration=calibration)(module)
