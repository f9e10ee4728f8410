"""sashavor/co2_inference: time and energy of a query in transformers' and diffusers' pipelines on an A100."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from perfpass.records import networks
from perfpass.records.schema import Reading
from perfpass.records.sources import table_of

# Name of a task's first word, and what it is.
_TASKS = {
    "tti": ("image generation", "text to image"),
    "fillmask": ("language", "fill mask"),
    "itt": ("multimodal", "image to text"),
    "qa": ("language", "question answering"),
    "summarize": ("language", "summarization"),
    "text": ("language", "text classification"),
    "token": ("language", "token classification"),
    "textgen": ("language", "text generation"),
    "zeroshot": ("language", "text generation"),
    "image": ("vision", "image classification"),
    "obj": ("vision", "detection"),
}
_GENERATES = ("text generation", "summarization", "image to text")
# Seven boards of eight idle, W: README of the source's table; the board itself has the eighth.
_OTHERS_IDLE_W = 398.0
_QUERIES = 1000
NETWORKS = {
    "bert-large-uncased-whole-word-masking-finetuned-squad": "bert-large",
    "deepset/bert-large-uncased-whole-word-masking-squad2": "bert-large",
    "dslim/bert-large-NER": "bert-large",
    "dslim/bert-base-NER": "bert-base",
    "distilbert-base-uncased-distilled-squad": "distilbert-base",
    "distilbert-base-cased-distilled-squad": "distilbert-base",
    "distilbert-base-uncased-finetuned-sst-2-english": "distilbert-base",
    "deepset/roberta-base-squad2": "roberta-base",
    "siebert/sentiment-roberta-large-english": "roberta-large",
    "gpt2": "gpt2",
    "gpt2-medium": "gpt2-medium",
    "distilgpt2": "distilgpt2",
    "facebook/opt-1.3b": "opt-1.3b",
    "meta-llama/Llama-2-7b-hf": "llama-2-7b",
    "google/vit-base-patch16-224": "vit_base_patch16_224",
    "microsoft/resnet-50": "resnet50",
    "runwayml/stable-diffusion-v1-5": "stable-diffusion-1.5",
    "CompVis/stable-diffusion-v1-4": "stable-diffusion-1.5",
    "google/flan-t5-base": "flan-t5-base",
    "google/flan-t5-xl": "flan-t5-xl",
    "google/flan-t5-xxl": "flan-t5-xxl",
}


def read(shared: Path) -> Reading:
    """Records of kind ``network``: the median of ten runs of 1,000 queries, one at a time, loading left out (B2).

    ``energy_j`` is one query's, of the board that ran: the source sums eight, of which seven were idle.
    """
    reading = Reading("co2_inference")
    runs = table_of(shared, "co2_inference", "runs.parquet")
    net = runs.query_gpu_energy_j - _OTHERS_IDLE_W * runs.query_duration_s
    runs = runs.assign(energy=(net / _QUERIES).where(net > 0, np.nan), year=runs.timestamp.str[:4].astype(int))
    keys = ["model", "task", "device", "device_as_reported", "source_file"]
    groups = runs.groupby(keys, sort=True)
    table = groups.agg(
        latency=("latency_ms_per_query_derived", "median"),
        energy=("energy", "median"),
        year=("year", "min"),
        n=("run_id", "size"),
    ).reset_index()
    reading.refused["repeats a measurement; the median is kept"] += len(runs) - len(table)
    first = table.task.str.split("_").str[0]
    task = first.map(lambda name: _TASKS[name][1])
    rows = table[["model", "device", "device_as_reported"]].assign(
        licence="MIT",
        run=table.source_file,
        network=table.model.map(NETWORKS).fillna(""),
        domain=first.map(lambda name: _TASKS[name][0]),
        task=task,
        variant=table.task,
        runtime="torch",
        precision="fp32",
        precision_from="inferred",
        batch=1,
        timing="a whole query: pre-processing, network, post-processing",
        percentile="mean",
        latency_ms=table.latency,
        n_samples=table.n * _QUERIES,
        energy_j=table.energy,
        software_year=table.year,
        year_from="stated",
        caveats="idle_boards_subtracted,sequence_not_stated",
    )
    networks.caveat_where(rows, task.isin(_GENERATES), "generation_length_not_fixed")
    networks.caveat_where(rows, task == "text to image", "steps_not_stated")
    networks.add(reading, rows)
    return reading
