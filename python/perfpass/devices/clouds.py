"""What clouds call their machines: an instance type as the GPUs it has (clouds.toml)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from perfpass.errors import DeviceError
from perfpass.toml_table import parse

_SHIPPED = Path(__file__).with_name("clouds.toml")
# Words that an instance type is written with or without: Azure's "Standard_", SageMaker's "ml.", a maker.
_PREFIX = re.compile(r"^(?:standard[_ -]|ml\.|(?:google )?tpu[ -]|nvidia )")
# Alibaba's, of many sizes each.
_SIZED = re.compile(r"(ecs\.[a-z0-9]+)[-.]")


@dataclass(frozen=True)
class Instance:
    """One instance type: ``device`` is an id of the catalogue, ``gpus`` how many it has, 0 for a family of many sizes.

    ``share`` is set where the machine has less than one GPU ("1/6").
    """

    name: str
    provider: str
    device: str
    gpus: int
    source: str
    share: str | None = None

    def understood_as(self, device_name: str) -> str:
        """What the name was taken for, in a line. Raises DeviceError for a share of a GPU."""
        if self.share is not None:
            raise DeviceError(
                f"{self.name} ({self.provider}) has {self.share} of an {device_name}, cut in time by the cloud's "
                f"scheduler: no figure is given for such a share; ask for {self.device}, the whole GPU"
            )
        if self.gpus == 0:
            return f"{self.name} ({self.provider}): {device_name}, by the name of the family"
        one = "" if self.gpus == 1 else "; the figures are those of one"
        return f"{self.name} ({self.provider}): {self.gpus} x {device_name}{one}"


def instance(name: str) -> Instance | None:
    """The instance type of a name, however it is punctuated; None for an unknown one.

    A size of a family whose sizes are not listed (ecs.gn7i-c8g1.2xlarge) is read as the family.
    """
    found = _instances()
    family = _SIZED.match(name.strip().lower())
    return found.get(_key(name)) or (found.get(_key(family[1])) if family else None)


def instance_names() -> tuple[str, ...]:
    """Every instance type and family, as its provider writes it."""
    return tuple(found.name for found in _instances().values())


def _key(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "", _PREFIX.sub("", name.strip().lower()))


@cache
def _instances() -> dict[str, Instance]:
    document = parse(_SHIPPED.read_text(encoding="utf-8"))
    found: dict[str, Instance] = {}
    for table in document["cloud"]:
        for device, gpus, names in table["instances"]:
            for name in names.split():
                share = gpus if isinstance(gpus, str) else None
                count = 1 if share else gpus
                found[_key(name)] = Instance(name, table["provider"], device, count, table["source"], share)
    return found
