"""A page of every kind, which the tests of pages share."""

from __future__ import annotations

import pytest

import perfpass
from perfpass.deploy.cost import Options, cost
from perfpass.deploy.sweep import Sweep
from perfpass.deploy.train_advice import train_advice
from perfpass.deploy.train_cost import search_layouts
from perfpass.devices import device
from perfpass.report.page import Page, compared_page, run_page, served_page, stored_page, sweep_page
from perfpass.report.stored import kind_of
from perfpass.stored_prediction import prediction_of
from report_models import DEVICE, EXAMPLES

KINDS = (
    "run",
    "step",
    "compared",
    "read",
    "sweep",
    "loads",
    "served",
    "diff",
    "fit",
    "choice",
    "fleet",
    "training",
    "layouts",
)


def served() -> Page:
    found = perfpass.predict_llm("llama-3.1-8b", "h100-sxm", concurrency=8)
    loads = perfpass.sweep("llama-3.1-8b", ["h100-sxm"], concurrencies=[1, 8], tensor_parallel=[1])
    return served_page(found, loads, None)


def made(kind: str, request) -> Page:
    """A page of every kind."""
    get = request.getfixturevalue
    if kind == "run":
        vision = get("vision")
        money = cost(vision.latency_ms, vision.energy_j, device(DEVICE), Options(region="FR"))
        return run_page(vision, money)
    if kind == "step":
        return run_page(get("step"))
    if kind == "compared":
        found = [get("vision"), get("encoder"), get("step")]
        return compared_page(found, [None] * 3, ["a.onnx", "b.onnx", "a.onnx"])
    if kind == "read":
        return run_page(prediction_of(get("vision").to_dict()))
    if kind == "sweep":
        return sweep_page(Sweep.from_dict(get("batches").to_dict()))
    if kind == "loads":
        return sweep_page(get("loads"))
    if kind == "served":
        return served()
    if kind == "diff":
        old, new = EXAMPLES / "resnet50.onnx", EXAMPLES / "vit_base_patch16_224.onnx"
        found = perfpass.diff(old, new, "t4", fail={"latency": "5%"}).to_dict()
    elif kind == "fit":
        found = perfpass.fit("llama-3.1-8b", ["t4", "l4"]).to_dict()
    elif kind == "choice":
        found = perfpass.choose("llama-3.1-8b", devices=["l4", "h100-sxm"], rate=2, ttft_ms=500, tpot_ms=50).to_dict()
    elif kind == "training":
        asked = {"gpus": 16, "tensor": 2, "pipeline": 4, "sequence": 8192, "global_batch": 64}
        advised = train_advice("llama-3.1-8b", "a100-40gb", **asked, offload="states", tokens=1e9, region="FR")
        found = advised.asked.to_dict() | {"advice": advised.to_dict()["changes"]}
    elif kind == "layouts":
        found = search_layouts("llama-3.1-8b", "h100", gpus=8, global_batch=64).to_dict()
    else:
        pytest.importorskip("ortools")
        fleet = {
            "gpu": [{"device": "a30", "count": 1}],
            "model": [{"name": "net", "model": str(EXAMPLES / "resnet50.onnx"), "latency_ms": 200.0}],
        }
        from perfpass.deploy.pack import fleet_of, pack

        found = pack(fleet_of(fleet)).to_dict()
    assert kind_of(found) == kind
    return stored_page(kind, found, kind)
