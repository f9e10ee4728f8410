"""The records: what is kept, what is refused and why, and that the tables are those of the models' graphs."""

from __future__ import annotations

import numpy as np
import pandas
import pytest

from perfpass.devices import device
from perfpass.errors import ArgumentError, FileError, FormatError
from perfpass.features import operator_table
from perfpass.graph import costs
from perfpass.graph import liveness as memory
from perfpass.importers import torchvision_schemas
from perfpass.records import graph_cache, tables, vision

torchvision_schemas.define()


@pytest.fixture(scope="module")
def recorded() -> tables.RecordedTables:
    return tables.load()


@pytest.fixture(scope="module")
def rows():
    return vision.load()


def timm_rows(**changes) -> dict:
    row = {
        "model": "resnet18",
        "device": "NVIDIA GeForce RTX 3090",
        "torch_version": "2.4.0",
        "cuda_version": "12.4",
        "precision": "amp",
        "layout": "nhwc",
        "compiled": True,
        "img_size": 224,
        "batch_size": 64,
        "samples_per_sec": 6400.0,
        "step_time_ms": 10.0,
        "param_count_m": 11.69,
        "source_file": "a.csv",
    }
    return row | changes


def torchvision_row(**changes) -> dict:
    row = {
        "device": "NVIDIA TITAN V",
        "n_gpus": 1,
        "run": "TitanV",
        "timing": "device_only",
        "cuda_version": float("nan"),
        "model": "resnet50",
        "mode": "train",
        "precision": "fp16",
        "batch_size": 12,
        "latency_median_ms": 20.0,
        "latency_p10_ms": 19.0,
        "latency_p90_ms": 22.0,
        "n_samples": 20,
    }
    return row | changes


def write(folder, infer, train, torchvision) -> None:
    (folder / "timm").mkdir()
    (folder / "pytorch_gpu_benchmark").mkdir()
    pandas.DataFrame(infer).to_parquet(folder / "timm" / "infer.parquet")
    pandas.DataFrame(train).to_csv(folder / "timm" / "train.csv", index=False)
    pandas.DataFrame(torchvision).to_csv(folder / "pytorch_gpu_benchmark" / "torchvision_latency.csv", index=False)


COUNTS = {"resnet18": (11_689_512, None), "repvgg_a0": (9_108_968, 8_309_384), "resnet50": (25_557_032, None)}


def test_tables_of_both_sources_become_one_schema(tmp_path):
    write(tmp_path, [timm_rows()], [timm_rows(compiled=False)], [torchvision_row()])
    timm, torchvision = vision.read_timm(tmp_path, COUNTS), vision.read_torchvision(tmp_path)
    assert not timm.refused
    assert not torchvision.refused
    infer, train = timm.tables["vision"].to_dict("records")
    (other,) = torchvision.tables["vision"].to_dict("records")
    assert (infer["runtime"], infer["mode"], infer["layout"], infer["latency_ms"]) == (
        "torch.compile",
        "inference",
        "nhwc",
        10.0,
    )
    assert (infer["runtime_version"], infer["cuda_version"], infer["optimizer"]) == ("2.4.0", "12.4", "")
    assert (train["runtime"], train["mode"], train["device"], train["optimizer"]) == (
        "torch",
        "training",
        "rtx-3090",
        "sgd",
    )
    assert (other["mode"], other["img_size"], other["latency_p90_ms"], other["cuda_version"]) == (
        "training",
        224,
        22.0,
        "",
    )
    assert (other["source"], other["licence"], other["timing"], other["optimizer"]) == (
        "torchvision",
        "MIT",
        "device_only",
        "",
    )
    assert {r["family"] for r in (infer, train, other)} == {"resnet"}


def test_rows_that_cannot_be_trusted_are_refused_and_counted(tmp_path):
    bad = [
        timm_rows(step_time_ms=0.0),
        timm_rows(samples_per_sec=100.0),
        timm_rows(device="Abacus"),
        timm_rows(param_count_m=25.0),
    ]
    multi = [torchvision_row(n_gpus=4), torchvision_row(latency_median_ms=float("nan")), torchvision_row()]
    write(tmp_path, [timm_rows(), timm_rows(), *bad], [timm_rows()], multi)
    read = vision.read_timm(tmp_path, COUNTS)
    assert len(read.tables["vision"]) == 2
    assert read.refused == {
        "no positive step time, batch or image size": 1,
        "step time and throughput contradict each other": 1,
        "device is not in the catalogue": 1,
        "measured network differs from the installed definition": 1,
        "repeats another row exactly": 1,
    }
    other = vision.read_torchvision(tmp_path)
    assert len(other.tables["vision"]) == 1
    assert other.refused == {"more than one GPU (DataParallel)": 1, "no positive latency or batch size": 1}


def test_a_row_measured_with_folded_branches_names_the_folded_network(tmp_path):
    rep = {"model": "repvgg_a0"}
    infer = [timm_rows(**rep, param_count_m=9.11), timm_rows(**rep, param_count_m=8.31, source_file="b.csv")]
    write(tmp_path, infer, [timm_rows()], [torchvision_row()])
    names = vision.read_timm(tmp_path, COUNTS).tables["vision"].model.tolist()
    assert names[:2] == ["repvgg_a0", "repvgg_a0+reparameterized"]


def test_missing_tables_and_columns_are_named(tmp_path):
    with pytest.raises(FileError, match=r"infer\.parquet"):
        vision.read_timm(tmp_path, {})
    with pytest.raises(FileError, match="build_vision"):
        tables.load(tmp_path)
    (tmp_path / "pytorch_gpu_benchmark").mkdir()
    pandas.DataFrame({"device": ["TITAN V"]}).to_csv(tmp_path / "pytorch_gpu_benchmark" / "torchvision_latency.csv")
    with pytest.raises(FormatError, match="lacks the columns batch_size"):
        vision.read_torchvision(tmp_path)


def test_the_shipped_records_are_complete(rows):
    assert len(rows) == 24_442 and (rows.latency_ms > 0).all() and (rows.n_devices == 1).all()
    assert rows.groupby(["source", "mode"]).size().to_dict() == {
        ("timm", "inference"): 21_640,
        ("timm", "training"): 1_546,
        ("torchvision", "inference"): 628,
        ("torchvision", "training"): 628,
    }
    assert all(device(name).id == name for name in rows.device.unique())
    assert not rows.duplicated().any()


def test_nearly_every_record_has_a_table_and_the_losses_are_those_documented(rows, recorded):
    keys = rows[["source", "model", "img_size"]].itertuples(index=False, name=None)
    assert sum(key not in recorded for key in keys) == 166


def test_names_with_equal_operators_are_one_architecture(rows, recorded):
    of_table: dict[int, set[str]] = {}
    columns = ["source", "model", "img_size", "architecture"]
    for source, model, size, architecture in set(rows[columns].itertuples(index=False, name=None)):
        if (source, model, size) in recorded:
            of_table.setdefault(recorded.table_id(source, model, size), set()).add(architecture)
    assert all(len(names) == 1 for names in of_table.values())


@pytest.mark.parametrize(
    "model", ["resnet18", "vit_tiny_patch16_224", "efficientnet_b0", "swin_tiny_patch4_window7_224"]
)
@pytest.mark.parametrize(("batch", "bits"), [(2, 32), (8, 16), (64, 16)])
def test_a_recorded_table_is_the_table_of_the_model_traced_at_that_batch(recorded, model, batch, bits):
    import timm
    import torch

    from perfpass.importers.torch import trace

    with torch.device("meta"):
        module = timm.create_model(model)
    graph = trace(module, (3, 224, 224), batch=batch)
    counted = costs.count(graph, float_as="float16" if bits == 16 else None)
    table = recorded.table("timm", model, 224, batch, bits)
    whole = operator_table(graph, counted)
    for name in ("macs", "flops", "bytes_read", "bytes_written"):
        assert (getattr(table, name) * table.count).sum() == getattr(counted, name).sum(), name
    assert sorted(table.m * table.n) == sorted(np.asarray(whole.m) * np.asarray(whole.n))
    plan = memory.plan(graph, float_as="float16" if bits == 16 else None)
    assert table.statics["weight_bytes"] == plan.weight_bytes
    assert table.statics["peak_activation_bytes"] == pytest.approx(plan.peak_activation_bytes, rel=0.01)
    assert table.statics["nodes"] == graph.node_count and table.statics["edges"] == graph.edge_count


def test_unknown_models_widths_and_batches_are_refused(recorded):
    with pytest.raises(ArgumentError, match="densenet264"):
        recorded.table("timm", "densenet264", 224, 1)
    with pytest.raises(ArgumentError, match="got 4 and 1"):
        recorded.table("timm", "resnet50", 224, 1, bits=4)
    with pytest.raises(ArgumentError, match="got 32 and 0"):
        recorded.table("timm", "resnet50", 224, 0)


def test_a_cached_trace_comes_back_as_it_was(tmp_path):
    import torch

    from perfpass.importers.torch import trace

    model = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    low, high, third = (trace(model, (5, 8), batch=b) for b in (2, 3, 7))
    file = tmp_path / "folder" / "model.npz"
    graph_cache.save(file, low, high, (2, 3))
    read = graph_cache.load(file, 7)
    for name in ("op", "attributes", "inputs", "outputs", "dims", "tensor_dtype", "tensor_role", "edge_tensor"):
        assert np.array_equal(getattr(read, name), getattr(third, name)), name
    assert [read.label(n) for n in range(read.node_count)] == [third.label(n) for n in range(third.node_count)]
    with pytest.raises(ArgumentError, match="more than sizes"):
        graph_cache.save(file, low, trace(torch.nn.ReLU(), (5, 8), batch=3), (2, 3))
