"""Measurements of one device, from our own journals or from a table of records, with the model behind each."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfpass.bounded_file import read_file
from perfpass.errors import (
    ArgumentError,
    DeviceError,
    FormatError,
    PerfPassError,
    needs,
)
from perfpass.measure.configuration import Configuration

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.graph import OpGraph

MAX_FILE_BYTES = 256 << 20
_SOURCES = ("timm", "torchvision")


@dataclass(frozen=True)
class Measured:
    """One measurement: what ran, how long one batch took, and watts where they were read."""

    configuration: Configuration
    latency_ms: float
    power_w: float | None = None


@dataclass(frozen=True)
class OwnStep:
    """A training step of a loop, with what was predicted of it: seconds, bytes and watts by name, and the shares.

    ``predictor`` and its ``digest`` at the time; ``shares``: of the time, ``held``: bytes by what holds them.
    """

    predictor: str
    digest: str
    model: str
    measured: dict[str, float]
    predicted: dict[str, float]
    shares: dict[str, float]
    held: dict[str, float]


@dataclass
class Measurements:
    """What a file says of one device, and how many of its rows were refused, by reason.

    ``rows``: inference; ``training``: steps of `perfpass measure`; ``steps``: of training loops.
    """

    file: str
    sha256: str
    rows: list[Measured] = field(default_factory=list)
    training: list[Measured] = field(default_factory=list)
    steps: list[OwnStep] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)


def read(path: Path | str, device: Device) -> Measurements:
    """The measurements of ``device`` in ``path``: a journal of `perfpass measure` or of training loops (JSONL), or a
    Parquet table of records of kind "vision" (docs/reference/records.md).

    Rows of other devices, modes and kinds of model are refused and counted. Raises FileError, FormatError, LimitError,
    and ArgumentError where no row is left.
    """
    path = Path(path)
    content = read_file(path, "a table of records or a journal", MAX_FILE_BYTES)
    found = Measurements(path.name, hashlib.sha256(content).hexdigest())
    rows = (
        _from_table(path, content, device, found.refused)
        if content[:4] == b"PAR1"
        else _from_journal(path, content, device, found)
    )
    for configuration, latency_ms in rows:
        if not math.isfinite(latency_ms) or latency_ms <= 0:
            found.refused["latency is not finite and above 0"] += 1
        else:
            found.rows.append(Measured(configuration, latency_ms))
    if not (found.rows or found.training or found.steps):
        why = "; ".join(f"{count} {reason}" for reason, count in found.refused.items()) or "it has no rows"
        raise ArgumentError(f"{path}: no measurement of {device.name} to learn from: {why}")
    return found


def _from_journal(
    path: Path, content: bytes, device: Device, found: Measurements
) -> Iterator[tuple[Configuration, float]]:
    from perfpass.measure.journal import parse

    contents = parse(content, str(path))
    loops: dict[str, OwnStep] = {}  # of a run, whose lines grow, the last holds
    for record in contents.records:
        elsewhere = _elsewhere(contents.facts.get(record["environment"], {}), device)
        if record["status"] != "ok":
            found.refused["the measurement did not succeed"] += 1
        elif elsewhere:
            found.refused[f"measured on {elsewhere}"] += 1
        elif "predicted" in record:
            loops[record["key"]] = _own_step(path, record)
        else:
            try:
                configuration = Configuration.from_dict(record["configuration"])
                latency_ms = float(record["latency_ms"]["median"])
            except (KeyError, TypeError, ValueError, OverflowError, ArgumentError) as error:
                raise FormatError(f"{path}: record {record['key']} is broken: {error}") from error
            if configuration.mode == "training" and latency_ms > 0:
                watts = (record.get("energy") or {}).get("power_w")
                found.training.append(Measured(configuration, latency_ms, watts))
            elif configuration.mode != "inference":
                found.refused[f"mode {configuration.mode}; inference and training are calibrated"] += 1
            else:
                yield configuration, latency_ms
    found.steps = list(loops.values())


# What a training loop's record measured of the memory that is predicted as in use; its allocator's figures are less.
_IN_USE = "device_used_peak_bytes"


def _own_step(path: Path, record: dict[str, Any]) -> OwnStep:
    told = record["predicted"]
    try:
        measured = {
            "step_s": float(record["latency_ms"]["median"]) / 1e3,
            "memory_bytes": float((record.get("memory") or {}).get(_IN_USE) or 0.0),
            "power_w": float((record.get("energy") or {}).get("power_w") or 0.0),
        }
        predicted = {name: float(told["uncorrected"][name]) for name in measured}
        shares, held = ({str(n): float(v) for n, v in told[k].items()} for k in ("operator_shares", "alive_bytes"))
        found = OwnStep(
            str(told["predictor"]),
            str(told["digest"]),
            str(record["configuration"]["model"]),
            measured,
            predicted,
            shares,
            held,
        )
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise FormatError(f"{path}: record {record['key']} is broken: {error!r}") from error
    every = (*measured.values(), *predicted.values(), *shares.values(), *held.values())
    if not all(math.isfinite(v) and v >= 0 for v in every) or measured["step_s"] <= 0 or len(shares) + len(held) > 100:
        raise FormatError(f"{path}: record {record['key']} is broken: figures must be finite and not below 0")
    return found


def _elsewhere(facts: dict[str, Any], device: Device) -> str | None:
    """The device of a record, where it is certainly not ``device``. A CPU that no catalogue knows may be any."""
    stated = facts.get("device", {})
    identity = stated.get("catalogue_id")
    if identity in (None, device.id, device.parent):
        return None
    if identity == "host-cpu":
        return None if device.kind == "cpu" else str(stated.get("name", identity))
    return str(identity)


def _from_table(
    path: Path, content: bytes, device: Device, refused: Counter[str]
) -> Iterator[tuple[Configuration, float]]:
    with needs("records", "a Parquet table"):
        from perfpass.records import schema

        table = schema.read(path, "vision", content)
    if "latency_ms" not in table.columns:
        raise FormatError(f"{path}: states no latency_ms; a calibration is made of latencies")
    for row in table.itertuples(index=False):
        name = row.device if not row.mig_profile else f"{row.device}:{row.mig_profile}"
        if name != device.id:
            refused[f"measured on {name}"] += 1
        elif row.mode != "inference" or row.n_devices > 1:
            refused["no inference on one device"] += 1
        elif row.source not in _SOURCES and ":" not in row.model:
            refused["whose model has no known source"] += 1
        else:
            model = row.model if ":" in row.model else f"{row.source}:{row.model}"
            try:
                configuration = Configuration(
                    model=model,
                    batch=int(row.batch),
                    precision=row.precision,
                    layout=row.layout or "nchw",
                    runtime=row.runtime,
                    device="cpu" if device.kind == "cpu" else "cuda",
                    image_size=int(row.img_size) if row.img_size > 0 else None,
                )
            except ArgumentError:
                refused["a configuration that `perfpass measure` does not have"] += 1
                continue
            yield configuration, float(row.latency_ms)


def graph_of(configuration: Configuration) -> OpGraph:
    """The operator graph of a configuration, built by name without weights.

    Raises UnsupportedError where the model cannot be built here, and what importing raises.
    """
    from perfpass.importers import load

    if configuration.is_file:
        if configuration.input_shapes is not None:
            return load(configuration.name, input_shape=dict(configuration.input_shapes))
        return load(configuration.name, batch=configuration.batch)
    from perfpass.measure import models

    built = models.build(configuration, "meta")
    if configuration.source == "hf" and not built.named_inputs:
        from perfpass.importers import huggingface

        length = configuration.sequence_length
        return huggingface.trace_config(configuration.name, batch=configuration.batch, sequence_length=length)
    shape: Any = built.image_shape
    if built.named_inputs:
        shapes = {name: (size, "float32" if numbers is None else "int64") for name, size, numbers in built.named_inputs}
        shape = shapes["x"][0] if list(shapes) == ["x"] else shapes
    return load(built.module, batch=configuration.batch, input_shape=shape)


def graphs(rows: Iterable[Measured], refused: Counter[str]) -> Iterator[tuple[Measured, OpGraph]]:
    """Every measurement with its graph; those whose model cannot be built are refused with the reason."""
    last: tuple[Any, OpGraph] | None = None
    for row in sorted(
        rows, key=lambda r: (r.configuration.model, r.configuration.image_size or 0, r.configuration.batch)
    ):
        c = row.configuration
        key = (c.model, c.image_size, c.batch, c.sequence_length, c.input_shapes)
        if last is None or last[0] != key:
            try:
                last = key, graph_of(c)
            except (PerfPassError, DeviceError) as error:
                refused[f"{c.model} cannot be built: {' '.join(str(error).split())[:120]}"] += 1
                continue
        yield row, last[1]
