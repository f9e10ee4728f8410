"""`perfpass inspect --symbolic`, and a range of --dim: what a model costs as formulas, or at each of several sizes."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfpass.cli.options import model_sizes, print_json, ranged_dims
from perfpass.text import columns, count, paragraph, printable, size

if TYPE_CHECKING:
    from perfpass.importers.symbolic import Symbolic

_TOLD = {
    "macs": "MACs",
    "flops": "FLOPs",
    "parameters": "parameters",
    "weight_bytes": "weights",
    "bytes_read": "read",
    "bytes_written": "written",
}
_PLAIN = ("macs", "flops", "parameters")
_SHOWN = 4  # polynomials of the peak


def formulas(options: Any) -> int:
    """Prints the formulas."""
    from perfpass.importers.symbolic import symbolic

    found = symbolic(options.model, **model_sizes(options))
    if options.json:
        print_json(found.to_dict())
    else:
        print(_formulas(Path(options.model).name, found))
    return 0


def _formulas(name: str, found: Symbolic) -> str:
    from perfpass.importers.symbolic import held

    lines = [f"{printable(name)}, exactly, for {'; '.join(held(axis) for axis in found.axes)}"]
    lines += [
        paragraph(_TOLD[key], f"{formula}{' bytes' if key not in _PLAIN else ''}")
        for key, formula in found.formulas.items()
    ]
    if len(found.peak) == 1:
        lines.append(paragraph("at the peak", f"{found.peak[0]} bytes of activations"))
    elif found.pieces and len(found.pieces) <= _SHOWN:
        for piece in found.pieces:
            told = f"{found.peak[piece.formula]} bytes from {piece.first} to {piece.last}"
            lines.append(paragraph("at the peak", told))
    elif found.peak:
        shown = [str(formula) for formula in found.peak[:_SHOWN]]
        more = f", and {len(found.peak) - _SHOWN} more (--json)" if len(found.peak) > _SHOWN else ""
        lines.append(paragraph("at the peak", f"bytes of activations, the largest of: {'; '.join(shown)}{more}"))
    fixed = ", ".join(f"{printable(key)} = {value}" for key, value in found.fixed.items())
    lines += [paragraph("fixed", fixed)] if fixed else []
    lines.append(paragraph("checked", f"{found.checked} readings, up to {_largest(found)}"))
    return "\n".join([*lines, *(paragraph("note", note) for note in found.notes)])


def _largest(found: Symbolic) -> str:
    return ", ".join(f"{name} = {value}" for name, value in found.largest.items())


def at_sizes(options: Any) -> int:
    """Prints the counts at every size of --dim."""
    from perfpass.graph import costs, liveness
    from perfpass.importers import load

    dims = ranged_dims(options)
    options.dim = []
    rest = model_sizes(options)
    rows = []
    for sizes in product(*dims.values()):
        point = dict(zip(dims, sizes, strict=True))
        graph = load(options.model, **{**rest, "dims": point})
        totals = {key: int(value) for key, value in costs.count(graph).totals.items()}
        rows.append({**point, **totals, "peak_activation_bytes": int(liveness.plan(graph).peak_activation_bytes)})
    if options.json:
        print_json({"points": rows})
        return 0
    told = ("macs", "flops", "parameters")
    table = [(*map(printable, dims), "MACs", "FLOPs", "parameters", "weights", "activations")]
    table += [
        (
            *(str(row[name]) for name in dims),
            *(count(row[name]) for name in told),
            size(row["weight_bytes"]),
            size(row["peak_activation_bytes"]),
        )
        for row in rows
    ]
    print(f"{printable(Path(options.model).name)}: {len(rows)} sizes")
    print(columns(table, right=tuple(range(len(table[0])))))
    return 0
