"""Writes the ExecuTorch programs of this folder (executorch 1.5.1, torch 2.13), plain and handed to XNNPACK.

``python tests/importers/files/make_executorch.py`` in an environment that has executorch; the tests need none. The
network is that of ``tests/importers/test_executorch.py``.
"""

from pathlib import Path

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import EdgeCompileConfig, to_edge, to_edge_transform_and_lower
from torch import nn
from torch.nn import functional as F

HERE = Path(__file__).parent


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8)
        self.depthwise, self.pointwise = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 8, 1)
        self.last = nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu6(self.depthwise(F.relu6(self.norm(self.first(x)))))
        return F.softmax(self.last((x + self.pointwise(x)).mean((2, 3))), -1)


def main() -> None:
    exported = torch.export.export(Block().eval(), (torch.zeros(1, 3, 32, 32),))
    plain = to_edge(exported, compile_config=EdgeCompileConfig(_check_ir_validity=False))
    (HERE / "block.pte").write_bytes(plain.to_executorch().buffer)
    delegated = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    (HERE / "block_xnnpack.pte").write_bytes(delegated.to_executorch().buffer)


if __name__ == "__main__":
    main()
