"""bytedance/ByteTransformer: BERT-base on an A100 in six runtimes, sequences of 0.6 of the padded length."""

from __future__ import annotations

from pathlib import Path

from perfpass.records import networks
from perfpass.records.schema import Reading
from perfpass.records.sources import table_of

_RUNTIMES = {
    "PyTorch": "torch",
    "Tensorflow": "tensorflow",
    "FasterTransformer": "faster_transformer",
    "FasterTransformer with remove padding": "faster_transformer",
    "DeepSpeed": "deepspeed",
    "ByteTransformer": "bytetransformer",
}
_WITHOUT_PADDING = ("ByteTransformer", "FasterTransformer with remove padding")


def read(shared: Path) -> Reading:
    """Records of kind ``network``. Layers and precision are those of the benchmark's script, not of its page."""
    reading = Reading("bytetransformer")
    table = table_of(shared, "bytetransformer", "bert.csv")
    precision, precision_from = networks.precisions(table.precision)
    rows = table[["model", "architecture", "device", "device_as_reported"]].assign(
        licence="Apache-2.0",
        run=table.source_file + ":" + table.source_line.astype(str),
        network="bert-base",
        domain="language",
        task="encoder",
        runtime=table.runtime.map(_RUNTIMES),
        variant=table.runtime,
        precision=precision,
        precision_from=precision_from,
        batch=table.batch_size,
        sequence=table.max_sequence_length,
        mean_sequence=table.average_sequence_length,
        padding_removed=table.runtime.isin(_WITHOUT_PADDING),
        timing="not stated",
        percentile="reported",
        latency_ms=table.latency_ms,
        caveats="layers_from_the_script",
    )
    networks.add(reading, rows)
    return reading
