"""What a sweep finds: a table of points, a row each, and those of them that no other is better than in all."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.declared import Anything, Exactly, Items, Table, Text
from perfpass.errors import ArgumentError, FormatError, missing_package
from perfpass.prediction import notebook_html, plots_of
from perfpass.predictors.estimate import Bounds
from perfpass.text import columns, digits, printable, shown_value, size, unknown
from perfpass.whole_file import replacing, write_whole

SCHEMA_VERSION = 1
FORMATS = (".csv", ".parquet", ".json")
_BOUNDS = ("median", "low", "high")
_NAMES = Items(Text(60), 60, 1)
_DOCUMENT = Table(
    {
        "schema_version": Exactly(SCHEMA_VERSION),
        "model": Text(4096, empty=True),
        "settings": _NAMES,
        "figures": _NAMES,
        "points": Items(Table({}, others=Anything()), 5_000_000),
        "notes": Items(Text(2000, empty=True), 10_000),
    },
    ("schema_version", "model", "settings", "figures", "points"),
)
_SHOWN = 20
# Of what more is better; of all other figures less is.
_MORE_IS_BETTER = ("throughput_per_s", "output_tokens_per_s", "requests_per_s", "fits")


@dataclass(frozen=True, eq=False)
class Sweep:
    """N points of one model: ``columns``, arrays [N] by name. ``print(sweep)`` gives a table, ``write`` a file.

    A figure has three columns: its median by its own name (``latency_ms``), and the bounds that hold nine of ten
    (``latency_ms_low``, ``latency_ms_high``); NaN where ``problem`` says why there is none. ``settings`` names the
    columns that were swept, ``figures`` those that were found. ``notes`` say where prices come from.
    """

    model: str
    settings: tuple[str, ...]
    figures: tuple[str, ...]
    columns: dict[str, np.ndarray] = field(hash=False)
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.columns["problem"])

    @property
    def ok(self) -> np.ndarray:
        """[N] whether a point has figures."""
        return np.asarray(self.columns["problem"] == "")

    def take(self, rows: np.ndarray) -> Sweep:
        """Some of the points."""
        return replace(self, columns={name: column[rows] for name, column in self.columns.items()})

    def rows(self) -> list[dict[str, Any]]:
        """The points as strict JSON: None where there is no figure."""
        lists = {name: column.tolist() for name, column in self.columns.items()}
        return [
            {n: None if isinstance(v, float) and not math.isfinite(v) else v for n, v in zip(lists, row, strict=True)}
            for row in zip(*lists.values(), strict=True)
        ]

    def pareto(self, *objectives: str) -> Sweep:
        """The points than which none is at least as good in all ``objectives`` and better in one, by their medians.

        Throughputs count as better the more they are, all else the less. Raises ArgumentError for names that are no
        figure of this sweep, and for fewer than one.
        """
        if not objectives:
            raise ArgumentError(f"a Pareto front is of one figure at least; choose of {', '.join(self.figures)}")
        for name in objectives:
            if name not in self.figures:
                raise ArgumentError(unknown("figure", name, self.figures))
        signs = [-1.0 if name in _MORE_IS_BETTER else 1.0 for name in objectives]
        values = np.stack([s * self.columns[n].astype(np.float64) for s, n in zip(signs, objectives, strict=True)], 1)
        asked = np.flatnonzero(self.ok & np.isfinite(values).all(axis=1))
        return self.take(asked[_undominated(values[asked])])

    @property
    def plot(self) -> Any:
        """Pictures, a `perfpass.report.SweepPlots`: ``sweep.plot.pareto().save("front.svg")``."""
        return plots_of(self)

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON, with its ``schema_version``."""
        return {
            "schema_version": SCHEMA_VERSION,
            "model": self.model,
            "settings": list(self.settings),
            "figures": list(self.figures),
            "points": self.rows(),
            "notes": list(self.notes),
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], where: str = "the sweep") -> Sweep:
        """What `to_dict` gave. Raises FormatError for anything else."""
        found = _DOCUMENT.take(document, where)
        settings, figures, points = tuple(found["settings"]), tuple(found["figures"]), found["points"]
        names = tuple(points[0]) if points else ()
        if not points or not {*settings, *figures, "problem"} <= set(names):
            raise FormatError(f"{where}: its points lack settings or figures; write it with `perfpass sweep --json`")
        columns = {}
        for name in names:
            values = [point.get(name) for point in points]
            numeric = name in figures or all(isinstance(v, (int, float)) or v is None for v in values)
            if numeric and not all(isinstance(v, (int, float)) or v is None for v in values):
                raise FormatError(f"{where}: {shown_value(name)} is no number in every point")
            columns[name] = np.array(
                [math.nan if v is None else v for v in values] if numeric else [str(v) for v in values]
            )
        return cls(found["model"], settings, figures, columns, tuple(found.get("notes", ())))

    def write(self, path: str | os.PathLike[str]) -> None:
        """The points as a file: .csv, .parquet (needs pyarrow) or .json by its ending.

        Raises ArgumentError for another ending, UnsupportedError without pyarrow, FileError.
        """
        kind = Path(path).suffix.lower()
        if kind not in FORMATS:
            raise ArgumentError(f"a sweep is written as {', '.join(FORMATS)}, and {Path(path).name!r} is none of them")
        if kind == ".json":
            write_whole(path, json.dumps(self.to_dict(), allow_nan=False) + "\n")
        elif kind == ".csv":
            buffer = io.StringIO()
            writer = csv.DictWriter(buffer, list(self.columns), lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.rows())
            write_whole(path, buffer.getvalue())
        else:
            self._write_parquet(path)

    def _write_parquet(self, path: str | os.PathLike[str]) -> None:
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError as error:
            raise missing_package(error, "records", "a sweep as Parquet") from None
        table = pyarrow.table({name: pyarrow.array(column.tolist()) for name, column in self.columns.items()})
        with replacing(path) as file:
            pyarrow.parquet.write_table(table, file, compression="zstd")

    def __str__(self) -> str:
        swept = [name for name in self.settings[1:] if len(set(self.columns[name].tolist())) > 1]
        said = [self.settings[0], *swept]
        asked = self.take(np.flatnonzero(self.ok))
        shown = asked.take(np.arange(min(len(asked), _SHOWN)))
        figures = [name for name in self.figures if name != "fits"]
        # Bytes are read as sizes; files keep the column's name and unit.
        rows = [tuple(name.removesuffix("_bytes") for name in (*said, *figures))]
        for i in range(len(shown)):
            settings = [_cell(shown.columns[name][i]) for name in said]
            rows.append((*settings, *(_figure(name, shown.columns[name][i]) for name in figures)))
        without = len(self) - len(asked)
        title = f"{printable(self.model)}: {len(self):,} points" + (f", {without:,} of them without" if without else "")
        title += " figures" if without else ""
        if not len(asked):
            return "\n".join([title, *self.problems()])
        lines = [title, _whole(rows)]
        if len(asked) > _SHOWN:
            lines.append(f"  and {len(asked) - _SHOWN:,} more: -o FILE writes all")
        return "\n".join([*lines, *self.problems(), *(f"  {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        return notebook_html(self)

    def problems(self) -> list[str]:
        """Why points have no figures, the most common reasons first, a line each."""
        found, counts = np.unique(self.columns["problem"][~self.ok].astype(str), return_counts=True)
        order = np.argsort(-counts, kind="stable")[:5]
        return [f"  {counts[i]:,} without figures: {printable(str(found[i]))}" for i in order]


def _whole(rows: Sequence[tuple[str, ...]]) -> str:
    """The table in parts of columns, as many as fit a line."""
    text = columns(rows)
    if max(map(len, text.splitlines()), default=0) < 100 or len(rows[0]) < 4:
        return text
    half = (len(rows[0]) + 1) // 2
    return f"{_whole([row[:half] for row in rows])}\n{_whole([row[:1] + row[half:] for row in rows])}"


def _figure(name: str, value: Any) -> str:
    if name.startswith("usd_") and math.isnan(value):
        return "no price"
    return size(float(value)) if name.endswith("_bytes") else _cell(value)


def _cell(value: Any) -> str:
    return digits(float(value)) if isinstance(value, (float, np.floating)) else printable(str(value))


def _undominated(values: np.ndarray) -> np.ndarray:
    """Indices of the rows [N, K] that no other row is below in one and above in none; in their order."""
    order = np.lexsort(values.T[::-1])
    kept: list[int] = []
    for i in order.tolist():
        front = values[kept]
        if not ((front <= values[i]).all(axis=1) & (front < values[i]).any(axis=1)).any():
            kept.append(i)
    return np.array(sorted(kept), dtype=np.intp)


def spread_out(name: str, found: Bounds) -> dict[str, np.ndarray]:
    """The three columns of a figure."""
    names = (name, f"{name}_low", f"{name}_high")
    return {column: np.asarray(getattr(found, b), dtype=np.float64) for column, b in zip(names, _BOUNDS, strict=True)}


def joined(parts: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Tables below one another; all have the columns of the first."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
