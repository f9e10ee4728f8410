"""The settings of one Keras layer as its file states them: every value is checked where it is taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perfpass import _core
from perfpass.errors import FormatError, UnsupportedError
from perfpass.text import shown_value

_LARGEST = 2**31 - 1
_MOST_SIZES = 10_000
_MIXED = {"mixed_float16": "float16", "mixed_bfloat16": "bfloat16"}


class Settings:
    """``config`` of the layer ``name``. Each method raises FormatError for a value of another kind."""

    def __init__(self, name: str, config: Any) -> None:
        if not isinstance(config, dict):
            raise FormatError(
                f"layer {shown_value(name)} has the configuration {shown_value(config)}, which is no object"
            )
        self.name = name
        self.config: Mapping[str, Any] = config

    def wrong(self, key: str, needed: str) -> FormatError:
        """The error of a value that is not ``needed``."""
        return FormatError(
            f"layer {shown_value(self.name)} has {key} {shown_value(self.config.get(key))}; it must be {needed}"
        )

    def integer(self, key: str, default: int | None = None, least: int = 1) -> int:
        """A whole number of at least ``least``."""
        value = self.config.get(key)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _LARGEST:
            raise self.wrong(key, f"a whole number from {least} to 2^31 - 1")
        return value

    def integers(self, key: str, rank: int, default: int | None = None, least: int = 1) -> list[int]:
        """``rank`` whole numbers, or one for all axes."""
        value: Any = self.config.get(key)
        value = default if value is None else value
        if isinstance(value, int) and not isinstance(value, bool):
            value = [value] * rank
        if not _whole(value) or len(value) != rank or any(not least <= v <= _LARGEST for v in value):
            raise self.wrong(key, f"{rank} whole numbers of at least {least}")
        return list(value)

    def shape(self, key: str) -> list[int]:
        """Whole numbers, as many as there are; -1 where a size is left open."""
        value: Any = self.config.get(key)
        value = [-1 if v is None else v for v in value] if isinstance(value, list | tuple) else [value]
        if not _whole(value) or len(value) > _MOST_SIZES or any(not -1 <= v <= _LARGEST for v in value):
            raise self.wrong(key, f"a list of up to {_MOST_SIZES:,} sizes")
        return list(value)

    def pairs(self, key: str, rank: int) -> list[tuple[int, int]]:
        """A pair of cells before and behind for each axis: padding, cropping."""
        value: Any = self.config.get(key)
        if isinstance(value, int):
            value = [value] * rank
        if rank == 1 and _whole(value) and len(value) == 2:
            value = [value]
        if not isinstance(value, list | tuple) or len(value) != rank:
            raise self.wrong(key, f"{rank} pairs of whole numbers")
        found = [[v, v] if isinstance(v, int) else v for v in value]
        if any(not _whole(v) or len(v) != 2 or min(v) < 0 or max(v) > _LARGEST for v in found):
            raise self.wrong(key, f"{rank} pairs of whole numbers")
        return [(v[0], v[1]) for v in found]

    def flag(self, key: str, default: bool = False) -> bool:
        """True or false."""
        value = self.config.get(key)
        value = default if value is None else value
        if not isinstance(value, bool | int):
            raise self.wrong(key, "true or false")
        return bool(value)

    def text(self, key: str, default: str, allowed: Sequence[str] = ()) -> str:
        """A text, one of ``allowed`` where these are given."""
        value = self.config.get(key)
        value = default if value is None else value
        if not isinstance(value, str) or (allowed and value not in allowed):
            raise self.wrong(key, f"one of {', '.join(allowed)}" if allowed else "a text")
        return value

    def axes(self, key: str, rank: int, default: int = -1) -> list[int]:
        """One axis or several of a tensor of ``rank``, from 0."""
        value: Any = self.config.get(key)
        value = default if value is None else value
        found = [value] if isinstance(value, int) else value
        if not _whole(found) or len(found) > _MOST_SIZES or any(not -rank <= a < rank for a in found):
            raise self.wrong(key, f"axes of a tensor of {rank}")
        return [a % rank for a in found]

    @property
    def last(self) -> bool:
        """Whether images are channels-last."""
        return self.text("data_format", "channels_last", ("channels_last", "channels_first")) == "channels_last"


def _whole(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(v, int) and not isinstance(v, bool) for v in value)


def policy(name: str, dtype: Any) -> tuple[str, str]:
    """The type that a layer computes in, and how its weights are quantised ("" where they are not).

    ``dtype``: a name, or a serialized DTypePolicy (keras.dtype_policies). Raises FormatError and UnsupportedError.
    """
    mode = ""
    if isinstance(dtype, dict):
        kind, config = dtype.get("class_name"), dtype.get("config")
        if not isinstance(config, dict):
            raise FormatError(f"layer {shown_value(name)} has the dtype policy {shown_value(dtype)}")
        if kind == "DTypePolicyMap":
            return policy(name, config.get("default_policy"))
        if kind not in ("DTypePolicy", "FloatDTypePolicy", "Policy") and "mode" not in config:
            raise UnsupportedError(f"layer {shown_value(name)} has a dtype policy of class {shown_value(kind)}")
        mode = str(config.get("mode") or "").partition("/")[0]
        dtype = config.get("source_name") if "mode" in config else config.get("name")
    if dtype is None:
        dtype = "float32"
    if not isinstance(dtype, str):
        raise FormatError(f"layer {shown_value(name)} has dtype {shown_value(dtype)}")
    quantised, _, source = dtype.rpartition("_from_")
    if quantised:
        mode, dtype = quantised.partition("/")[0], source
    computed = _MIXED.get(dtype, dtype)
    if computed not in _core.DTYPES or computed == "undefined":
        raise UnsupportedError(
            f"layer {shown_value(name)} computes in {shown_value(dtype)}, a type that is not known here"
        )
    return computed, mode
