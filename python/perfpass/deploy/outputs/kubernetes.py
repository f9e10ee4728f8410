"""Kubernetes: deployments on NVIDIA's device plug-in (k8s) or by claims (dra, Dynamic Resource Allocation), and KServe.

Sources: the Kubernetes API (apps/v1, resource.k8s.io/v1), the device plug-in's resources under MIG strategy mixed, the
examples of NVIDIA's DRA driver for GPUs, KServe's serving.kserve.io/v1beta1 and its serving runtimes for Hugging Face
and for Triton, which is given a whole repository. Models come from a volume claim `models`.
"""

from __future__ import annotations

import os
from typing import Any

from perfpass.deploy.outputs.deployed import WHOLE, Deployment, deployments, yaml_of
from perfpass.deploy.outputs.engines import MODELS, served_from, vllm_arguments
from perfpass.deploy.pack import Layout
from perfpass.errors import ArgumentError

_CLAIM = "models"
_PORTS = {"graph": 8000, "llm": 8000}
_MODEL_FORMATS = {"onnxruntime": "onnx", "tensorrt": "tensorrt", "torch": "pytorch", "torch.compile": "pytorch"}


def files(layout: Layout, name: str) -> dict[str, str]:
    """The files of a format: one for every deployment."""
    made = {"k8s": _plugin, "dra": _dra, "kserve": _kserve}[name]
    return {f"{one.name}.yaml": yaml_of(*made(one)) for one in deployments(layout)}


def _plugin(one: Deployment) -> list[dict[str, Any]]:
    return [_deployment(one, {"resources": {"limits": {one.resource: "1"}}}, {})]


def _dra(one: Deployment) -> list[dict[str, Any]]:
    request: dict[str, Any] = {"deviceClassName": "gpu.nvidia.com" if one.profile == WHOLE else "mig.nvidia.com"}
    if one.profile != WHOLE:
        expression = f"device.attributes['gpu.nvidia.com'].profile == '{one.profile}'"
        request["selectors"] = [{"cel": {"expression": expression}}]
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": one.name},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": request}]}}},
    }
    container = {"resources": {"claims": [{"name": "gpu"}]}}
    pod = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": one.name}]}
    return [template, _deployment(one, container, pod)]


def _deployment(one: Deployment, container: dict[str, Any], pod: dict[str, Any]) -> dict[str, Any]:
    labels = {"app": one.name}
    spec: dict[str, Any] = {
        "containers": [
            {
                "name": "server",
                "image": one.image,
                **_command(one),
                "ports": [{"containerPort": _PORTS[one.model.kind]}],
                "volumeMounts": [{"name": _CLAIM, "mountPath": "/models", "readOnly": True}],
                **container,
            }
        ],
        "volumes": [{"name": _CLAIM, "persistentVolumeClaim": {"claimName": _CLAIM, "readOnly": True}}],
        **_on_nodes(one),
        **pod,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": one.name, "labels": dict(labels)},
        "spec": {
            "replicas": one.replicas,
            "selector": {"matchLabels": labels},
            # A slice is freed before it is taken anew: there is no spare one to roll over.
            "strategy": {"type": "Recreate"},
            "template": {"metadata": {"labels": dict(labels)}, "spec": spec},
        },
    }


def _command(one: Deployment) -> dict[str, Any]:
    if one.model.kind == "llm":
        return {"args": vllm_arguments(one)}
    return {"command": ["tritonserver"], "args": [f"--model-repository={MODELS}", *_one_of_the_repository(one)]}


def _one_of_the_repository(one: Deployment) -> list[str]:
    return ["--model-control-mode=explicit", f"--load-model={one.model.name}"]


def _on_nodes(one: Deployment) -> dict[str, Any]:
    if not one.nodes:
        return {}
    names = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(one.nodes)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [names]}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def _kserve(one: Deployment) -> list[dict[str, Any]]:
    runtime = str(one.model.options.get("runtime", "torch"))
    if one.model.kind == "graph" and runtime not in _MODEL_FORMATS:
        raise ArgumentError(f"{one.name}: KServe has no format for {runtime}; it has {', '.join(_MODEL_FORMATS)}")
    model: dict[str, Any] = {"resources": {"limits": {one.resource: "1"}, "requests": {one.resource: "1"}}}
    if one.model.kind == "llm":
        model |= {
            "modelFormat": {"name": "huggingface"},
            "storageUri": _storage(one),
            "args": vllm_arguments(one)[2:],  # without the model, which is mounted
        }
    else:
        model |= {
            "modelFormat": {"name": _MODEL_FORMATS[runtime]},
            "runtime": "kserve-tritonserver",
            "protocolVersion": "v2",
            "storageUri": f"pvc://{_CLAIM}",
            "args": _one_of_the_repository(one),
        }
    predictor = {"minReplicas": one.replicas, "maxReplicas": one.replicas, "model": model, **_on_nodes(one)}
    return [
        {
            "apiVersion": "serving.kserve.io/v1beta1",
            "kind": "InferenceService",
            "metadata": {"name": one.name},
            "spec": {"predictor": predictor},
        }
    ]


def _storage(one: Deployment) -> str:
    """Where KServe fetches a language model from: the volume claim, or the hub where it is called by a repository."""
    place = served_from(one.model.model)
    if place.startswith(f"{MODELS}/"):
        return f"pvc://{_CLAIM}{place.removeprefix(MODELS)}"
    if place.count("/") == 1 and place[0] not in "./" and not os.path.exists(place):
        return f"hf://{place}"
    return f"pvc://{_CLAIM}/{one.model.name}"
