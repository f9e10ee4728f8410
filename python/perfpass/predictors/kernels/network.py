"""Collectives among GPUs of several nodes: what a node does inside, and what goes through its network cards.

Each GPU has a card of its own. Of all_reduce a card carries 2 (N - 1) / N of the node's share of the message (reduced
inside first, then among N nodes, then shared inside), of all_gather and reduce_scatter half of that, of all_to_all what
is meant for other nodes. Inside and outside overlap, so the longer counts, and a start comes on top.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from perfpass.devices import Device
from perfpass.errors import ArgumentError
from perfpass.prediction import Support
from perfpass.predictors.kernels.model import Software
from perfpass.predictors.kernels.physics import COLLECTIVES, element_bytes
from perfpass.predictors.kernels.predictor import KernelPredictor, KernelTimes
from perfpass.predictors.kernels.software import generation

# Of a card's rate, and seconds before data flows: training.kernels.network fits them on data/records/
# collectives_between_nodes.parquet, the share on both sources, the start on DeepEP's alone, whose messages are short.
SHARE = 0.796
START_S = 26.8e-6
# How far the worst row of each source lies with the share of the other one: DeepEP's, and NCCL's over EFA, which took
# up to so many times as long.
WITHIN, BEYOND = 1.2, 3.0
# More than two GPUs that PCIe joins reach what their host lets them. Two were measured with L40S: all but these runs on
# one that lets four of them pass 3.7 to 5 GB/s and eight 2, these on one that lets either pass 20. No question says
# which it is about, so the middle of both is taken.
_SEVERAL, _OTHER_HOST = 2, {"stack": "sglang", "version": "0.5.12", "kernel": "graph"}
# ConnectX-7, one for each GPU (NVIDIA DGX H100, DGX B200 datasheets).
CARD_BYTES_S = 50e9


def collective(
    kernels: KernelPredictor,
    device: Device,
    operation: str,
    n_devices: int,
    n_nodes: int,
    elements: ArrayLike,
    dtype: str = "bf16",
    *,
    stack: str | None = None,
    card_bytes_s: float = CARD_BYTES_S,
) -> KernelTimes:
    """Among ``n_devices`` GPUs of ``n_nodes`` equal nodes; ``elements`` [N] of the whole message (all_to_all: of what
    one GPU sends). ``stack``: deepep, whose kernels stand behind the constants, or another library.

    No time is below what NVLink and the cards take at their full rate. Raises ArgumentError, DeviceError.
    """
    if n_nodes < 2 or n_devices % n_nodes:
        raise ArgumentError(f"{n_devices} devices do not stand in {n_nodes} equal nodes, 2 or more")
    if operation not in COLLECTIVES:
        raise ArgumentError(f"unknown collective {operation!r}; allowed are {', '.join(COLLECTIVES)}")
    if not card_bytes_s > 0:
        raise ArgumentError(f"a card's rate must be above 0 byte/s, got {card_bytes_s!r}")
    size = np.atleast_1d(np.asarray(elements, dtype=np.float64)) * element_bytes(dtype)
    if not (size > 0).all():
        raise ArgumentError("a message needs at least one element")
    each, here = n_devices // n_nodes, None
    kept = size / n_nodes if operation == "all_to_all" else size
    if each > 1:
        here = kernels.collective(device, operation, each, np.maximum(kept / 2, 1.0), "fp16")  # bytes are moved alike
    inside = here.seconds if here else np.zeros_like(size)
    wire = carried(operation, n_devices, n_nodes, size) / card_bytes_s
    seconds = np.maximum(inside, wire / SHARE) + START_S
    own = stack == "deepep"
    reasons = ["messages between nodes: measured on H800 with ConnectX-7 by DeepEP, and on two nodes of H100 with EFA"]
    if not own:
        reasons.append(f"of another library, bounds reach {BEYOND:g} times the median: so far NCCL over EFA lies")
    shares = np.zeros((len(size), 5))
    shares[:, 0], shares[:, 2] = START_S / seconds, 1 - START_S / seconds
    return KernelTimes(
        seconds=seconds,
        low_s=np.maximum(inside if here is None else here.low_s, wire),
        high_s=seconds * (WITHIN if own else BEYOND),
        power=lambda: here.power_w if here else np.full_like(size, np.nan),
        shares=shares,
        outside=np.full(len(size), True),
        evidence="measured" if own else "device and software unseen",
        support=Support("near" if own else "outside", tuple(reasons)),
        software=_software(device, here, stack or "nccl", dtype),
    )


def on_the_other_host(kernels: KernelPredictor, device: Device, gpus: int, elements: ArrayLike) -> KernelTimes | None:
    """An all_reduce in bf16 among ``gpus`` of a node on the second host that was measured; None where the host does not
    matter. Raises what `KernelPredictor.collective` raises.
    """
    if gpus <= _SEVERAL or device.link_bytes_s(gpus):
        return None
    return kernels.collective(device, "all_reduce", gpus, elements, "bf16", **_OTHER_HOST)


def carried(operation: str, n_devices: int, n_nodes: int, size_bytes: np.ndarray) -> np.ndarray:
    """Bytes [N] that each card sends, of messages of ``size_bytes`` [N]."""
    if operation == "all_to_all":
        return size_bytes * (1 - 1 / n_nodes)
    rounds = 2.0 if operation == "all_reduce" else 1.0
    return rounds * size_bytes * (n_nodes - 1) / n_nodes / (n_devices / n_nodes)


def _software(device: Device, here: KernelTimes | None, stack: str, dtype: str) -> Software:
    if here is None:
        return Software(device.id, generation(device), stack, dtype, "", "default", 0, False)
    return replace(here.software, runtime=stack, precision=dtype, version="", family="default")
