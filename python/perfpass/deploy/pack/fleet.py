"""What is asked for: the GPUs that there may be, the models that are to run on them, and today's layout.

The file's format: docs/reference/fleet-format.md.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfpass.declared import Choice, Exactly, Flag, Items, Named, Number, OneOrMore, Table, Text
from perfpass.devices import Device
from perfpass.devices import device as find_device
from perfpass.errors import ArgumentError, DeviceError, FormatError, PerfPassError
from perfpass.predictors.mig.latency import MOST_PROCESSES
from perfpass.text import shown_value, unknown
from perfpass.toml_table import read_toml

SCHEMA = 1
OBJECTIVES = ("gpus", "price")
MODES = ("any", "mig", "whole")
WHOLE = "whole"  # in place of a profile: the GPU without MIG
MOST_MODELS = 20_000
MOST_GPUS = 100_000
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_SIZE = Number(1, 2**40, whole=True)
_SHARE = Number(0.5, 1.0, hint=" below 1")
_GPU = Table(
    {
        "device": Text(),
        "count": Number(1, MOST_GPUS, whole=True),
        "nodes": Items(Text(63), 10_000, 1),
        "mode": Choice(MODES),
        "usd_per_hour": Number(0, 1e5, above=True, hint=" USD"),
    },
    required=("device", "count"),
)
_MODEL = Table(
    {
        "name": Text(63),
        "model": Text(),
        "kind": Choice(("graph", "llm")),
        "batch": _SIZE,
        "dims": Named(_SIZE, 100),
        "precision": Text(30),
        "runtime": Text(30),
        "layout": Text(10),
        "cuda_graph": Flag(),
        "input_length": _SIZE,
        "output_length": _SIZE,
        "concurrency": _SIZE,
        "latency_ms": Number(0, 1e9, above=True, hint=" ms"),
        "ttft_ms": Number(0, 1e9, above=True, hint=" ms"),
        "tpot_ms": Number(0, 1e9, above=True, hint=" ms"),
        "rate": Number(0, 1e12, above=True, hint=" a second"),
        "copies": Number(1, 100_000, whole=True),
        "mps": Number(1, MOST_PROCESSES, whole=True),
        "media": Flag(),
        "devices": OneOrMore(Text(), 100),
        "image": Text(),
    },
    required=("name", "model"),
)
_INSTANCE = Table(
    {
        "profile": Text(40),
        "start": Number(0, 64, whole=True),
        "model": Text(63),
        "processes": Number(1, MOST_PROCESSES, whole=True),
    },
    required=("profile",),
)
_FILE = Table(
    {
        "schema": Exactly(SCHEMA),
        "objective": Choice(OBJECTIVES),
        "confidence": _SHARE,
        "memory_confidence": _SHARE,
        "utilisation": Number(0, 1, above=True),
        "gpu": Items(_GPU, 1000, 1, " ([[gpu]] blocks)"),
        "model": Items(_MODEL, MOST_MODELS, 1, " ([[model]] blocks)"),
        "today": Items(
            Table({"gpu": Text(200), "instances": Items(_INSTANCE, 16)}, required=("gpu", "instances")),
            MOST_GPUS,
            0,
            " ([[today]] blocks)",
        ),
    },
    required=("gpu", "model"),
    hint=" ([[gpu]] and [[model]] blocks); see docs/reference/fleet-format.md",
)
_LOAD_KEYS = ("input_length", "output_length", "concurrency")
_LLM_KEYS = (*_LOAD_KEYS, "ttft_ms", "tpot_ms")
_GRAPH_KEYS = ("batch", "dims", "layout", "cuda_graph", "latency_ms", "mps", "media")


@dataclass(frozen=True)
class Pool:
    """GPUs of one type that may be used: ``count`` on each of ``nodes`` (one without a name if there are none)."""

    device: Device
    count: int
    nodes: tuple[str, ...] = ()
    mode: str = "any"
    usd_per_hour: float | None = None

    @property
    def total(self) -> int:
        """GPUs on all nodes."""
        return self.count * max(1, len(self.nodes))

    def gpus(self) -> tuple[tuple[str, str, int], ...]:
        """Name, node and index on its node of every GPU: "node-1/0", or "a30/0" where nodes have no names."""
        nodes = self.nodes or ("",)
        return tuple((f"{node or self.device.id}/{i}", node, i) for node in nodes for i in range(self.count))


@dataclass(frozen=True)
class Model:
    """One model: what runs, its targets (None: none), and how many samples or requests a second all copies serve.
    ``copies``: processes that there must be at least; ``mps``: how many of them may share an instance. ``content``: of
    an ONNX file, in place of what ``model`` names.
    """

    name: str
    model: str
    kind: str = "graph"
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    latency_ms: float | None = None
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    rate: float = 0.0
    copies: int = 1
    mps: int = 1
    media: bool = False
    devices: tuple[str, ...] = ()
    image: str | None = None
    content: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Standing:
    """An instance that stands today: profile (or "whole"), first memory slice, and what runs in it ("" for nothing)."""

    profile: str
    start: int
    model: str = ""
    processes: int = 1


@dataclass(frozen=True)
class Fleet:
    """GPUs, models and today's layout. Raises ArgumentError where they contradict each other.

    ``confidence``: the least probability that a target is met, ``memory_confidence`` that a model fits,
    ``utilisation``: how much of what an instance serves may be asked of it.
    """

    pools: tuple[Pool, ...]
    models: tuple[Model, ...]
    objective: str = "gpus"
    confidence: float = 0.9
    memory_confidence: float = 0.98
    utilisation: float = 0.8
    today: Mapping[str, tuple[Standing, ...]] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        names = [m.name for m in self.models]
        _once("models", names)
        _once("GPUs", [name for pool in self.pools for name, _, _ in pool.gpus()])
        if self.objective not in OBJECTIVES:
            raise ArgumentError(unknown("objective", self.objective, OBJECTIVES))
        for name, share in (("confidence", self.confidence), ("memory_confidence", self.memory_confidence)):
            if not 0.5 <= share < 1:
                raise ArgumentError(f"{name} {share!r}; it is a probability from 0.5 to below 1")
        if not 0 < self.utilisation <= 1:
            raise ArgumentError(f"utilisation {self.utilisation!r}; it is a share above 0, up to 1")
        for model in self.models:
            if not _NAME.fullmatch(model.name):
                raise ArgumentError(
                    f"model name {shown_value(model.name)}; it is 1 to 63 letters, digits, '.', '_' and '-', with a "
                    "letter or digit at both ends (names of pods and files are made of it)"
                )
            if missing := set(model.devices) - {p.device.id for p in self.pools}:
                raise ArgumentError(f"{model.name}: devices names {min(missing)}, of which the fleet has no GPU")
        self._check_today()

    def _check_today(self) -> None:
        pools = {name: pool for pool in self.pools for name, _, _ in pool.gpus()}
        for name, standing in self.today.items():
            if name not in pools:
                raise ArgumentError(f"today: {unknown('GPU', name, list(pools)[:20])}")
            geometry = pools[name].device.mig
            whole = [s for s in standing if s.profile == WHOLE]
            if whole and len(standing) > 1:
                raise ArgumentError(f"today, {name}: the whole GPU and instances beside it; MIG is on or off")
            if whole:
                continue
            if geometry is None:
                raise ArgumentError(f"today, {name}: {pools[name].device.name} has no MIG; its profile is {WHOLE!r}")
            try:
                fault = geometry.fault([(s.profile, s.start) for s in standing])
            except DeviceError as error:
                raise ArgumentError(f"today, {name}: {error}") from error
            if fault:
                raise ArgumentError(f"today, {name}: these instances cannot stand together: {fault}")


def _once(what: str, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ArgumentError(f"two {what} are named {shown_value(name)}; name each once")
        seen.add(name)


def read_fleet(path: str | os.PathLike[str]) -> Fleet:
    """The fleet of a TOML file; models that are files are found beside it.

    Raises FileError, LimitError (over 1 MiB), FormatError that names the place, and ArgumentError for what contradicts
    itself.
    """
    file = Path(path)
    return fleet_of(read_toml(file, "a fleet"), str(file), file.parent)


def fleet_of(document: Mapping[str, Any], where: str = "the fleet", folder: Path | None = None) -> Fleet:
    """The fleet of a mapping as the TOML file has it. Raises FormatError and ArgumentError."""
    content = _FILE.take(document, where)
    pools = tuple(_pool(row, f"{where}, gpu {i}") for i, row in enumerate(content["gpu"], 1))
    models = tuple(_model(row, f"{where}, model {row['name']}", folder) for row in content["model"])
    rest = {k: content[k] for k in ("objective", "confidence", "memory_confidence", "utilisation") if k in content}
    _once("GPUs of today's layout", [row["gpu"] for row in content.get("today", ())])
    today = {row["gpu"]: tuple(_standing(one) for one in row["instances"]) for row in content.get("today", ())}
    return Fleet(pools, models, today=today, **rest)


def _standing(one: Mapping[str, Any]) -> Standing:
    return Standing(one["profile"], one.get("start", 0), one.get("model", ""), one.get("processes", 1))


def _pool(row: Mapping[str, Any], where: str) -> Pool:
    try:
        target = find_device(row["device"])
    except DeviceError as error:
        raise DeviceError(f"{where}: {error}") from error
    if target.kind != "gpu" or target.parent is not None:
        raise FormatError(f"{where}: {target.name} is no whole GPU; name the board, pack chooses its slices")
    mode = row.get("mode", "any")
    if mode == "mig" and target.mig is None:
        raise FormatError(f"{where}: mode 'mig', but {target.name} has no MIG; use mode 'whole' or leave it out")
    return Pool(target, row["count"], tuple(row.get("nodes", ())), mode, row.get("usd_per_hour"))


def _kind(row: Mapping[str, Any]) -> str:
    """What a model is taken for that does not say: a language model is served unless keys of a graph are given."""
    from perfpass.deploy.sweep import served_model
    from perfpass.llm.serving import RUNTIMES

    if any(key in row for key in _LLM_KEYS):
        return "llm"
    if any(key in row for key in _GRAPH_KEYS) or row.get("runtime", RUNTIMES[0]) not in RUNTIMES:
        return "graph"
    try:
        return "graph" if served_model(row["model"], ()) is None else "llm"
    except PerfPassError:  # it is said where the model is read, with its name
        return "graph"


def _model(row: Mapping[str, Any], where: str, folder: Path | None) -> Model:
    kind = row.get("kind") or _kind(row)
    foreign = [k for k in (_GRAPH_KEYS if kind == "llm" else _LLM_KEYS) if k in row]
    if foreign:
        of = "a language model that is served" if kind == "llm" else "a graph"
        raise FormatError(f"{where}: {foreign[0]} is no key of {of} (kind = {kind!r})")
    source = row["model"]
    if folder is not None and (folder / source).exists():
        source = str(folder / source)
    names = ("precision", "runtime", "layout", "cuda_graph", "batch", "dims", *_LOAD_KEYS)
    asked = row.get("devices", ())
    try:
        devices = tuple(find_device(d).id for d in ([asked] if isinstance(asked, str) else asked))
    except DeviceError as error:
        raise DeviceError(f"{where}: {error}") from error
    rest = ("latency_ms", "ttft_ms", "tpot_ms", "rate", "copies", "mps", "media", "image")
    return Model(
        name=row["name"],
        model=source,
        kind=kind,
        options={k: row[k] for k in names if k in row},
        devices=devices,
        **{k: row[k] for k in rest if k in row},
    )
