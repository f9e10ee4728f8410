"""bytedance/lightseq: translation, decoding and BERT-base on a T4 (fp16) and a P4 (fp32)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfpass.records import networks
from perfpass.records.schema import Reading
from perfpass.records.sources import table_of

if TYPE_CHECKING:
    import pandas

_NETWORKS = {
    "Machine Translation": ("transformer-big", "translation"),
    "BERT": ("bert-base", "encoder"),
    "Transformer-base decoding (Beam search)": ("transformer-base", "decoding"),
    "Transformer-base decoding (Sampling)": ("transformer-base", "decoding"),
}
_RUNTIMES = {
    "lightseq": "lightseq",
    "tf": "tensorflow",
    "TF": "tensorflow",
    "FT": "faster_transformer",
    "Hugging Face": "torch",
    "PyTorch": "torch",
}
_BEAMS_OF_TRANSLATION = 4


def read(shared: Path) -> Reading:
    """Records of kind ``network``. fp32 ran on the P4 and fp16 on the T4: a speed-up between them mixes boards (S3)."""
    reading = Reading("lightseq")
    table = table_of(shared, "lightseq", "performance.csv")
    # What is said of precision is said of the engine. BERT in PyTorch beside it takes on the T4 what fp32 takes in
    # FasterTransformer's tables (0.26 s for 32 sentences of 128 tokens; 0.20), four times what halves take there.
    beside = table.runtime.isin(("Hugging Face", "PyTorch")) & (table.precision == "fp16")
    stated = table.precision.where(~beside)
    precision, precision_from = networks.precisions(stated)
    translation = table.model == "Machine Translation"
    rows = table[["model", "device", "device_as_reported"]].assign(
        licence="Apache-2.0",
        run=table.source_file + ":" + table.source_line.astype(str) + ":" + table.column,
        network=table.model.map(lambda m: _NETWORKS[m][0]),
        domain="language",
        task=table.model.map(lambda m: _NETWORKS[m][1]),
        runtime=table.runtime.map(_RUNTIMES),
        variant=table.sampling.map(lambda s: f"sampling {s:g}", na_action="ignore").fillna(""),
        precision=precision,
        precision_from=precision_from,
        batch=table.batch_size,
        beams=table.beam_size.where(~translation, _BEAMS_OF_TRANSLATION),
        sequence=table.sequence_length,
        timing="not stated",
        percentile="reported",
        latency_ms=table.latency_ms,
        caveats="",
    )
    networks.caveat_where(rows, np.asarray(table.model != "BERT"), "output_length_not_stated")
    networks.caveat_where(rows, _below_smaller_batch(table), "latency_below_a_smaller_batch")
    networks.add(reading, rows)
    return reading


def _below_smaller_batch(table: pandas.DataFrame) -> pandas.Series:
    ordered = table.sort_values("batch_size")
    keys = ["model", "context", "device", "column", "sequence_length", "sampling", "beam_size"]
    largest = ordered.groupby(keys, dropna=False).latency_ms.cummax()
    return (ordered.latency_ms < largest).reindex(table.index)
