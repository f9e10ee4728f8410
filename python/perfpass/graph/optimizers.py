"""What an optimizer reads, writes and keeps for every parameter of a training step."""

from __future__ import annotations

from perfpass.late import dataclass


@dataclass(frozen=True)
class Optimizer:
    """Traffic per parameter of one step, in elements of 4 bytes, and kernels per parameter tensor without foreach.

    ``states``: elements kept from step to step for every parameter, ``temporaries``: those that the list version has
    for a moment (Adam: roots of the second moments). Counts follow torch.optim's single-tensor implementations, whose
    kernels read and write every operand once; ``fused`` counts each tensor once.
    """

    name: str
    read: int
    written: int
    kernels: int
    states: int
    temporaries: int
    flops: int
    fused_read: int
    fused_written: int


OPTIMIZERS: dict[str, Optimizer] = {
    o.name: o
    for o in (
        Optimizer("none", 0, 0, 0, 0, 0, 0, 0, 0),
        # p += -lr g
        Optimizer("sgd", 2, 1, 1, 0, 0, 2, 2, 1),
        # buffer *= momentum; buffer += g; p += -lr buffer
        Optimizer("momentum", 5, 3, 3, 1, 0, 5, 3, 2),
        # m lerp; v *= b2; v += g g; sqrt(v); / bias; + eps; p += m / denominator
        Optimizer("adam", 11, 7, 7, 2, 1, 8, 4, 3),
        # the same, and p *= 1 - lr wd first
        Optimizer("adamw", 12, 8, 8, 2, 1, 9, 4, 3),
    )
}
# Of records alone, which nobody can ask for: their time is known, and no plan of memory.
RECORDED: dict[str, Optimizer] = {
    # v *= rho; v += g g; v + eps, root; d + eps, root; / root, * g; d *= rho; d += delta delta; p += -lr delta
    "adadelta": Optimizer("adadelta", 16, 11, 11, 2, 2, 16, 4, 3),
    # TensorFlow's ResourceApplyAdam: all of a tensor in one kernel.
    "keras adam": Optimizer("keras adam", 4, 3, 1, 2, 0, 8, 4, 3),
}
