"""hemingkx/Spec-Bench: speed-ups of speculative decoding over plain decoding, one request at a time."""

from __future__ import annotations

from pathlib import Path

from perfpass.records.schema import Reading
from perfpass.records.sources import table_of

# Vicuna 1.3 is LLaMA of 2023, whose sizes of 7 and 13 B have the layers of Llama 2's.
NETWORKS = {"Vicuna-7B-v1.3": "llama-2-7b", "Vicuna-13B-v1.3": "llama-2-13b"}
# The page breaks the word in its header.
_TASKS = {"Summa-rization": "Summarization", "Retrieval-aug. Generation": "Retrieval-augmented Generation"}
_OVERALL = "Overall"


def read(shared: Path) -> Reading:
    """Records of kind ``speculation``: a method on a task, or ``Overall``."""
    reading = Reading("spec_bench")
    table = table_of(shared, "spec_bench", "leaderboard.csv")
    rows = table[["device", "device_as_reported", "model", "method", "precision", "speedup"]].assign(
        licence="Apache-2.0",
        run=table.source_file + "@" + table.source_commit + ":" + table.source_line.astype(str) + ":" + table.task,
        n_devices=table.n_gpus,
        network=table.model.map(NETWORKS),
        runtime="torch",
        runtime_version=table.framework.str.split(" ").str[1],
        mode="decode",
        batch=table.batch_size,
        timing="greedy decoding of 480 questions, over the same without speculation; mean of 3 runs",
        task=table.task.replace(_TASKS),
        tokens_per_step=table.mean_accepted_tokens_over_all_tasks,
        caveats="tokens_over_all_tasks",
    )
    rows["caveats"] = rows.caveats.where(rows.task != _OVERALL, "")
    reading.add("speculation", rows)
    return reading
