"""TensorFlow's SavedModel folders and frozen graphs."""

from perfpass.importers.formats.tensorflow.saved_model import inputs, read

__all__ = ["inputs", "read"]
