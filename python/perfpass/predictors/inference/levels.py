"""Levels of an artefact: log factors that scale what is counted, by what they are of and a name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from perfpass.errors import ArtefactError
from perfpass.late import dataclass
from perfpass.predictors.learned import artefacts

_Own = TypeVar("_Own", bound="Levels")


@dataclass(frozen=True)
class Levels:
    """``levels``: log factors by level (``NAMES``) and name; absent ones are 0."""

    NAMES: ClassVar[tuple[str, ...]] = ()

    levels: Mapping[str, Mapping[str, float]]

    @classmethod
    def read(cls: type[_Own], folder: Path | str) -> _Own:
        """Those in ``folder``. Raises ArtefactError."""
        return cls.from_dict(artefacts.Artefact(folder).manifest.get("levels", {}))

    @classmethod
    def from_dict(cls: type[_Own], values: Mapping[str, Any]) -> _Own:
        """The inverse of `to_dict`. Raises ArtefactError for what is none."""
        try:
            found = {level: {str(k): float(v) for k, v in values[level].items()} for level in cls.NAMES}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ArtefactError(f"an artefact's levels cannot be read ({error}); run `perfpass train` again") from None
        return cls(found)

    def to_dict(self) -> dict[str, dict[str, float]]:
        """Strict JSON."""
        return {level: {k: round(v, 5) for k, v in self.levels.get(level, {}).items()} for level in self.NAMES}

    def _of(self, level: str, name: str) -> float:
        return self.levels.get(level, {}).get(name, 0.0)
