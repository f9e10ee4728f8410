"""NCNN's networks: ``.param`` as text and as binary. Weights (``.bin``) are never read; a file holds no batch."""

from __future__ import annotations

from perfpass.importers.formats.ncnn.reader import inputs, read

__all__ = ["inputs", "read"]
