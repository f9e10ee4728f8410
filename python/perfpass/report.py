"""Predictions and devices as plain text, aligned, at most 100 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.prediction import Interval, Prediction

WIDTH = 100

_BINARY = (("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10), ("B", 1.0))
_DECIMAL = (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0))


def printable(text: str) -> str:
    """Text from a model file, safe for a terminal: control and escape characters are shown as their codes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def digits(value: float) -> str:
    """Four significant digits, without an exponent where it is not needed."""
    if value == 0:
        return "0"
    if 1e-4 <= abs(value) < 1e7:
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"
    return f"{value:.3e}"


def size(value: float) -> str:
    """Bytes with a binary unit."""
    unit, factor = next(((u, f) for u, f in _BINARY if abs(value) >= f), _BINARY[-1])
    return f"{digits(value / factor)} {unit}"


def count(value: float) -> str:
    """A count with a decimal prefix."""
    prefix, factor = next(((p, f) for p, f in _DECIMAL if abs(value) >= f), _DECIMAL[-1])
    return f"{digits(value / factor)}{' ' + prefix if prefix else ''}"


def columns(rows: Sequence[Sequence[str]], right: Sequence[int] = (), indent: str = "  ") -> str:
    """Rows as aligned columns; those of index ``right`` are flush right. The last column is cut at ``WIDTH``."""
    if not rows:
        return ""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        line = (indent + "  ".join(cells)).rstrip()
        lines.append(line if len(line) <= WIDTH else line[: WIDTH - 3] + "...")
    return "\n".join(lines)


def paragraph(label: str, text: str) -> str:
    """A labelled text, wrapped under itself."""
    head = f"  {label:<12} "
    return textwrap.fill(printable(text), WIDTH, initial_indent=head, subsequent_indent=" " * len(head))


def prediction_table(prediction: Prediction) -> str:
    """The prediction for people: metrics with intervals, MIG hint and support."""
    p = prediction
    coverage = f"{p.latency_ms.coverage:.0%} interval"
    rows = [
        ("", "median", "", coverage),
        ("latency", *_cells(p.latency_ms, "ms")),
        ("throughput", *_cells(p.throughput_per_s, "samples/s")),
        ("peak memory", *_memory_cells(p.peak_memory_bytes)),
        ("energy", *_cells(p.energy_j, "J/run")),
        ("power", *_cells(p.power_w, "W")),
    ]
    w = p.workload
    device = p.provenance["device"]
    mig = f"{p.mig.profile}, {p.mig.instances_per_gpu} per GPU" if p.mig.profile else "none"
    optimizer = f" with {w['optimizer']}" if "optimizer" in w else ""
    lines = [
        f"{printable(device['name'])} ({device['id']})",
        f"batch {w['batch']}, {w['precision']}, {w['mode']}{optimizer}, {w['runtime']}, {w['layout']}",
        "",
        columns(rows, right=(1,)),
        "",
        paragraph("MIG profile", f"{mig}: {p.mig.reason}"),
        paragraph("support", p.support.level),
        *(paragraph("", f"- {reason}") for reason in p.support.reasons),
    ]
    return "\n".join(lines)


def explanation(prediction: Prediction) -> str:
    """What stands behind a prediction: time and memory by class, the longest operators, the peak, sources."""
    p = prediction
    graph = p.provenance["graph"]
    total = sum(p.breakdown["latency_ms"].values()) or 1.0
    classes = [("operator class", "ms", "share")]
    classes += [(name, digits(ms), f"{ms / total:.1%}") for name, ms in p.breakdown["latency_ms"].items()]
    phases = p.breakdown.get("phase_ms", {})
    classes += [(f"({name})", digits(ms), f"{ms / total:.1%}") for name, ms in phases.items()]
    memory = [("part", "size")] + [(name, size(value)) for name, value in p.breakdown["memory_bytes"].items()]
    operators = [("operator", "runs", "ms", "share", "output", "example")]
    operators += [
        (
            o["operator"],
            digits(o["count"]),
            digits(o["ms"]),
            f"{o['ms'] / total:.1%}",
            "x".join(map(str, o["output_shape"])) or "scalar",
            printable(o["example"])[-40:],
        )
        for o in p.breakdown["operators"]
    ]
    peak = p.breakdown["peak"]
    tensors = [("tensor", "dtype", "shape", "made by")]
    tensors += [
        (
            printable(t["tensor"])[-36:] or "(unnamed)",
            t["dtype"],
            "x".join(map(str, t["shape"])) or "scalar",
            printable(t["producer"])[-36:],
        )
        for t in peak["largest"]
    ]
    lines = [
        f"Graph: {graph['nodes']} nodes, {graph['edges']} edges, {count(graph['macs'])}MAC, "
        f"{count(graph['flops'])}FLOP, {count(graph['parameters'])} parameters",
        "",
        "Time by operator class",
        columns(classes, right=(1, 2)),
        "",
        f"The {len(operators) - 1} operators that take longest (equal ones together)",
        columns(operators, right=(1, 2, 3)),
        "",
        "Memory at the peak",
        columns(memory, right=(1,)),
        paragraph("reached in", f"{peak['operator'] or 'the inputs'}, with {peak['live_tensors']} tensors alive"),
        columns(tensors),
    ]
    if graph["unknown_operators"]:
        lines += ["", "Operators without a cost model"]
        lines += [columns([(printable(n), str(c)) for n, c in graph["unknown_operators"].items()], right=(1,))]
    if graph["notes"]:
        lines += ["", "Notes of the graph", *(paragraph("", f"- {note}") for note in graph["notes"])]
    lines += ["", "Where the figures come from", *_provenance_lines(p.provenance)]
    return "\n".join(lines)


def _provenance_lines(provenance: dict[str, Any]) -> list[str]:
    device = provenance["device"]
    plain = {k: v for k, v in provenance.items() if k not in ("device", "graph") and v is not None}
    lines = [paragraph(key.replace("_", " "), _flat(value)) for key, value in plain.items()]
    if device["estimated_figures"]:
        lines.append(paragraph("estimated", f"{', '.join(device['estimated_figures'])} of {device['id']}"))
    return lines + [paragraph("device", note) for note in device["notes"]]


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {_flat(v)}" for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(_flat(v) for v in value)
    return digits(value) if isinstance(value, float) else str(value)


def _cells(interval: Interval, unit: str) -> tuple[str, str, str]:
    return digits(interval.median), unit, f"{digits(interval.low)} to {digits(interval.high)}"


def _memory_cells(interval: Interval) -> tuple[str, str, str]:
    unit, factor = next(((u, f) for u, f in _BINARY if interval.median >= f), _BINARY[-1])
    return (
        digits(interval.median / factor),
        unit,
        f"{digits(interval.low / factor)} to {digits(interval.high / factor)} (plan for the upper)",
    )


def device_list(devices: Sequence[Device]) -> str:
    """One line per device."""
    rows: list[tuple[str, ...]] = [("id", "memory", "GB/s", "fp32", "fp16", "bf16", "W", "MIG", "name")]
    for d in devices:
        rates = [digits(d.peak_flops[p] / 1e12) if p in d.peak_flops else "-" for p in ("fp32", "fp16", "bf16")]
        rows.append(
            (
                d.id,
                size(d.memory_bytes),
                digits(d.memory_bandwidth_bytes_s / 1e9),
                *rates,
                digits(d.power_limit_w),
                "yes" if d.mig_geometry else "-",
                printable(d.name).removeprefix("NVIDIA "),
            )
        )
    return columns(rows, right=(1, 2, 3, 4, 5, 6), indent="")


def device_sheet(device: Device) -> str:
    """Everything known of one device, with sources."""
    d = device
    rates = ", ".join(f"{p} {digits(rate / 1e12)}" for p, rate in d.peak_flops.items())
    facts = [
        ("id", d.id),
        ("kind", f"{d.vendor} {d.kind}, {d.architecture or 'architecture not stated'}"),
        ("peak", f"{rates} (dense TFLOP/s, TOP/s for int8)"),
        ("memory", f"{size(d.memory_bytes)} {d.memory_type}, {digits(d.memory_bandwidth_bytes_s / 1e9)} GB/s"),
        ("caches", f"L2 {size(d.l2_bytes)}" + (f", L3 {size(d.l3_bytes)}" if d.l3_bytes else "")),
        ("cores", f"{d.sm_count} {'cores' if d.kind == 'cpu' else 'SMs' if d.vendor == 'NVIDIA' else 'compute units'}"),
        ("clock", f"{digits(d.base_clock_hz / 1e6)} to {digits(d.clock_hz / 1e6)} MHz"),
        ("power", f"{digits(d.idle_power_w)} W idle, {digits(d.power_limit_w)} W limit"),
        ("links", _links(d)),
        ("launched", d.launch_date or "not stated"),
        ("aliases", ", ".join(d.aliases) or "-"),
    ]
    if d.compute_capability:
        facts.insert(2, ("capability", "{}.{}".format(*d.compute_capability)))
    lines = [printable(d.name), *(paragraph(label, text) for label, text in facts)]
    if d.mig:
        rows = [("MIG profile", "SMs", "memory", "per GPU")]
        rows += [(p.name, str(p.sm_count), size(p.memory_bytes), str(p.max_instances)) for p in d.mig.profiles]
        lines += ["", columns(rows, right=(1, 2, 3)), paragraph("listing", d.mig.listing)]
    if d.estimated:
        lines += ["", paragraph("estimated", ", ".join(d.estimated))]
    lines += [paragraph("note", note) for note in d.notes]
    by_source: dict[str, list[str]] = {}
    for figure, source in d.sources.items():
        by_source.setdefault(source, []).append(figure)
    lines += ["", *(paragraph("source", f"{source}: {', '.join(f)}") for source, f in by_source.items())]
    return "\n".join(lines)


def _links(device: Device) -> str:
    links = []
    if device.pcie_bandwidth_bytes_s:
        links.append(f"host {digits(device.pcie_bandwidth_bytes_s / 1e9)} GB/s one way")
    if device.nvlink_bandwidth_bytes_s:
        links.append(f"NVLink {digits(device.nvlink_bandwidth_bytes_s / 1e9)} GB/s both ways")
    return ", ".join(links) or "-"
