"""Griffe extension: `perfpass.late.dataclass` is the standard decorator, so that signatures have the fields."""

from __future__ import annotations

from typing import Any

from griffe import Alias, Extension


class LateDataclass(Extension):
    def on_alias_instance(self, *, alias: Alias, **_: Any) -> None:
        if alias.target_path == "perfpass.late.dataclass":
            alias.target_path = "dataclasses.dataclass"
