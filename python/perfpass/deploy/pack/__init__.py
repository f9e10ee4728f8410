"""Models with rates and targets onto GPUs and MIG slices: the fewest GPUs, or the lowest price."""

from __future__ import annotations

from perfpass.deploy.pack.fleet import Fleet, Model, Pool, Standing, fleet_of, read_fleet
from perfpass.deploy.pack.hinted import hinted, standing
from perfpass.deploy.pack.layout import Gpu, Instance, Layout, Problems
from perfpass.deploy.pack.options import Option
from perfpass.deploy.pack.packing import pack, pack_options

__all__ = [
    "Fleet",
    "Gpu",
    "Instance",
    "Layout",
    "Model",
    "Option",
    "Pool",
    "Problems",
    "Standing",
    "fleet_of",
    "hinted",
    "pack",
    "pack_options",
    "read_fleet",
    "standing",
]
