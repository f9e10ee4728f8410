"""Records of energy and power as rows of the predictors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.devices import Device, device
from perfpass.errors import DeviceError, PerfPassError
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.configuration import language_model
from perfpass.predictors.energy import features
from perfpass.predictors.learned.components import Form, Rows
from perfpass.records import schema
from perfpass.records.location import data_directory
from perfpass.training.components.grade import Quantity, configurations

if TYPE_CHECKING:
    import pandas

# Parameters (10^9) of all parts and of the denoiser, from the source's own table.
DIFFUSION_PARAMETERS = {
    "ali-vilab/i2vgen-xl": (2.5, 1.4),
    "ali-vilab/text-to-video-ms-1.7b": (1.8, 1.4),
    "guoyww/animatediff-motion-adapter-v1-5-3": (1.9, 1.3),
    "kandinsky-community/kandinsky-2-2-decoder": (4.9, 1.3),
    "kandinsky-community/kandinsky-3": (12.0, 3.1),
    "prompthero/openjourney-v4": (1.1, 0.9),
    "segmind/SSD-1B": (2.2, 1.3),
    "stabilityai/sdxl-turbo": (3.5, 2.6),
    "stabilityai/stable-diffusion-2-1": (1.3, 0.9),
    "stabilityai/stable-diffusion-3-medium-diffusers": (7.7, 2.0),
    "stabilityai/stable-diffusion-xl-base-1.0": (3.5, 2.6),
    "stabilityai/stable-video-diffusion-img2vid": (2.3, 1.5),
    "stabilityai/stable-video-diffusion-img2vid-xt": (2.3, 1.5),
}


def load(folder: str | None = None) -> dict[str, Quantity]:
    """Every quantity, by name. Raises FileError, FormatError."""
    root = (Path(folder) if folder else data_directory()) / "records"
    generation = schema.read(root / "generation.parquet", "generation")
    quantities = [
        *_serving(generation[generation.run == "llm"]),
        _batch1(generation[generation.run == "legacy_llm_batch1"]),
        _diffusion(generation[generation.run == "diffusion"]),
        _offline_power(generation[generation.power_w.notna() & generation.run.isin(["power_results", "perf_model"])]),
        _training_power(schema.read(root / "training_power.parquet", "training")),
        _server_power(schema.read(root / "server_power.parquet", "system")),
    ]
    return {q.name: q for q in quantities}


def _quantity(
    name: str, unit: str, form: Form, rows: Rows, measured: Any, table: pandas.DataFrame, model: Any, **others: Any
) -> Quantity:
    keys = [*[c for c in table.columns if c not in _METRICS]]
    return Quantity(
        name=name,
        unit=unit,
        form=form,
        rows=rows,
        measured=np.asarray(measured, dtype=np.float64),
        configuration=configurations(table[keys]),
        model=np.asarray(model, dtype=object),
        device=table.device.to_numpy(),
        others={key: np.asarray(value, dtype=object) for key, value in others.items()},
    )


_METRICS = {c.name for c in schema.METRICS} | {"caveats", "run", "licence", "mean_batch"}


def task_of(text: str) -> str:
    """The kind of a task of ML.ENERGY: chat, code, or with images."""
    if text.startswith("mllm"):
        return "mllm"
    return "code" if "code" in text else "chat"


def _readable(table: pandas.DataFrame) -> tuple[pandas.DataFrame, dict[str, LanguageModel], dict[str, Device]]:
    """The rows of decoders with a known configuration (encoder-decoders and RWKV are left out), models, devices."""
    models: dict[str, LanguageModel] = {}
    for name in table.model.unique():
        try:
            found = language_model(name)
        except PerfPassError:
            continue
        if not found.is_encoder_decoder and found.heads:
            models[name] = found
    table = table[table.model.isin(list(models))].reset_index(drop=True)
    return table, models, {name: device(name) for name in table.device.unique()}


def _architectures(rows: Rows, names: Any) -> np.ndarray:
    """Per row the first name of a model with the same counts: fine-tuned models of one architecture are one."""
    keys = [repr(tuple(np.round(t, 4))) for t in rows.traits]
    named: dict[str, str] = {}
    for key, name in zip(keys, names, strict=True):
        named.setdefault(key, name)
    return np.array([named[key] for key in keys], dtype=object)


def _serving(table: pandas.DataFrame) -> tuple[Quantity, Quantity]:
    table, models, devices = _readable(table)
    served = []
    for r in table.itertuples():
        task = task_of(r.task)
        prompt = features.PROMPT_TOKENS[task] + features.IMAGE_TOKENS.get(r.model, 0)
        served.append(
            features.Served(
                models[r.model], devices[r.device], int(r.n_devices), r.mean_batch, prompt, r.output_tokens, task
            )
        )
    rows = features.serving_rows(served)
    at_rate = features.serving_at_rate_rows(served, table.throughput_per_s)
    per_token, models_of = table.power_w / table.throughput_per_s, _architectures(rows, table.model)
    return (
        _quantity("serving_energy", "J/token", features.SERVING, rows, per_token, table, models_of),
        _quantity("serving_energy_at_rate", "J/token", features.SERVING_AT_RATE, at_rate, per_token, table, models_of),
    )


def _batch1(table: pandas.DataFrame) -> Quantity:
    table, models, devices = _readable(table)
    prompt = features.PROMPT_TOKENS["chat"]
    served = [
        features.Served(models[r.model], devices[r.device], 1, 1.0, prompt, r.output_tokens, r.task)
        for r in table.itertuples()
    ]
    rows = features.batch1_rows(served)
    return _quantity(
        "batch1_energy", "J/response", features.BATCH1, rows, table.energy_j, table, _architectures(rows, table.model)
    )


def _diffusion(table: pandas.DataFrame) -> Quantity:
    table = table.reset_index(drop=True)
    runs = []
    for r in table.itertuples():
        width, height = (int(v) for v in r.resolution.split("x"))
        total, denoising = DIFFUSION_PARAMETERS[r.model]
        runs.append(
            features.Diffused(
                device(r.device), r.model, r.task, total, denoising, width, height, int(r.steps), max(int(r.frames), 1),
                int(r.batch),
            )
        )  # fmt: skip
    rows = features.diffusion_rows(runs)
    each = table.energy_j / table.batch
    return _quantity("diffusion_energy", "J/sample", features.DIFFUSION, rows, each, table, table.model)


def _offline_power(table: pandas.DataFrame) -> Quantity:
    """Runs within the model's context: beyond it splitwise's mean power falls to idle, so generation had stopped."""
    table, models, devices = _readable(table)
    longest = table.model.map({name: model.max_positions or np.inf for name, model in models.items()})
    table = table[(table.input_tokens <= longest) | (table.source != "splitwise")].reset_index(drop=True)
    runs = [
        features.Offline(
            models[r.model], devices[r.device], int(r.n_devices), r.runtime, int(r.batch), int(r.input_tokens),
            int(r.output_tokens), r.source,
        )
        for r in table.itertuples()
    ]  # fmt: skip
    rows = features.offline_power_rows(runs)
    return _quantity(
        "offline_power", "W", features.OFFLINE_POWER, rows, table.power_w, table, table.model, source=table.source
    )


def _training_power(table: pandas.DataFrame) -> Quantity:
    table = table.reset_index(drop=True)
    devices = {name: device(name) for name in table.device.unique()}
    runs = [
        features.Trained(devices[r.device], r.model, r.dataset, int(r.batch), r.power_limit_w)
        for r in table.itertuples()
    ]
    rows = features.training_power_rows(runs)
    return _quantity("training_power", "W", features.TRAINING_POWER, rows, table.power_w, table, table.model)


def _server_power(table: pandas.DataFrame) -> Quantity:
    """Servers whose board the catalogue has, of single devices, not derived and not of the network division."""
    table = table[table.listed & table.power_w.notna() & (table.n_devices > 0)]
    table = table[~table.caveats.str.contains("network_division|virtual_gpu|derived")].reset_index(drop=True)
    known: dict[str, Device] = {}
    for name in table.device.unique():
        try:
            known[name] = device(name)
        except DeviceError:
            continue
    runs = [
        features.Server(known[r.device], int(r.n_devices), r.model, r.scenario, r.organization)
        for r in table.itertuples()
    ]
    rows = features.server_power_rows(runs)
    return _quantity(
        "server_power", "W", features.SERVER_POWER, rows, table.power_w, table, table.model, system=table.system
    )
