"""python -m perfpass.records.build.outside SOURCES: training records from outside the vision corpus, their networks.

Writes data/records/training_outside.parquet (milabench, miso) and data/graphs/outside_{tables,graphs}.parquet, the
operator tables of those of their networks whose definition is known. Nothing is trained on them.
"""

from __future__ import annotations

import json
import sys
import tempfile
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfpass.errors import PerfPassError
from perfpass.records import cifar_networks, corpus, graph_cache, schema
from perfpass.records.build import vision as build_vision
from perfpass.records.build import vision_models
from perfpass.records.location import data_directory

if TYPE_CHECKING:
    from perfpass.graph import OpGraph

READERS = ("milabench", "miso")
# (source of the definition, network, pixels or tokens). Keras's ResNet-50 strides in the first convolution of a block
# and torchvision's in the second (8 % more MACs); BERT as in configurations/bert-base.json, by its head.
NETWORKS: tuple[tuple[str, str, int], ...] = (
    ("torchvision", "resnet50", 32),
    ("torchvision", "mobilenet_v2", 32),
    ("torchvision", "resnet50", 224),
    ("torchvision", "convnext_large", 224),
    ("timm", "regnety_1280", 224),
    ("huggingface", "bert-base/BertForMaskedLM", 512),
    ("huggingface", "bert-base/BertForSequenceClassification", 512),
    ("huggingface", "bert-tiny/BertModel", 64),
    ("huggingface", "minilm-l6/BertModel", 64),
    ("huggingface", "pythia-70m/GPTNeoXForCausalLM", 64),
    ("timm", "convnext_atto", 224),
    (cifar_networks.SOURCE, "shufflenetv2", 32),
)


def traces(source: str, model: str, size: int) -> tuple[OpGraph, OpGraph]:
    """A network's forward graph at both of `vision_models.BATCHES`."""
    if source not in ("huggingface", cifar_networks.SOURCE):
        return vision_models.traces(source, model, size)
    from perfpass.importers.torch import trace_owned

    if source == cifar_networks.SOURCE:
        network = cifar_networks.build(model)
        first, second = (trace_owned(network, (3, size, size), batch=b) for b in vision_models.BATCHES)
        return first, second
    from perfpass.importers.model_sources import huggingface

    name, _, head = model.partition("/")
    text = (resources.files("perfpass") / "configurations" / f"{name}.json").read_text(encoding="utf-8")
    built: Any = huggingface(json.loads(text) | {"architectures": [head]}, dtype="float32", causal=False)
    given = {"use_cache": False} if "CausalLM" in head else {}
    shapes = {"input_ids": ((size,), "int64")}
    first, second = (trace_owned(built, shapes, batch=b, given=given) for b in vision_models.BATCHES)
    return first, second


def build_tables(folder: Path) -> None:
    """Trace NETWORKS and write their tables, named as those of the vision networks."""
    failures: dict[tuple[str, str, int], str] = {}
    with tempfile.TemporaryDirectory() as scratch:
        files = {}
        for i, key in enumerate(NETWORKS):
            files[key] = Path(scratch) / f"{i}.npz"
            try:
                graph_cache.save(files[key], *traces(*key), vision_models.BATCHES)
            except PerfPassError as error:
                failures[key] = str(error)
        build_vision.write_tables(list(NETWORKS), failures, folder, "outside", files)
    for key, reason in failures.items():
        print(f"{key}: {reason}", file=sys.stderr)


def main(sources: str, folder: Path | None = None) -> None:
    """Both parts, into ``folder`` (default: data)."""
    import pandas

    data = folder or data_directory()
    parts = [reading.tables["training"] for _, reading in corpus.read(sources, READERS)]
    rows = schema.with_all_columns("training", pandas.concat(parts, ignore_index=True))
    schema.write(data / "records" / "training_outside.parquet", "training", rows)
    print(f"{len(rows)} records", file=sys.stderr)
    build_tables(data / "graphs")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m perfpass.records.build.outside SOURCES")
    main(sys.argv[1])
