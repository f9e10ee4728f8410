"""Exact polynomials of named sizes, found by interpolation: what a model costs as a formula of its dimensions.

A count that is a polynomial of degree d in a size is known from d + 1 of its values (Newton; Press et al., Numerical
Recipes, 3.5, in rational arithmetic here, so that nothing is rounded).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise, product
from typing import Any


@dataclass(frozen=True)
class Polynomial:
    """A sum of ``coefficient * symbol ** power * ...``: ``terms`` by the powers of ``symbols``, none of them 0."""

    symbols: tuple[str, ...]
    terms: Mapping[tuple[int, ...], Fraction]

    def at(self, sizes: Mapping[str, int]) -> Fraction:
        """Its value at ``sizes`` of all symbols."""
        values = [sizes[name] for name in self.symbols]
        return sum(
            (c * math.prod(v**p for v, p in zip(values, powers, strict=True)) for powers, c in self.terms.items()),
            Fraction(0),
        )

    @property
    def degrees(self) -> dict[str, int]:
        """The highest power of each symbol."""
        return {name: max((powers[i] for powers in self.terms), default=0) for i, name in enumerate(self.symbols)}

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON: the formula as text, and its terms with coefficients as fractions of whole numbers."""
        return {
            "formula": str(self),
            "terms": [
                {"coefficient": str(c), "powers": {n: p for n, p in zip(self.symbols, powers, strict=True) if p}}
                for powers, c in self._sorted()
            ],
        }

    def _sorted(self) -> list[tuple[tuple[int, ...], Fraction]]:
        return sorted(self.terms.items(), key=lambda term: (-sum(term[0]), [-p for p in term[0]]))

    def __str__(self) -> str:
        """As ``24*batch*seq^2 - 3*seq``, over one denominator where a coefficient is no whole number."""
        if not self.terms:
            return "0"
        below = math.lcm(*(c.denominator for c in self.terms.values()))
        text = ""
        for powers, c in self._sorted():
            whole = int(c * below)
            factors = [f"{n}^{p}" if p > 1 else n for n, p in zip(self.symbols, powers, strict=True) if p]
            if abs(whole) != 1 or not factors:
                factors.insert(0, str(abs(whole)))
            sign = (" - " if whole < 0 else " + ") if text else ("-" if whole < 0 else "")
            text += sign + "*".join(factors)
        if below == 1:
            return text
        return f"({text})/{below}" if len(self.terms) > 1 else f"{text}/{below}"


@dataclass(frozen=True)
class Axis:
    """The sizes of one symbol on which a formula is asked: ``first + step * k`` for k from 0 on."""

    symbol: str
    first: int
    step: int

    def __getitem__(self, k: int) -> int:
        return self.first + self.step * k


def degree(values: Sequence[int], spare: int = 2) -> int | None:
    """The degree of the polynomial through equally spaced ``values``, of which ``spare`` are more than it needs; None
    where there is none of so low a degree.
    """
    difference = list(values)
    for d in range(len(values) - spare):
        if len(set(difference)) == 1:
            return d
        difference = [b - a for a, b in pairwise(difference)]
    return None


def interpolated(axes: Sequence[Axis], degrees: Sequence[int], value: Callable[[tuple[int, ...]], int]) -> Polynomial:
    """The polynomial of at most ``degrees`` in each symbol that takes ``value(ks)`` at the points k of the axes."""
    grid = {ks: Fraction(value(ks)) for ks in product(*(range(d + 1) for d in degrees))}
    for i, (axis, d) in enumerate(zip(axes, degrees, strict=True)):
        basis = _basis(axis.first, axis.step, d)
        found: dict[tuple[int, ...], Fraction] = {}
        for ks, c in grid.items():
            if c:
                for power, part in enumerate(basis[ks[i]]):
                    key = (*ks[:i], power, *ks[i + 1 :])
                    found[key] = found.get(key, Fraction(0)) + c * part
        grid = found
    return Polynomial(tuple(axis.symbol for axis in axes), {powers: c for powers, c in grid.items() if c})


@lru_cache(maxsize=1024)
def _basis(first: int, step: int, d: int) -> tuple[tuple[Fraction, ...], ...]:
    """Coefficients, lowest power first, of Lagrange's polynomials on ``first + step * k``, k = 0..d."""
    points = [first + step * k for k in range(d + 1)]
    rows = []
    for i, x in enumerate(points):
        row = [Fraction(1)]
        for j, other in enumerate(points):
            if j != i:
                row = [
                    ((row[p - 1] if p else Fraction(0)) - other * (row[p] if p < len(row) else Fraction(0)))
                    / (x - other)
                    for p in range(len(row) + 1)
                ]
        rows.append(tuple(row))
    return tuple(rows)


def upper(polynomials: Sequence[Polynomial], axes: Sequence[Axis]) -> list[Polynomial]:
    """Those of ``polynomials`` that may be the largest somewhere on the axes: one whose difference to another has no
    negative coefficient in k is never above it.
    """
    moved = [_from_first(p, axes) for p in polynomials]
    kept: list[int] = []
    for i in sorted(range(len(moved)), key=lambda i: -polynomials[i].at({a.symbol: a[64] for a in axes})):
        if not any(_never_above(moved[i], moved[j]) for j in kept):
            kept.append(i)
    return [polynomials[i] for i in kept]


def _never_above(a: Mapping[tuple[int, ...], Fraction], b: Mapping[tuple[int, ...], Fraction]) -> bool:
    return all(b.get(key, 0) >= a.get(key, 0) for key in {*a, *b})


def _from_first(polynomial: Polynomial, axes: Sequence[Axis]) -> dict[tuple[int, ...], Fraction]:
    """Coefficients in k, with ``first + step * k`` for every symbol."""
    terms = dict(polynomial.terms)
    for i, axis in enumerate(axes):
        found: dict[tuple[int, ...], Fraction] = {}
        for powers, c in terms.items():
            n = powers[i]
            for k in range(n + 1):
                key = (*powers[:i], k, *powers[i + 1 :])
                part = c * math.comb(n, k) * axis.first ** (n - k) * axis.step**k
                found[key] = found.get(key, Fraction(0)) + part
        terms = found
    return terms
