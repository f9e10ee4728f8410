"""MIG instances: `nvidia-smi mig` commands and mig-parted's configuration.

Sources: `nvidia-smi mig --help` ("-cgi: a profile name or ID and an optional placement specifier"), the MIG user guide
("Creating GPU instances"), and NVIDIA/mig-parted's examples.
"""

from __future__ import annotations

from collections import Counter

from perfpass.deploy.outputs.deployed import WHOLE, yaml_of
from perfpass.deploy.pack import Gpu, Layout

_HEAD = """#!/bin/sh
# Made by perfpass pack. Run it as root on {where}.
set -eu
"""
# The number of the GPU instance that starts at a memory slice, from the table of `nvidia-smi mig -lgi`, whose rows end
# in "INSTANCE START:SIZE |".
_INSTANCE_AT = """instance_at() { nvidia-smi mig -i "$1" -lgi | awk -v at="$2:" \
  'index($(NF-1), at) == 1 { print $(NF-2) }'; }
"""


def files(layout: Layout, name: str) -> dict[str, str]:
    """The files of a format."""
    return _scripts(layout) if name == "nvidia-smi" else _parted(layout)


def _nodes(layout: Layout) -> dict[str, list[Gpu]]:
    found: dict[str, list[Gpu]] = {}
    for gpu in layout.gpus:
        found.setdefault(gpu.node, []).append(gpu)
    return found


def _named(node: str) -> str:
    return f"perfpass-{node}" if node else "perfpass"


def _scripts(layout: Layout) -> dict[str, str]:
    """A script for every node: the whole layout at once, or the steps from today's."""
    found = {}
    where = {gpu.name: (gpu.node, gpu.index) for gpu in layout.gpus}
    for pool in layout.fleet.pools:
        where |= {name: (node, index) for name, node, index in pool.gpus()}
    for node, gpus in _nodes(layout).items():
        lines = _at_once(gpus) if not layout.steps else []
        if layout.steps:
            lines = [_INSTANCE_AT.rstrip()]
            for step in layout.steps:
                its_node, index = where[step.gpu]
                if its_node == node:
                    lines += _step(step, index)
        text = _HEAD.format(where=node or "the machine that has these GPUs") + "\n".join(lines)
        found[f"{_named(node)}.sh"] = f"{text}\n"
    return found


def _at_once(gpus: list[Gpu]) -> list[str]:
    lines = []
    for gpu in gpus:
        lines.append(f"# {gpu.name}: {gpu.device.name}")
        if not gpu.mig:
            lines.append(f"nvidia-smi -i {gpu.index} -mig 0")
            continue
        instances = ",".join(f"{one.profile}:{one.start}" for one in gpu.instances)
        lines += [
            f"nvidia-smi -i {gpu.index} -mig 1",
            f"nvidia-smi mig -i {gpu.index} -dci || true",
            f"nvidia-smi mig -i {gpu.index} -dgi || true",
            f"nvidia-smi mig -i {gpu.index} -cgi {instances} -C",
        ]
    return lines


def _step(step: object, index: int) -> list[str]:
    action, profile, start = (getattr(step, name) for name in ("action", "profile", "start"))
    if action in ("enable MIG", "disable MIG"):
        return [f"nvidia-smi -i {index} -mig {int(action == 'enable MIG')}"]
    if action == "create":
        return [f"nvidia-smi mig -i {index} -cgi {profile}:{start} -C"]
    if action == "destroy":
        return [
            f"gi=$(instance_at {index} {start})",
            f'nvidia-smi mig -i {index} -dci -gi "$gi"',
            f'nvidia-smi mig -i {index} -dgi -gi "$gi"',
        ]
    return [f'printf "%s, then Enter: " "{step}"; read -r _']


def _parted(layout: Layout) -> dict[str, str]:
    """mig-parted's configuration, and the ConfigMap that the GPU operator's MIG manager reads."""
    configs = {}
    for node, gpus in _nodes(layout).items():
        same: dict[tuple[tuple[str, int], ...], list[int]] = {}
        for gpu in gpus:
            cut = Counter(one.profile for one in gpu.instances if one.profile != WHOLE)
            same.setdefault(tuple(sorted(cut.items())), []).append(gpu.index)
        configs[_named(node)] = [
            {"devices": devices, "mig-enabled": bool(cut), "mig-devices": dict(cut)} for cut, devices in same.items()
        ]
    config = yaml_of({"version": "v1", "mig-configs": configs})
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "perfpass-mig-parted-config"},
        "data": {"config.yaml": config},
    }
    return {"config.yaml": config, "configmap.yaml": yaml_of(config_map)}
