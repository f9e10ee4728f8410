"""bigscience-workshop/bigscience: the search for the layout of BLOOM-176B, second iterations on A100s (C6)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfpass.records import networks, training_layouts
from perfpass.records.schema import Reading
from perfpass.records.sources import table_of

if TYPE_CHECKING:
    import pandas

_VOCABULARY = 50_257  # GPT-2's, padded by the program
# The last section has BLOOM's own table, padded, whose ends count as a layer each of the pipeline's split (the page's
# --pp-partition-method 'type:transformer|embedding'; the model's README: "due to the huge 250k dictionary").
_BLOOM_VOCABULARY, _REBALANCED = 250_880, "Rebalancing layers"
# Three rows whose batch must be smaller than the page shows: the FLOPs of a step would be 2.6 and 4 times too many.
_MOST_OFF = 1.5


def read(shared: Path) -> Reading:
    """Records of kind ``llm_training``: time of the second iteration, memory of the fuller of two nodes in GB."""
    reading = Reading("bigscience")
    table = table_of(shared, "bigscience", "megatron_deepspeed_a100.csv")
    repeats = table.repeats_earlier_row.astype(str) == "True"
    table = reading.keep(table, ~repeats, "repeats another table")
    off = table.tflops_8PN_over_reported_derived > _MOST_OFF
    table = reading.keep(table, ~off, "the batch cannot be the one shown")
    laid_out = table.tp.notna() & table.pp.notna() & table.micro_batch_size.notna()
    table = reading.keep(table, laid_out, "no layout stated")
    divides = table.dp.isna() | (table.dp * table.tp * table.pp == table.n_gpus)
    table = reading.keep(table, divides, "the layout does not divide the devices")
    nothing = table.iteration_time_s.isna() & table.memory_gb_as_reported.isna()
    table = reading.keep(table, ~nothing, "FLOP/s alone").reset_index(drop=True)
    text = table.context.fillna("") + " " + table.heading.fillna("")
    layers = text.str.extract(r"NLAYERS=(\d+)")[0].astype(float)
    hidden = table.hidden_size.fillna(text.str.extract(r"NHIDDEN=(\d+)")[0].astype(float))
    # A model that the page names twice has one size, unless it states two.
    unsaid = layers.isna() | hidden.isna()
    layers, hidden = _by_name(layers, table.model), _by_name(hidden, table.model)
    stage = table.zero_stage.map({0.0: "none", 1.0: "zero1"})
    rows = table[["model", "device", "device_as_reported"]].assign(
        licence="Apache-2.0",
        run="bigscience-workshop/bigscience@"
        + table.source_commit.str[:12]
        + ":"
        + table.source_file
        + ":"
        + table.source_line.astype(str),
        device_from="inferred",
        n_devices=table.n_gpus,
        n_nodes=table.n_nodes,
        runtime="megatron-deepspeed",
        precision=np.where(table.heading.fillna("").str.endswith("bf16"), "bf16", "fp16"),
        precision_from=np.where(table.heading.fillna("").str.contains("> (?:fp|bf)16$"), "stated", "inferred"),
        batch=table.global_batch_size,
        micro_batch=table.micro_batch_size,
        sequence=table.sequence_length,
        timing="the second iteration of a run",
        layers=layers,
        hidden=hidden,
        heads=table.num_heads,
        vocabulary=np.where(table.heading.fillna("").str.contains(_REBALANCED), _BLOOM_VOCABULARY, _VOCABULARY),
        parameters=table.params_b * 1e9,
        tensor=table.tp,
        pipeline=table.pp,
        virtual=table.pp_chunks,
        context=1,
        sharding=stage.fillna("zero1"),
        recompute="full",
        optimizer="adam",
        attention="unfused",
        variant=table.framework + "; " + table.notes.fillna("") + "; " + table.heading.fillna(""),
        latency_ms=table.iteration_time_s * 1e3,
        peak_memory_bytes=table.memory_gb_as_reported * 1e9,
        memory_kind=np.where(table.memory_gb_as_reported.notna(), "in_use", ""),
        model_flop_s=table.tflops_per_gpu * 1e12,
        caveats="",
    )
    networks.caveat_where(rows, table.memory_gb_as_reported.notna(), "memory_in_whole_gb")
    networks.caveat_where(rows, stage.isna(), "sharding_inferred")
    networks.caveat_where(rows, unsaid & layers.notna() & hidden.notna(), "sizes_by_name")
    training_layouts.add(reading, rows)
    return reading


def _by_name(sizes: pandas.Series, names: pandas.Series) -> pandas.Series:
    found = sizes.groupby(names).agg(["nunique", "first"])
    return sizes.fillna(names.map(found["first"].where(found["nunique"] == 1)))
