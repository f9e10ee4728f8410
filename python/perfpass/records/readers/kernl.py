"""ELS-RD/kernl: bert-base-uncased in fp16 on an RTX 3090 in nine runtimes."""

from __future__ import annotations

from pathlib import Path

from perfpass.records import networks
from perfpass.records.schema import Reading
from perfpass.records.sources import table_of

_RUNTIMES = {
    "Baseline": "torch",
    "Cuda graphs": "torch",
    "Nvfuser": "torch",
    "Inductor": "torch.compile",
    "AITemplate": "aitemplate",
    "DeepSpeed": "deepspeed",
    "ONNX Runtime": "onnxruntime",
    "TensorRT": "tensorrt",
    "Kernl": "kernl",
}
_COARSE = ("Inductor", "TensorRT", "AITemplate", "DeepSpeed")


def read(shared: Path) -> Reading:
    """Records of kind ``network``: wall time, the output stays on the GPU."""
    reading = Reading("kernl")
    table = table_of(shared, "kernl", "bert_base_rtx3090.csv")
    rows = table[["model", "architecture", "device", "device_as_reported", "precision"]].assign(
        licence="Apache-2.0",
        run=table.source_file + ":" + table.source_line.astype(str),
        network="bert-base",
        domain="language",
        task="encoder",
        runtime=table.runtime.map(_RUNTIMES),
        variant=table.runtime,
        precision_from="stated",
        batch=table.batch_size,
        sequence=table.sequence_length,
        timing="wall time, output kept on the device",
        percentile="reported",
        latency_ms=table.latency_ms,
        caveats="",
    )
    networks.caveat_where(rows, table.runtime.isin(_COARSE), "resolution_of_100_us")
    networks.add(reading, rows)
    return reading
