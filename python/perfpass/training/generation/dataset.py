"""Records of offline generation as rows of the predictor."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.devices import device
from perfpass.llm.configuration import language_model
from perfpass.predictors.generation.features import FORM, Batch, rows_of
from perfpass.predictors.generation.predictor import QUANTITY
from perfpass.records import schema
from perfpass.records.location import data_directory
from perfpass.training.components.grade import Quantity, configurations

if TYPE_CHECKING:
    import pandas

# Of the two stacks on the Intel Max 1550 the one listed by its product name is what a user means by default.
_DEFAULT_STACK = "listed as Intel Max 1550"


@dataclass(frozen=True)
class Dataset:
    """The records, the batches they measured, and the quantity to learn (seconds)."""

    table: pandas.DataFrame
    batches: list[Batch]
    quantity: Quantity


def load(folder: str | None = None) -> Dataset:
    """The records of ``folder`` (default: the repository's data). Raises FileError, FormatError."""
    root = Path(folder) if folder else data_directory()
    table = schema.read(root / "records" / "generation.parquet", "generation")
    table = table[(table.source == "argonne") & (table.run == "all_results")].reset_index(drop=True)
    models = {name: language_model(name) for name in table.model.unique()}
    devices = {name: device(name) for name in table.device.unique()}
    batches = [
        Batch(
            models[r.model],
            devices[r.device],
            r.runtime,
            int(r.n_devices),
            int(r.batch),
            int(r.input_tokens),
            int(r.output_tokens),
            r.precision,
            "" if r.runtime_version == _DEFAULT_STACK else r.runtime_version,
        )
        for r in table.itertuples()
    ]
    rows = rows_of(batches)
    architecture = np.array([repr(tuple(np.round(t, 5))) for t in rows.traits], dtype=object)
    named: dict[str, str] = {}
    for key, name in zip(architecture, table.model, strict=True):
        named.setdefault(key, name)
    fields = ("device", "runtime", "runtime_version", "model", "n_devices", "batch", "input_tokens", "output_tokens")
    quantity = Quantity(
        name=QUANTITY,
        unit="s",
        form=FORM,
        rows=rows,
        measured=table.latency_ms.to_numpy() / 1e3,
        configuration=configurations(table[list(fields)]),
        model=np.array([named[key] for key in architecture], dtype=object),
        device=table.device.to_numpy(),
        others={"runtime": table.runtime.to_numpy()},
    )
    return Dataset(table, batches, quantity)


def corpus(data: Dataset) -> dict[str, Any]:
    """What stands behind the artefact."""
    table = data.table
    return {
        "name": "LLM-Inference-Bench (Argonne), BSD-3-Clause",
        "rows": len(table),
        "models": sorted(set(table.model)),
        "devices": sorted(set(table.device)),
        "runtimes": sorted(set(table.runtime)),
    }
