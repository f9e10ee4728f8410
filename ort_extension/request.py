"""What a session was asked to predict: the keyword arguments of `InferenceSession`, checked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ort_extension.runs import check_drift
from ort_extension.verdict import Policy, check_policy
from perfpass.bounded_file import check_regular, exists
from perfpass.decision import Limits
from perfpass.declared import Number
from perfpass.devices import Device
from perfpass.devices import device as find_device
from perfpass.errors import ArgumentError, DeviceError, FileError
from perfpass.predictors.workload import check, check_batch
from perfpass.text import shown_value

READERS = ("auto", "file")
READER_VARIABLE = "PERFPASS_ORT_READER"
_LARGEST = Number(0, 2**62)  # bytes or ms; no budget comes near it


@dataclass(frozen=True)
class Request:
    """The arguments of a session; see `InferenceSession` for what they mean."""

    model: str | bytes | None
    device: Device | None
    batch: int | None
    dims: Mapping[str, int]
    precision: str | None
    memory_budget_bytes: int | None
    latency_target_ms: float | None
    energy_target_j: float | None
    confidence: float | None
    policy: Policy
    drift: bool | float
    records: Path | None
    reader: str

    @property
    def limits(self) -> Limits:
        """What the session is to keep; with the usual confidence where none is stated."""
        stated = {} if self.confidence is None else {"confidence": self.confidence}
        return Limits(self.latency_target_ms, self.memory_budget_bytes, self.energy_target_j, **stated)

    @property
    def by_confidence(self) -> bool:
        """Whether the policy goes by the probability that all is kept, and not by the bounds of the figures."""
        return self.confidence is not None or self.energy_target_j is not None

    @classmethod
    def of(
        cls,
        path_or_bytes: Any,
        *,
        device: str | Device | None,
        batch: int | None,
        dims: Mapping[str, int] | None,
        precision: str | None,
        memory_budget_bytes: int | None,
        latency_target_ms: float | None,
        energy_target_j: float | None,
        confidence: float | None,
        policy: Policy,
        drift: bool | float,
        records: str | os.PathLike[str] | None,
        reader: str,
    ) -> Request:
        """The checked request. Raises ArgumentError, DeviceError for an unknown device, FileError for ``records``."""
        model: str | bytes | None = None  # of another type: onnxruntime says what it takes
        if isinstance(path_or_bytes, (str, os.PathLike)):
            model = str(os.fspath(path_or_bytes))
            check_regular(model, "an ONNX model")  # onnxruntime would wait for a pipe's writer
        elif isinstance(path_or_bytes, bytes):
            model = path_or_bytes
        if not isinstance(dims, Mapping | type(None)):
            raise ArgumentError(f"dims {shown_value(dims)}; it maps names of dimensions to sizes")
        check_policy(policy)
        check_drift(drift)
        reader = os.environ.get(READER_VARIABLE, "auto") if reader == "auto" else reader
        if reader not in READERS:
            raise ArgumentError(f"reader {reader!r}; allowed are {', '.join(READERS)}")
        if records is not None and isinstance(model, bytes):
            raise ArgumentError("records name a model by its file; give the session a path instead of bytes")
        target = None if device is None else find_device(device)
        if precision is not None:
            how: dict[str, Any] = {"mode": "inference", "runtime": "onnxruntime", "layout": "nchw"}
            try:
                check(target or find_device("cpu"), batch=batch, precision=precision, **how)
            except DeviceError:  # of the CPU, which may not be what the session runs on
                if target is not None:
                    raise
        return cls(
            model=model,
            device=target,
            batch=None if batch is None else check_batch(batch),
            dims=dict(dims or {}),
            precision=precision,
            memory_budget_bytes=_positive("memory_budget_bytes", memory_budget_bytes),
            latency_target_ms=_positive("latency_target_ms", latency_target_ms),
            energy_target_j=_positive("energy_target_j", energy_target_j),
            confidence=Limits(confidence=confidence).confidence if confidence is not None else None,
            policy=policy,
            drift=drift,
            records=None if records is None else check_path(records),
            reader=reader,
        )


def _positive(name: str, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise ArgumentError(f"{name} {shown_value(value)}; it must be a finite number above 0")
    _LARGEST.check(value, "", name, ArgumentError)
    return value


def check_path(path: str | os.PathLike[str]) -> Path:
    """The absolute path of a records file. Raises FileError where its folder is missing or nothing can be written."""
    if not isinstance(path, (str, os.PathLike)):
        raise ArgumentError(f"records {shown_value(path)}; it is the path of a file")
    found = Path(path).absolute()
    there = exists(found)
    if "\0" in str(found) or not exists(found.parent) or not found.parent.is_dir():
        raise FileError(f"{found}: its folder does not exist; make it, or record elsewhere")
    if there and not found.is_file():
        raise FileError(f"{found}: is no regular file; record elsewhere")
    if not os.access(found if there else found.parent, os.W_OK):
        raise FileError(f"{found}: may not be written; record elsewhere")
    return found
