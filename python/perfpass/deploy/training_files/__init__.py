"""Files that training frameworks are configured by, read as a layout and a recipe of `perfpass.train_cost`."""

from __future__ import annotations

from perfpass.deploy.training_files.read import read
from perfpass.deploy.training_files.settings import Settings

__all__ = ["Settings", "read"]
