"""OpenVINO's intermediate representation: `.xml` files of versions 10 and 11, without their weights."""

from perfpass.importers.formats.openvino.reader import inputs, read

__all__ = ["inputs", "read"]
