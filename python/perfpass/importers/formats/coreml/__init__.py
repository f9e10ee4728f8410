"""Core ML models: `.mlpackage` folders and `.mlmodel` files, without their weights."""

from perfpass.importers.formats.coreml.reader import inputs, read

__all__ = ["inputs", "read"]
