"""`sweep`: every combination of what is asked, each a point with its figures or the reason why there are none."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from perfpass.deploy import money
from perfpass.deploy.sweep import networks, served
from perfpass.deploy.sweep.result import Sweep, joined
from perfpass.devices import Device
from perfpass.devices import device as find_device
from perfpass.errors import ArgumentError, DeviceError, LimitError, PerfPassError, UnsupportedError, missing_package
from perfpass.graph import OpGraph
from perfpass.llm import LanguageModel, assumed, language_model
from perfpass.llm.serving import CONCURRENCY
from perfpass.text import shown_value

MOST_POINTS = 5_000_000
_LARGEST = 10_000_000  # of a length, as `perfpass.llm.serving.Serving` takes it
_LLM_ALONE = ("input_lengths", "output_lengths", "concurrencies", *served.SPLIT)
_NETWORK_ALONE = ("batches", "layouts", "dims", "input_shape")
Column = dict[str, np.ndarray]


@dataclass(frozen=True)
class _Task:
    """A part of a sweep that stands for itself: ``answer(*arguments)`` gives the columns of ``points`` points."""

    answer: Callable[..., Column]
    arguments: tuple[Any, ...]
    points: int


def sweep(
    model: Any,
    devices: Sequence[str | Device] | None = None,
    *,
    slices: bool = False,
    precisions: Sequence[str] | None = None,
    runtimes: Sequence[str] | None = None,
    batches: Sequence[int] | None = None,
    layouts: Sequence[str] | None = None,
    cuda_graph: bool = False,
    dims: Mapping[str, int | Sequence[int]] | None = None,
    input_shape: Any = None,
    input_lengths: Sequence[int] | None = None,
    output_lengths: Sequence[int] | None = None,
    concurrencies: Sequence[float] | None = None,
    tensor_parallel: Sequence[int] | None = None,
    pipeline_parallel: Sequence[int] | None = None,
    data_parallel: Sequence[int] | None = None,
    expert_parallel: Sequence[int] | None = None,
    every_split: bool = False,
    energy: bool = False,
    price_table: str | os.PathLike[str] | None = None,
    progress: bool = False,
    ray: bool = False,
) -> Sweep:
    """Every combination of devices, precisions, runtimes, splits, batches and loads, priced, for one model.

    ``model``: as `perfpass.predict` takes it, or a language model that writes text as `perfpass.predict_llm` takes it,
    which is served (a sequence, one run of it, is a network's question: give ``batches``). ``devices`` None: those that
    the price table has. ``slices``: also every MIG profile of each. Of a network: ``precisions`` (fp32), ``runtimes``
    (torch), ``layouts`` (nchw), ``batches`` (1), ``dims``, one size of a dimension or several, and ``cuda_graph``, as
    `perfpass.predict` takes it. Served:
    ``precisions`` (what is stored), ``runtimes`` (vllm), ``tensor_parallel`` (1, 2, 4, 8 where the device works with
    others), ``pipeline_parallel``, ``data_parallel`` (ranks of attention) and ``expert_parallel`` (1 each),
    ``input_lengths`` (1,024), ``output_lengths`` (128), ``concurrencies`` (1) of a replica; ``every_split``: where no
    split is given, all that are worth asking of a device (`perfpass.deploy.sweep.splits`); ``energy`` adds joules and
    watts, which a network always has. ``progress``: a bar on stderr where that is a terminal and tqdm is installed;
    ``ray``: parts run as tasks of Ray.

    A combination that cannot be asked is a point with its ``problem``. Raises ArgumentError, DeviceError for an unknown
    device, LimitError over 5,000,000 points, UnsupportedError without Ray, and what reading the model raises.
    """
    given = {name for name, value in locals().items() if value is not None}
    prices = money.read_prices(price_table)
    targets = boards(devices, prices, slices=slices)
    usd, notes = priced(targets, prices)
    read = served_model(model, given)
    settings: tuple[str, ...]
    order = None
    if read is None:
        if energy_only := [name for name in _LLM_ALONE if name in given]:
            raise ArgumentError(f"{energy_only[0]} is of a served language model, and {_named(model)} is a network")
        ways = [
            networks.Way(p, r, layout, cuda_graph)
            for p in precisions or ("fp32",)
            for r in runtimes or ("torch",)
            for layout in layouts or ("nchw",)
        ]
        dims, swept = _swept(dims)
        if batches is None and networks.BATCH in swept:
            batches = swept.pop(networks.BATCH)
        if clash := set(swept) & {*networks.SETTINGS, *networks.FIGURES, networks.PRICED, "support", "problem"}:
            raise ArgumentError(f"dims {min(clash)}: a column of the sweep has this name; give it one size")
        sizes = _wholes("batches", batches or (1,))
        at = [dict(zip(swept, each, strict=True)) for each in product(*swept.values())]
        _few(len(ways) * len(at) * len(sizes) * len(targets))
        tasks = []
        for point in at:
            run = (model, sizes, {**dims, **point} or None, input_shape)
            graphs = None if ray else _read(run, point)
            tasks += [
                _Task(_network, (run, graphs, targets, way, usd, point), len(targets) * len(sizes)) for way in ways
            ]
        settings, figures = (*networks.SETTINGS, *swept), (*networks.FIGURES, networks.PRICED)
        notes = (*notes, networks.REPLAYED) if cuda_graph else notes
    else:
        if cuda_graph:
            raise ArgumentError(
                f"cuda_graph is of a network's run, and {_named(model)} is served by an engine that captures graphs of "
                "its own; leave it out, or ask for one pass with batches"
            )
        served.check_runtimes(runtimes or ())
        lengths = assumed.lengths(read, None, None)
        inputs = _wholes("input_lengths", input_lengths or lengths[:1])
        outputs = _wholes("output_lengths", output_lengths or lengths[1:])
        in_flight = _loads(concurrencies or (float(assumed.CONCURRENCY),))
        given_ranks = (tensor_parallel, pipeline_parallel, data_parallel, expert_parallel)
        ranks = [_wholes(name, values or ()) for name, values in zip(served.SPLIT, given_ranks, strict=True)]
        length = max(inputs) + max(outputs) if every_split and not any(ranks) else None
        each = [
            one
            for board, precision, runtime in product(targets, precisions or (None,), runtimes or (assumed.RUNTIME,))
            for one in served.deployments(read, board, precision, runtime, ranks, length)
        ]
        _few(len(each) * len(inputs) * len(outputs) * len(in_flight))
        load = served.loads(inputs, outputs, in_flight)
        # What is shared is so within one process; Ray's have a deployment each.
        groups, points = [[i] for i in range(len(each))] if ray else _alike(each), len(load.concurrency)
        tasks = [
            _Task(_deployments, (read, [each[i] for i in group], load, usd, energy), len(group) * points)
            for group in groups
        ]
        order = np.argsort(np.repeat([i for group in groups for i in group], points), kind="stable")
        settings, figures = served.SETTINGS, (*served.FIGURES, *(served.ENERGY if energy else ()), served.PRICED)
    parts = _watched(_by_ray(tasks) if ray else (t.answer(*t.arguments) for t in tasks), tasks, progress)
    found = joined(list(parts))
    if order is not None:
        found = {name: column[order] for name, column in found.items()}
    return Sweep(_named(model), settings, figures, found, notes)


def boards(
    devices: Sequence[str | Device] | None, prices: Sequence[money.Price], *, slices: bool
) -> tuple[Device, ...]:
    """The devices of a sweep, each once: those named, or all GPUs of the price table; with their MIG slices if asked.

    Raises ArgumentError for none at all, DeviceError for an unknown one.
    """
    if devices is not None and not devices:
        raise ArgumentError("no device; name at least one, or leave devices out for those of the price table")
    if devices is None:
        wanted = [find_device(name) for name in dict.fromkeys(row.device for row in prices)]
        wanted = [device for device in wanted if device.is_gpu]
    else:
        wanted = [find_device(device) for device in devices]
    found: dict[str, Device] = {}
    for device in wanted:
        found[device.id] = device
        if slices and device.mig is not None and device.mig_profile is None:
            for profile in device.mig.profiles:
                if profile.memory_slices < device.mig.memory_slices and not profile.name.endswith("+me"):
                    one = find_device(f"{device.id}:{profile.name}")
                    found[one.id] = one
    return tuple(found.values())


def priced(targets: Sequence[Device], prices: Sequence[money.Price]) -> tuple[dict[str, float], tuple[str, ...]]:
    """USD an hour by device, NaN where the table has none, and where the prices come from."""
    usd: dict[str, float] = {}
    said: dict[str, None] = {}
    for device in targets:
        try:
            price = money.price(device, prices)
            usd[device.id] = price.usd_per_hour
            said[f"price of {device.parent or device.id}: {_whole_price(device, prices)}"] = None
        except DeviceError:
            usd[device.id] = float("nan")
            said[f"no price of {device.parent or device.id} in the table: add a row in a table of your own"] = None
    return usd, tuple(said)


def _whole_price(device: Device, prices: Sequence[money.Price]) -> str:
    price = money.price(device.parent or device, prices)
    return f"{price}; {price.source}"


def served_model(model: Any, given: Collection[str]) -> LanguageModel | None:
    """The language model that is served, or None for a network; ``given``: the arguments of `sweep` that are set.

    Raises what reading a configuration raises.
    """
    if isinstance(model, LanguageModel):
        return model
    if set(given) & set(_NETWORK_ALONE) or not isinstance(model, (str, os.PathLike, dict)):
        return None
    try:
        return language_model(model)
    except UnsupportedError:
        return None


def _named(model: Any) -> str:
    if isinstance(model, LanguageModel):
        return model.name
    return os.path.basename(os.fspath(model)) if isinstance(model, (str, os.PathLike)) else type(model).__name__


def _swept(dims: Mapping[str, Any] | None) -> tuple[dict[str, int], dict[str, list[int]]]:
    """Those of one size, and those of several."""
    several = {
        name: _wholes(name, sizes) for name, sizes in (dims or {}).items() if isinstance(sizes, (list, tuple, range))
    }
    return {name: size for name, size in (dims or {}).items() if name not in several}, several


def _wholes(name: str, values: Iterable[Any]) -> list[int]:
    out = list(dict.fromkeys(values))
    for value in out:
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _LARGEST:
            raise ArgumentError(f"{name} must be whole numbers from 1 to {_LARGEST:,}, got {shown_value(value)}")
    return out


def _loads(values: Iterable[Any]) -> list[float]:
    out, (least, most) = list(dict.fromkeys(values)), CONCURRENCY
    for value in out:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
            raise ArgumentError(f"concurrencies must be from {least} to {most:,}, got {shown_value(value)}")
    return [float(value) for value in out]


def _few(points: int) -> None:
    if points > MOST_POINTS:
        raise LimitError(f"{points:,} points; a sweep has at most {MOST_POINTS:,}: ask it in parts")


def _read(run: tuple[Any, ...], point: Mapping[str, int]) -> Sequence[OpGraph | PerfPassError]:
    """The model at every batch; at a size that it does not have, why."""
    try:
        return networks.graphs(*run)
    except PerfPassError as error:
        if not point:
            raise
        return [error] * len(run[1])


def _network(
    run: tuple[Any, ...],
    graphs: Any,
    targets: Sequence[Device],
    way: networks.Way,
    usd: Mapping[str, float],
    point: Mapping[str, int],
) -> Column:
    found = networks.answered(graphs or _read(run, point), run[1], targets, way, usd)
    return found | {name: np.full(len(found["problem"]), size, dtype=np.int64) for name, size in point.items()}


def _alike(each: Sequence[served.Deployment]) -> list[list[int]]:
    """Places of deployments that differ in the device alone."""
    found: dict[Any, list[int]] = {}
    for i, one in enumerate(each):
        found.setdefault((one.precision, one.runtime, one.split), []).append(i)
    return list(found.values())


def _deployments(
    model: LanguageModel, deployments: Sequence[served.Deployment], load: Any, usd: Mapping[str, float], energy: bool
) -> Column:
    return served.answered(model, deployments, load, usd, energy=energy)


def _by_ray(tasks: Sequence[_Task]) -> Iterator[Column]:
    """The answers of all tasks, in their order, from the Ray that runs or one started here."""
    try:
        import ray
    except ImportError as error:
        raise missing_package(error, "ray", "a sweep by Ray") from None
    ray.init(ignore_reinit_error=True, log_to_driver=False)
    answer: Any = ray.remote(lambda task: task.answer(*task.arguments))
    for found in [answer.remote(task) for task in tasks]:
        yield ray.get(found)


def _watched(parts: Iterable[Column], tasks: Sequence[_Task], progress: bool) -> Iterator[Column]:
    """``parts`` as they come, with a bar of their points where it is wanted and can be shown."""
    bar = None
    if progress:
        try:
            from tqdm import tqdm

            bar = tqdm(total=sum(task.points for task in tasks), unit=" points", unit_scale=True, disable=None)
        except ImportError:  # a bar is a convenience
            bar = None
    for task, part in zip(tasks, parts, strict=True):
        yield part
        if bar is not None:
            bar.update(task.points)
    if bar is not None:
        bar.close()
