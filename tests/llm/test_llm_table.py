"""The feature table of a language model: what the configuration and the board say, missing where no source says it."""

from __future__ import annotations

import numpy as np
import pytest

from perfpass.devices import device
from perfpass.errors import ArgumentError
from perfpass.llm import table as llm_table
from perfpass.llm.configuration import language_model


def row(model="llama-2-7b", on="a100", **changed):
    run = {"batch": 8, "input_tokens": 512, "output_tokens": 128, **changed}
    values = llm_table.row(language_model(model), device(on), **run)
    return dict(zip(llm_table.COLUMNS, values, strict=True))


def test_the_table_counts_what_the_configuration_says():
    one, two = row(), row(batch=16)
    assert one["total_parameters"] == 6_738_415_616
    assert two["total_macs"] == 2 * one["total_macs"]
    # A token meets every matrix once: parameters without the input embedding, and attention beside them.
    tokens = 8 * 512
    body = one["total_parameters"] - 2 * 32000 * 4096
    assert 1.0 < one["total_macs"] / (tokens * body) < 1.05
    cache = 2 * 32 * 32 * 128 * 2 * (512 + 128) * 8
    assert one["total_memory_bytes"] == 2 * one["total_parameters"] + cache
    assert row(precision="fp8")["quantization_bits"] == 8


def test_hardware_columns_are_missing_where_no_source_states_them():
    nvidia, amd, intel = row(), row(on="mi300x"), row(on="max-1550")
    assert (nvidia["compute_capability_major"], nvidia["warp_size"], nvidia["registers_per_block"]) == (8, 32, 65536)
    assert np.isnan(amd["compute_capability_major"]) and amd["warp_size"] == 64
    assert np.isnan(intel["warp_size"]) and np.isnan(intel["max_threads_per_multiprocessor"])
    assert all(np.isnan(nvidia[name]) for name in llm_table.TRACED)


def test_an_unknown_group_or_precision_is_refused_with_what_is_allowed():
    with pytest.raises(ArgumentError, match="macs, size, shape, workload, hardware"):
        llm_table.columns_of(["weather"])
    with pytest.raises(ArgumentError, match="allowed are"):
        row(precision="int3")
