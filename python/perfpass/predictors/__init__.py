"""Predictors: what a counted graph costs on a device; `predict` is for people, `predict_graph` for adapters."""

from __future__ import annotations

from perfpass.predictors.assemble import predict, predict_graph

__all__ = [
    "as_run",
    "assemble",
    "breakdown",
    "by_node",
    "core_bundle",
    "decided",
    "estimate",
    "judged",
    "lane",
    "loads",
    "predict",
    "predict_graph",
    "quantisation",
    "registry",
    "remedies",
    "roofline",
    "sparsity",
    "way",
    "workload",
]
