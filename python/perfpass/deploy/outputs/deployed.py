"""What the tools' files are made of: which instances run one model alike, and names that all tools take."""

from __future__ import annotations

import re
from dataclasses import dataclass

from perfpass.deploy.pack import Gpu, Instance, Layout, Model, Option
from perfpass.errors import needs

WHOLE = "whole"
# Pinned images of servers, from the registry that a cluster pulls from, of releases whose defaults of memory are
# counted (`perfpass.llm.in_use.SINCE`); a fleet names its own with `image`.
IMAGES = {"graph": "tritonserver:25.10-py3", "llm": "vllm-openai:v0.33.0"}


@dataclass(frozen=True)
class Deployment:
    """Instances of one profile on one type of GPU that run one model in one way. ``name`` is a DNS label."""

    name: str
    model: Model
    option: Option
    device: str
    replicas: int
    nodes: tuple[str, ...]

    @property
    def profile(self) -> str:
        """The profile of each instance."""
        return self.option.profile

    @property
    def image(self) -> str:
        """The server's image: the fleet's, or one that is known for its kind."""
        return self.model.image or IMAGES[self.model.kind]

    @property
    def resource(self) -> str:
        """The resource of NVIDIA's device plug-in (strategy mixed) that is one such instance."""
        return "nvidia.com/gpu" if self.profile == WHOLE else f"nvidia.com/mig-{self.profile.replace('+', '.')}"


def deployments(layout: Layout) -> list[Deployment]:
    """What the layout runs, in the order of its models."""
    groups: dict[tuple[str, str, str, int], list[tuple[Gpu, Instance]]] = {}
    for gpu in layout.gpus:
        for one in gpu.instances:
            groups.setdefault((one.model, gpu.device.id, one.profile, one.option.processes), []).append((gpu, one))
    models = {m.name: m for m in layout.fleet.models}
    order = {m.name: i for i, m in enumerate(layout.fleet.models)}
    several = {name: sum(key[0] == name for key in groups) > 1 for name in order}
    found: list[Deployment] = []
    taken: set[str] = set()
    for (model, device, profile, _), mine in sorted(groups.items(), key=lambda group: (order[group[0][0]], group[0])):
        name = dns_label(f"{model}-{profile}" if several[model] else model, taken)
        nodes = tuple(sorted({gpu.node for gpu, _ in mine if gpu.node}))
        found.append(Deployment(name, models[model], mine[0][1].option, device, len(mine), nodes))
    return found


def dns_label(text: str, taken: set[str]) -> str:
    """A DNS label (RFC 1123) like ``text`` that is none of ``taken``, and is then."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:57].rstrip("-") or "model"
    name = next(n for n in (plain, *(f"{plain}-{k}" for k in range(2, len(taken) + 3))) if n not in taken)
    taken.add(name)
    return name


def yaml_of(*documents: object) -> str:
    """Documents as YAML, in the order of their keys."""
    with needs("pack", "writing YAML"):
        import yaml
    return str(yaml.safe_dump_all(documents, sort_keys=False, default_flow_style=False, width=110))
