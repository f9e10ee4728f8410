"""What the readers of language-model training share: records of kind ``llm_training``, named and grouped alike."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np

from perfpass.records import networks, schema

if TYPE_CHECKING:
    import pandas

    from perfpass.records.schema import Reading

KIND = "llm_training"
# What makes two rows a measurement of the same thing, whatever the release or the page.
LAYOUT = (
    *("device", "n_devices", "model", "task", "precision", "batch", "micro_batch", "sequence"),
    *("tensor", "pipeline", "virtual", "context", "expert", "expert_tensor", "sharding", "sharding_group"),
    *("recompute", "optimizer", "attention", "quantization", "variant"),
)
NETWORKS = {
    "gpt oss 120b": "gpt-oss-120b",
    "qwen3_30b_a3b": "qwen3-30b-a3b",
    "qwen3_235b_a22b": "qwen3-235b-a22b",
    "nemotron_3_nano": "nemotron-3-nano-30b-a3b",
    "nemotron_3_super": "nemotron-3-super-120b-a12b",
    "deepseekv3": "deepseek-v3",
    "deepseek-v3": "deepseek-v3",
    "kimi_k2": "kimi-k2",
    "llama2-7b": "llama-2-7b",
    "llama2-13b": "llama-2-13b",
    "llama2-70b": "llama-2-70b",
    "llama3-8b": "llama-3.1-8b",
    "llama3-70b": "llama-3.1-70b",
    "llama3_8b": "llama-3.1-8b",
    "llama3_70b": "llama-3.1-70b",
    "llama3-405b": "llama-3.1-405b",
    "llama3.1_405b": "llama-3.1-405b",
    "llama3.1-405b": "llama-3.1-405b",
    "llama3.1-70b": "llama-3.1-70b",
    "llama3.1-8b": "llama-3.1-8b",
    "mixtral-8x7b": "mixtral-8x7b",
    "mixtral-8x22b": "mixtral-8x22b",
    "mistral-7b": "mistral-7b",
    "gpt-oss-120b": "gpt-oss-120b",
    "qwen3-235b-a22b": "qwen3-235b-a22b",
}


def add(reading: Reading, rows: pandas.DataFrame) -> None:
    """Keep ``rows`` of kind ``llm_training``; ``device`` holds the source's names, whole numbers may be absent (NaN).

    A layout that is not stated stays unknown. ``data`` follows from the devices where the layout is whole. Rows equal
    to another but for their place in the source are refused.
    """
    given = rows.columns
    rows = networks.with_devices_read(rows)
    texts = {column.name for column in schema.WORKLOADS[KIND] if column.type == "text"}
    defaults = {"mode": "training", "precision_from": "stated", "n_devices_from": "stated", "task": "pretrain"}
    rows = rows.assign(**{name: value for name, value in defaults.items() if name not in given})
    rows = rows.assign(**{name: "" if name in texts else -1 for name in LAYOUT if name not in rows.columns})
    if "network" not in given:
        rows["network"] = rows.model.str.lower().str.replace(r" \(.*", "", regex=True).map(NETWORKS).fillna("")
    whole = (rows[["n_devices", "tensor", "pipeline"]].fillna(-1) > 0).all(axis=1)
    split = rows.tensor * rows.pipeline * rows.context.fillna(1).clip(lower=1)
    if "data" not in given:
        rows["data"] = np.where(whole & (rows.n_devices % split == 0), rows.n_devices / split, -1)
    place = [name for name in rows.columns if name != "run"]
    rows = reading.keep(rows, ~rows.duplicated(place), "repeats another row but for its place")
    keys = rows[list(LAYOUT)].itertuples(index=False, name=None)
    rows = rows.assign(configuration=[f"{reading.source}-{_digest(key)}" for key in keys])
    reading.add(KIND, rows)


def _digest(key: tuple[object, ...]) -> str:
    known = ("" if part is None or part != part or part == -1 else str(part) for part in key)
    return sha256("|".join(known).encode()).hexdigest()[:12]
