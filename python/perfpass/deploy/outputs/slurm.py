"""Slurm: gres.conf and the nodes' Gres with a type for every profile, and a job for every kind of instance.

Source: Slurm's guide "Generic Resource (GRES) Scheduling", MIG management: with AutoDetect=nvml a configured Type is
matched as a part of the detected one ("nvidia_a100_1g.10gb").
"""

from __future__ import annotations

import shlex
from collections import Counter

from perfpass.deploy.outputs.deployed import WHOLE, Deployment, deployments
from perfpass.deploy.outputs.engines import vllm_arguments
from perfpass.deploy.pack import Layout


def files(layout: Layout, name: str) -> dict[str, str]:
    """gres.conf, the line of slurm.conf, and a job for every deployment."""
    gres, nodes = ["AutoDetect=nvml"], ["GresTypes=gpu"]
    by_node: dict[str, Counter[str]] = {}
    for gpu in layout.gpus:
        counts = by_node.setdefault(gpu.node or "localhost", Counter())
        counts.update(_type(gpu.device.id, one.profile) for one in gpu.instances)
    for node, counts in sorted(by_node.items()):
        gres += [f"NodeName={node} Name=gpu Type={kind} Count={n}" for kind, n in sorted(counts.items())]
        nodes.append(f"NodeName={node} Gres={','.join(f'gpu:{kind}:{n}' for kind, n in sorted(counts.items()))}")
    found = {"gres.conf": "\n".join([*gres, ""]), "slurm.conf": "\n".join([*nodes, ""])}
    return found | {f"{one.name}.sbatch": _job(one) for one in deployments(layout)}


def _type(device: str, profile: str) -> str:
    return device.partition("-")[0] if profile == WHOLE else profile


def _job(one: Deployment) -> str:
    command = ["vllm", "serve", *vllm_arguments(one)[1:]] if one.model.kind == "llm" else [
        "tritonserver", "--model-repository=models", "--model-control-mode=explicit", f"--load-model={one.model.name}",
    ]  # fmt: skip
    array = f"#SBATCH --array=1-{one.replicas}\n" if one.replicas > 1 else ""
    return (
        f"#!/bin/sh\n#SBATCH --job-name={one.name}\n#SBATCH --gres=gpu:{_type(one.device, one.profile)}:1\n{array}"
        f"exec {shlex.join(command)}\n"
    )
