"""FMInference/FlexLLMGen: weights on the host or on disk, batches on a T4; and SGLang's pages, which say too little."""

from __future__ import annotations

from pathlib import Path

from perfpass.records import language_models, networks
from perfpass.records.schema import Reading
from perfpass.records.sources import table_of

_RUNTIMES = {
    "Hugging Face Accelerate": "accelerate",
    "DeepSpeed ZeRO-Inference": "deepspeed-zero",
    "Petals": "petals",
    "FlexLLMGen": "flexllmgen",
    "FlexLLMGen with Compression": "flexllmgen",
}


def read(shared: Path) -> Reading:
    """Records of kind ``generation``: output tokens per second of one batch, with weights off the device (C12)."""
    reading = Reading("serving_misc")
    table = table_of(shared, "serving_misc", "serving.csv")
    loaded = table["mode"] == "serve"
    table = reading.keep(table, ~(loaded & table.input_length.isna()), "served under load, lengths not stated")
    table = reading.keep(table, table["mode"] != "serve", "served at a rate, requests in flight not stated")
    table = table.reset_index(drop=True)
    rows = table[["model", "device", "device_as_reported", "precision"]].assign(
        licence="Apache-2.0",
        run=table.source_file + "@" + table.source_commit + ":" + table.source_line.astype(str) + ":" + table.model,
        network=table.model.map(lambda name: f"facebook/{name.lower()}"),
        n_devices=table.n_gpus,
        tensor_parallel=1,
        pipeline_parallel=1,
        runtime=table.engine.map(_RUNTIMES),
        variant="weights on " + table.offload_to.fillna("host or disk") + "; " + table.engine,
        precision_from="stated",
        batch=table.batch_size,
        timing="the whole batch, all tokens",
        software_year=2023,
        year_from="inferred",
        input_tokens=table.input_length,
        output_tokens=table.output_length,
        throughput_per_s=table.output_tokens_per_s,
        throughput_unit="output tokens",
        caveats="",
    )
    networks.caveat_where(rows, table.offload_to != "GPU", "weights_off_the_device")
    compressed = table.engine.str.contains("Compression")
    rows["precision"] = rows.precision.mask(compressed, "int4")
    rows["precision_from"] = rows.precision_from.mask(~compressed & (table.engine != "FlexLLMGen"), "inferred")
    petals = table.engine == "Petals"
    rows["n_devices"] = rows.n_devices.mask(petals, -1)
    networks.caveat_where(rows, petals, "several_devices_not_counted")
    networks.caveat_where(rows, table.output_tokens_per_s < 0.1, "two_digits_or_fewer")
    language_models.add(reading, rows)
    return reading
