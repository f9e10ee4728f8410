"""Programs of PaddlePaddle: PIR (JSON, Paddle 3) and ProgramDesc (protobuf, Paddle 1 and 2); no parameters are read."""

from __future__ import annotations

from perfpass.importers.formats.paddle.reader import inputs, read

__all__ = ["inputs", "read"]
