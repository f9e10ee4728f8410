"""The metadata that carries predictions: in ONNX files (`annotated_file`) and in sessions of ONNX Runtime.

Keys and values are texts, as ``metadata_props`` of an ONNX ModelProto and ``custom_metadata_map`` of ONNX Runtime are.
``perfpass.predictions`` is JSON and the one key that programs read:

    {"schema_version": 1, "predictions": {DEVICE: Prediction.to_dict()}, "model_bytes": {DEVICE: N}}

``model_bytes`` is the size that the model file had, without our metadata, when the prediction was made; a device is
missing there if the prediction was not made from a file. The other keys say the same for people (Netron shows them):
each holds one figure per device, as "3.98 (1.55 to 10.3) on a100-sxm4-80gb", devices separated by "; ".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from perfpass.decision import Decision
from perfpass.declared import Anything, Exactly, Named, Number, Table, Text
from perfpass.errors import FormatError
from perfpass.json_text import parse
from perfpass.text import shown_value

if TYPE_CHECKING:
    from perfpass.prediction import Prediction

SCHEMA_VERSION = 1
PREDICTIONS_KEY = "perfpass.predictions"
READABLE_KEYS = (
    "perfpass.latency_ms",
    "perfpass.peak_memory_mib",
    "perfpass.energy_j",
    "perfpass.workload",
    "perfpass.support",
    "perfpass.decision",
)
KEYS = (*READABLE_KEYS, PREDICTIONS_KEY)
# What is shown of a prediction, in the types that `Prediction.to_dict` gives; the rest is passed on as it is.
_UNITS = {"latency_ms": "ms", "peak_memory_bytes": "byte", "energy_j": "J"}
_INTERVALS = {
    name: Table(
        {**dict.fromkeys(("median", "low", "high"), Number(0)), "unit": Exactly(unit)},
        ("median", "low", "high"),
        others=Anything(),
    )
    for name, unit in _UNITS.items()
}
_WORKLOAD = Table(
    {
        "batch": Number(1, 2**48, whole=True),
        **dict.fromkeys(("device", "precision", "mode", "runtime", "layout"), Text()),
    },
    ("device", "batch", "precision", "mode", "runtime", "layout"),
    others=Anything(),
)
_PREDICTION = Table(
    {
        **_INTERVALS,
        "workload": _WORKLOAD,
        "support": Table({"level": Text()}, ("level",), others=Anything()),
    },
    (*_UNITS, "workload", "support"),
    others=Anything(),
)
_EVERYTHING = Table(
    {
        "schema_version": Exactly(SCHEMA_VERSION),
        "predictions": Named(_PREDICTION, 1000),
        "model_bytes": Named(Number(0, 2**62, whole=True), 1000),
    },
    ("predictions",),
)


@dataclass(frozen=True)
class Annotation:
    """Predictions by device id, as `Prediction.to_dict()` gives them, and the size of the file each was made from."""

    predictions: dict[str, dict[str, Any]] = field(default_factory=dict)
    model_bytes: dict[str, int] = field(default_factory=dict)

    def with_prediction(self, prediction: Prediction, model_bytes: int | None = None) -> Annotation:
        """The same and one prediction more, in the place of an earlier one for the same device."""
        found = prediction.to_dict()
        device = str(found["workload"]["device"])
        sizes = {name: size for name, size in self.model_bytes.items() if name != device}
        if model_bytes is not None:
            sizes[device] = model_bytes
        return Annotation({**self.predictions, device: found}, sizes)

    @property
    def decisions(self) -> dict[str, Decision]:
        """By device, of those predictions that have one."""
        return {
            name: Decision.from_dict(found["decision"])
            for name, found in self.predictions.items()
            if "decision" in found
        }

    def to_metadata(self) -> dict[str, str]:
        """The keys and values to store; none without a prediction."""
        if not self.predictions:
            return {}
        everything = {
            "schema_version": SCHEMA_VERSION,
            "predictions": self.predictions,
            "model_bytes": self.model_bytes,
        }
        readable = {
            key: "; ".join(text for p in self.predictions.values() if (text := _readable(key, p)))
            for key in READABLE_KEYS
        }
        return {
            **{key: text for key, text in readable.items() if text},
            PREDICTIONS_KEY: json.dumps(everything, separators=(",", ":"), allow_nan=False),
        }


def from_metadata(metadata: Mapping[str, str]) -> Annotation:
    """What `Annotation.to_metadata` stored among other keys; an empty annotation where there is none.

    Raises FormatError where the value is damaged or of a schema that this version does not read.
    """
    text = metadata.get(PREDICTIONS_KEY)
    if text is None:
        return Annotation()
    everything = parse(text, f"the metadata {PREDICTIONS_KEY}", way_out="annotate the model again")
    version = everything.get("schema_version") if isinstance(everything, dict) else None
    if version != SCHEMA_VERSION:
        raise FormatError(
            f"the metadata {PREDICTIONS_KEY} has schema version {version!r}; this perfpass reads {SCHEMA_VERSION}. "
            "Annotate the model again, or use the perfpass that wrote it"
        )
    try:
        _EVERYTHING.take(everything, f"the metadata {PREDICTIONS_KEY}")
        for name, prediction in everything["predictions"].items():
            where = f"the metadata {PREDICTIONS_KEY}, {shown_value(name)}"
            _check_order(prediction, where)
            if "decision" in prediction:
                Decision.from_dict(prediction["decision"], f"{where}, decision")
            if prediction["workload"]["device"] != name:
                raise FormatError(f"{where}: is a prediction for {shown_value(prediction['workload']['device'])}")
    except FormatError as error:
        raise FormatError(f"{error}; annotate the model again") from error
    return Annotation(everything["predictions"], everything.get("model_bytes", {}))


def _check_order(prediction: Mapping[str, Any], where: str) -> None:
    for key in _UNITS:
        low, median, high = (prediction[key][name] for name in ("low", "median", "high"))
        if not low <= median <= high:
            raise FormatError(f"{where}: {key} has the median {median:g} in an interval from {low:g} to {high:g}")


def _readable(key: str, prediction: Mapping[str, Any]) -> str:
    workload = prediction["workload"]
    device = str(workload["device"])
    if key == "perfpass.workload":
        parts = [f"batch {workload['batch']}", *(str(workload[k]) for k in ("precision", "mode", "runtime", "layout"))]
        return f"{', '.join(parts)} on {device}"
    if key == "perfpass.support":
        return f"{prediction['support']['level']} on {device}"
    if key == "perfpass.decision":
        return Decision.from_dict(prediction["decision"]).headline if "decision" in prediction else ""
    if key == "perfpass.peak_memory_mib":
        return _interval(prediction["peak_memory_bytes"], 2.0**20, device)
    return _interval(prediction[key.removeprefix("perfpass.")], 1.0, device)


def _interval(found: Mapping[str, Any], unit: float, device: str) -> str:
    from perfpass.text import digits

    median, low, high = (digits(float(found[k]) / unit) for k in ("median", "low", "high"))
    return f"{median} ({low} to {high}) on {device}"
