"""perfpass: what a deep-learning model costs on a device, before it runs there."""

from __future__ import annotations

TYPE_CHECKING = False  # typing itself is a third of what a question to a resident process costs
if TYPE_CHECKING:
    from typing import Any

    from perfpass.annotation.file import annotate
    from perfpass.decision import Decision, Limits
    from perfpass.deploy.advise import advise
    from perfpass.deploy.choose import choose
    from perfpass.deploy.difference import diff
    from perfpass.deploy.fit import fit
    from perfpass.deploy.pack import pack
    from perfpass.deploy.sweep import sweep
    from perfpass.deploy.train_cost import train_cost
    from perfpass.deploy.train_network import train_network_cost
    from perfpass.devices import Device, device
    from perfpass.errors import PerfPassError
    from perfpass.graph import OpGraph
    from perfpass.importers import load
    from perfpass.importers.operators import declare_operator
    from perfpass.importers.symbolic import symbolic
    from perfpass.prediction import Interval, Prediction
    from perfpass.predictors import predict
    from perfpass.predictors.engine.simulate import simulate_llm
    from perfpass.predictors.generation.predictor import predict_offline
    from perfpass.predictors.serving.predictor import predict_llm
    from perfpass.predictors.switches.switches import Switches
    from perfpass.serve.client import Client

__version__ = "0.2.0"

# Imported on first use, so that `import perfpass` and `perfpass --help` stay quick.
_HOME = {
    "Decision": "perfpass.decision",
    "Limits": "perfpass.decision",
    "Device": "perfpass.devices",
    "device": "perfpass.devices",
    "annotate": "perfpass.annotation.file",
    "advise": "perfpass.deploy.advise",
    "fit": "perfpass.deploy.fit",
    "choose": "perfpass.deploy.choose",
    "sweep": "perfpass.deploy.sweep",
    "train_cost": "perfpass.deploy.train_cost",
    "train_network_cost": "perfpass.deploy.train_network",
    "diff": "perfpass.deploy.difference",
    "PerfPassError": "perfpass.errors",
    "OpGraph": "perfpass.graph",
    "load": "perfpass.importers",
    "declare_operator": "perfpass.importers.operators",
    "symbolic": "perfpass.importers.symbolic",
    "pack": "perfpass.deploy.pack",
    "Interval": "perfpass.prediction",
    "Prediction": "perfpass.prediction",
    "predict": "perfpass.predictors",
    "predict_llm": "perfpass.predictors.serving.predictor",
    "predict_offline": "perfpass.predictors.generation.predictor",
    "simulate_llm": "perfpass.predictors.engine.simulate",
    "Switches": "perfpass.predictors.switches.switches",
    "Client": "perfpass.serve.client",
}
__all__ = [
    "Client",
    "Decision",
    "Device",
    "Interval",
    "Limits",
    "OpGraph",
    "PerfPassError",
    "Prediction",
    "Switches",
    "advise",
    "annotate",
    "choose",
    "declare_operator",
    "device",
    "diff",
    "fit",
    "load",
    "pack",
    "predict",
    "predict_llm",
    "predict_offline",
    "simulate_llm",
    "sweep",
    "symbolic",
    "train_cost",
    "train_network_cost",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        from importlib import import_module

        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'perfpass' has no attribute {name!r}")
