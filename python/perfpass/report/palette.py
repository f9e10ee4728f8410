"""Colours of pictures and pages, light and dark.

The series are Okabe and Ito's colour-blind safe ones ("Color Universal Design", 2008), darkened or lightened until each
has a contrast of 3:1 or more to its paper (WCAG 2.2, 1.4.11); shapes and words say the same as colours everywhere.
"""

from __future__ import annotations

from typing import Literal

from perfpass.report.chart import Role

Theme = Literal["light", "dark"]
THEMES: tuple[Theme, ...] = ("light", "dark")
TINT = 0.3  # of a series' colour in a filled area

ROLES: dict[Theme, dict[str, str]] = {
    "light": {"paper": "#ffffff", "ink": "#17191c", "soft": "#52575e", "grid": "#e3e5e8", "raised": "#f5f6f8"},
    "dark": {"paper": "#15171a", "ink": "#eceef0", "soft": "#a9afb7", "grid": "#33373d", "raised": "#1e2125"},
}
SERIES: dict[Theme, tuple[str, ...]] = {
    "light": ("#0072b2", "#d55e00", "#008a64", "#b5548c", "#a06f00", "#2b86bd", "#707478", "#5a4fb5"),
    "dark": ("#56a9e8", "#ff8c42", "#2bc79a", "#e58fc0", "#e0b400", "#9bd3f5", "#a0a5ab", "#b3a6ff"),
}
# The same operator class has the same colour and shape in every picture; those that are not here share the last.
CLASSES = {
    "convolution": 0, "matmul": 1, "attention": 2, "normalization": 3, "activation": 4, "elementwise": 6,
    "data_movement": 5,
}  # fmt: skip
OTHERS = 7
GREY = 6


def colour(role: Role, theme: Theme) -> str:
    """Hexadecimal."""
    return SERIES[theme][role % len(SERIES[theme])] if isinstance(role, int) else ROLES[theme][role]


def tint(role: Role, theme: Theme) -> str:
    """The colour of a filled area, on which ink is read: the role's colour mixed into paper."""
    over, under = (_parts(value) for value in (colour(role, theme), ROLES[theme]["paper"]))
    return "#" + "".join(f"{round(TINT * a + (1 - TINT) * b):02x}" for a, b in zip(over, under, strict=True))


def _parts(value: str) -> tuple[int, ...]:
    return tuple(int(value[i : i + 2], 16) for i in (1, 3, 5))


def class_colour(name: str) -> int:
    """Of an operator class."""
    return CLASSES.get(name, OTHERS)
