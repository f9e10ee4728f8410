"""Pipelines of diffusers: a folder with ``model_index.json``, or that file with its folders beside it."""

from __future__ import annotations

from perfpass.importers.formats.diffusers.reader import components, inputs, read

__all__ = ["components", "inputs", "read"]
