"""Keras models as ``.keras`` archives and as HDF5 files with their configuration."""

from perfpass.importers.formats.keras.network import inputs, read

__all__ = ["inputs", "read"]
