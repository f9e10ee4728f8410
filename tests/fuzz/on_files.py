"""Small text files that people write: devices, prices, grids, campaigns; and calibrations, which perfpass writes."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import hostile_files
import perfpass
from perfpass.deploy import carbon, cost, money
from perfpass.devices import sheet, toml_file
from perfpass.errors import DeviceError, PerfPassError
from perfpass.graph import OpGraph
from perfpass.importers import load
from perfpass.llm import LanguageModel, language_model
from perfpass.measure.campaign_file import read_campaign
from perfpass.measure.configuration import Configuration, Protocol
from perfpass.prediction import Interval
from perfpass.predictors.calibration import posterior

from .documents import Json, Toml, vouched
from .oracle import Violation, figures, naming
from .target import ROOT, Target, file

_SHIPPED = ROOT / "python" / "perfpass"


@cache
def graph() -> OpGraph:
    """A network of three operators."""
    return load(hostile_files.plain(), batch=2)


@cache
def _language_model() -> LanguageModel:
    return language_model("llama-3.2-1b")


def _devices(data: bytes) -> None:
    """A device file: every device of it is shown, and predicts."""
    path = file("devices.toml", data)
    with naming(path):
        found = toml_file.read(path)
    ids = [device.id for device in found]
    if len(set(ids)) != len(ids):
        raise Violation("two devices of one id", str(ids))
    sheet.device_list(found)
    for device in found[:3]:
        figures({**device.to_dict(), "notes": ()})
        for precision in ("fp32", "fp16"):
            _answered(lambda device=device, precision=precision: perfpass.predict(graph(), device, precision=precision))
        _answered(
            lambda device=device: perfpass.predict_llm(
                _language_model(), device, input_length=64, output_length=16, concurrency=4
            )
        )
        for profile in device.mig.profiles[:2] if device.mig else ():
            figures(device.mig_slice(profile.name).to_dict())


def _answered(ask: Any) -> None:
    """Right figures, or a refusal of what the device cannot do: its figures were in their ranges."""
    try:
        found = ask()
    except PerfPassError as error:
        if isinstance(error, (DeviceError, perfpass.errors.UnsupportedError, perfpass.errors.ArgumentError)):
            return
        raise
    figures({k: v for k, v in found.to_dict().items() if k != "breakdown"})
    str(found)


def _prices(data: bytes) -> None:
    path = file("prices.toml", data)
    with naming(path):
        found = money.read_prices(path)
    figures([price.usd_per_hour for price in found])
    for price in found[:5]:
        str(price)
    latency, energy = Interval(2.0, 1.0, 3.0, "ms"), Interval(2.0, 1.0, 3.0, "J")
    made = cost.cost(latency, energy, perfpass.device("h100"), cost.Options(price_table=path))
    figures(made.to_dict())
    if made.usd and made.usd.median <= 0:
        raise Violation("a price of nothing")
    cost.table(made)


def _grids(data: bytes) -> None:
    path = file("grids.toml", data)
    with naming(path):
        found = carbon.read_grids(path)
    for region, grid in found.items():
        figures(grid.g_per_kwh, region)
        figures(carbon.emitted(3.6e6, grid), region)
        str(grid)


def _campaign(data: bytes) -> None:
    path = file("campaign.toml", data)
    with naming(path):
        found = read_campaign(path)
    if not found.configurations:
        raise Violation("a campaign of nothing")
    for one in found.configurations[:20]:
        if Configuration.from_dict(json.loads(json.dumps(one.to_dict()))) != one:
            raise Violation("a configuration that its own JSON does not give", str(one))
        bytes.fromhex(one.key)
    if Protocol.from_dict(vars(found.protocol)) != found.protocol:
        raise Violation("a protocol that its own fields do not give")


def _calibration(data: bytes) -> None:
    """A calibration with the digest of its content, whatever that is: damage that its writer did."""
    path = file("h100.calibration.json", vouched(data))
    with naming(path):
        found = posterior.read(path)
    figures(perfpass.predict(graph(), "h100", calibration=found).to_dict()["latency_ms"])


@cache
def _calibration_seed() -> bytes:
    from perfpass.predictors.assemble import run_of
    from perfpass.predictors.calibration import correction
    from perfpass.predictors.lane import predictor_of

    target = perfpass.device("h100")
    points = []
    for batch in (1, 2, 4):
        run = run_of(load(hostile_files.plain(), batch=batch), target, batch=batch, precision="fp32")
        points.append(correction.point(predictor_of(run.way).estimate(run), run))
    import numpy as np

    made = posterior.Calibration(
        device=target.id,
        kind=target.kind,
        predictors={p.predictor: correction.digest_of(p.predictor) for p in points},
        predictor=tuple(p.predictor for p in points),
        software=tuple(p.software for p in points),
        traits=np.stack([p.traits for p in points]),
        log_ratio=np.array([0.1, 0.2, -0.1]),
        provenance={"records": "records.jsonl"},
    )
    return json.dumps(made.to_dict()).encode()


_DEVICE = """\
schema = 1

[sources]
sheet = "its datasheet"

[architecture.ampere]
max_threads_per_sm = 1536

[[device]]
id = "big-gpu"
name = "Big GPU 80GB"
aliases = ["big", "bg-80"]
architecture = "ampere"
compute_capability = [8, 0]
mig = "a100-80gb"
peak_tflops = { fp64 = 9.7, fp32 = 19.5, tf32 = 156, fp16 = 312, bf16 = 312, int8 = 624 }
memory_gib = 80
bandwidth_gb_s = 2039
l2_mib = 40
sm_count = 108
base_mhz = 1275
boost_mhz = 1410
power_limit_w = 400
idle_power_w = 50
pcie_gb_s = 32
nvlink_gb_s = 600
source = "sheet"
estimated = ["idle_power_w"]
notes = ["a note"]
sources = { memory_gib = "sheet" }
"""
_LEAST_DEVICE = """\
[[device]]
id = "cpu-box"
name = "CPU box"
kind = "cpu"
peak_tflops = { fp32 = 1.5 }
memory_gib = 64
bandwidth_gb_s = 80
sm_count = 16
power_limit_w = 150
"""
_PRICES = """\
schema = 1
currency = "USD"

[sources]
page = "its price page"

[[price]]
device = "h100-sxm5-80gb"
provider = "Cloud"
usd_per_hour = 3.99
date = "2026-11-09"
source = "page"
approximate = true

[[price]]
device = "h100-sxm5-80gb"
provider = "Other"
usd_per_hour = 2
date = 2026-11-09
source = "page"
"""
_CAMPAIGN = """\
name = "small"

[protocol]
measure_max_s = 3.0
iterations_min = 11

[[sweep]]
model = ["timm:resnet18", "hf:bert-tiny"]
mode = ["inference", "training"]
batch = [1, 8]
optimizer = ["sgd"]
repeats = 2

[[sweep]]
model = "onnx:model.onnx"
runtime = "onnxruntime"
device = "cuda:0"
input_shapes = { x = [1, 3, 32, 32] }
"""


def _p(*names: str) -> tuple[str, ...]:
    return tuple(f"python/perfpass/{name}" for name in names)


_FIGURES = (
    *("memory_gib", "bandwidth_gb_s", "l2_mib", "l3_mib", "sm_count", "base_mhz", "boost_mhz", "power_limit_w"),
    *("idle_power_w", "pcie_gb_s", "nvlink_gb_s", "link_peers", "link_group", "registers_per_sm"),
    *("shared_memory_per_sm_kib", "max_threads_per_sm"),
    *("id", "name", "kind", "vendor", "architecture", "memory_type", "launch", "mig", "source", "aliases", "estimated"),
    *("notes", "compute_capability", "peak_tflops", "sources"),
)
TARGETS = (
    Target(
        "device-file",
        _devices,
        lambda: [_DEVICE.encode(), _LEAST_DEVICE.encode(), (ROOT / "examples" / "custom_device.toml").read_bytes()],
        Toml((*_FIGURES, "schema", "device", "architecture"), ("a100-80gb", "gpu", "cpu", "fp32", "host", "h100")),
        _p("devices/toml_file.py", "toml_table.py", "bounded_file.py", "devices/sheet.py"),
    ),
    Target(
        "price-table",
        _prices,
        lambda: [_PRICES.encode()],
        Toml(("device", "provider", "usd_per_hour", "date", "source", "approximate", "price", "sources", "currency")),
        _p("deploy/money.py", "toml_table.py", "deploy/cost.py"),
    ),
    Target(
        "grid-table",
        _grids,
        lambda: [(_SHIPPED / "deploy" / "grids.toml").read_bytes()],
        Toml(("grid", "unit", "year", "source", "schema", "FR", "fr", "WORLD")),
        _p("deploy/carbon.py", "toml_table.py"),
    ),
    Target(
        "campaign",
        _campaign,
        lambda: [_CAMPAIGN.encode()],
        Toml(
            (*Configuration.__dataclass_fields__, *Protocol.__dataclass_fields__, "sweep", "repeats", "name"),
            ("training", "decode", "amp", "tvm", "nhwc", "cuda", "cuda:1", "hf:x", "unet:x", "adamw"),
        ),
        _p("measure/campaign_file.py", "measure/configuration.py", "toml_table.py"),
    ),
    Target(
        "calibration",
        _calibration,
        lambda: [_calibration_seed()],
        Json(("points", "traits", "log_ratio", "software", "predictor", "provenance", "kind", "device")),
        _p("predictors/calibration/posterior.py"),
    ),
)
