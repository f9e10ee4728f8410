"""Records of prefill and decode, alone and under load, as rows of the predictors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfpass.devices import device
from perfpass.errors import PerfPassError
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.configuration import language_model
from perfpass.predictors.generation import phase_features as features
from perfpass.predictors.learned.components import Form, Rows
from perfpass.records import schema
from perfpass.records.location import data_directory
from perfpass.training.components.grade import Quantity, configurations

if TYPE_CHECKING:
    import pandas

# The source's name of a run on a board with its power capped: another device to all that is learned here.
_CAPPED = "power_capped"


@dataclass(frozen=True)
class Phases:
    """A quantity (seconds) and the phases that it was measured on, N each."""

    quantity: Quantity
    phases: list[features.Phase]


def load(folder: str | None = None) -> dict[str, Phases]:
    """Every quantity, by name. Raises FileError, FormatError.

    Encoder-decoders (T5, UL2, mT0) have no configuration that is read, and are left out.
    """
    root = (Path(folder) if folder else data_directory()) / "records"
    alone = schema.read(root / "generation.parquet", "generation")
    alone = alone[alone.run.isin(["perf_model", "ttft_itl"]) & ~alone.caveats.str.contains(_CAPPED)]
    loaded = schema.read(root / "serving_load.parquet", "serving")
    return {found.quantity.name: found for found in (*_alone(alone), *_loaded(loaded))}


def _readable(table: pandas.DataFrame) -> tuple[pandas.DataFrame, dict[str, LanguageModel]]:
    models: dict[str, LanguageModel] = {}
    for name in table.model.unique():
        try:
            found = language_model(name)
        except PerfPassError:
            continue
        if not found.is_encoder_decoder:
            models[name] = found
    return table[table.model.isin(list(models))].reset_index(drop=True), models


def _alone(table: pandas.DataFrame) -> list[Phases]:
    table, models = _readable(table)
    phases = [
        features.Phase(
            models[r.model],
            device(r.device),
            int(r.n_devices),
            r.runtime,
            int(r.batch),
            int(r.input_tokens),
            max(int(r.output_tokens), 1),
        )
        for r in table.itertuples()
    ]
    decode = table.tpot_ms.notna().to_numpy()
    steps = [p for p, has in zip(phases, decode, strict=True) if has]
    return [
        Phases(_quantity("prefill", features.PROMPT, features.prefill_rows(phases), table.ttft_ms, table), phases),
        Phases(
            _quantity("decode", features.ALONE, features.decode_rows(steps), table.tpot_ms[decode], table[decode]),
            steps,
        ),
    ]


def _loaded(table: pandas.DataFrame) -> list[Phases]:
    table, models = _readable(table)
    phases = [
        features.Phase(
            models[r.model], device(r.device), int(r.n_devices), r.runtime, int(r.concurrency),
            max(int(r.input_tokens), 1), max(int(r.output_tokens), 1),
        )
        for r in table.itertuples()
    ]  # fmt: skip
    first, between = features.loaded_rows(phases, first=True), features.loaded_rows(phases, first=False)
    return [
        Phases(_quantity("loaded_first_token", features.LOADED, first, table.ttft_ms, table), phases),
        Phases(_quantity("loaded_between_tokens", features.LOADED, between, table.tpot_ms, table), phases),
    ]


def _quantity(name: str, form: Form, rows: Rows, milliseconds: pandas.Series, table: pandas.DataFrame) -> Quantity:
    keys = ["device", "runtime", "model", "n_devices", "batch", "input_tokens", "output_tokens"]
    keys += ["concurrency"] if "concurrency" in table.columns else []
    return Quantity(
        name=name,
        unit="s",
        form=form,
        rows=rows,
        measured=milliseconds.to_numpy() / 1e3,
        configuration=configurations(table[keys]),
        model=np.asarray(table.model, dtype=object),
        device=table.device.to_numpy(),
        others={"source": table.source.to_numpy()},
    )
