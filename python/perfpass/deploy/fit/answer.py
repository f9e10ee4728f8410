"""`perfpass.fit`: will it fit, before anything is downloaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perfpass.deploy.fit import changes as tried
from perfpass.deploy.fit.changes import Ask
from perfpass.deploy.fit.need import Need, shown_in_use
from perfpass.deploy.fit.result import Board, DeviceFit, Fit, Largest
from perfpass.deploy.fit.settings import NEWEST, RUNTIMES, Load, Settings, computed
from perfpass.deploy.fit.subject import Subject, check_usable, subject
from perfpass.devices import Device
from perfpass.devices import device as find_device
from perfpass.errors import ArgumentError
from perfpass.llm.assumed import check_together
from perfpass.llm.costs import GGUF_BITS, file_type
from perfpass.llm.in_use import given_by_default
from perfpass.llm.serving import beyond_positions, check_runtime, check_split
from perfpass.prediction import Interval
from perfpass.text import size, unknown

_CONTEXT = 8192
_CONFIDENCE = 0.9
_OF_LANGUAGE = (
    "context", "kv_cache", "tp", "pp", "utilization", "gpu_layers", "offload_gib", "max_sequences", "runtime_version",
    "concurrency",
)  # fmt: skip
_OF_NETWORKS = ("batch", "dims", "input_shape", "mode", "optimizer", "layout")


def fit(
    model: Any,
    device: str | Device | Sequence[str | Device] | None = None,
    *,
    runtime: str | None = None,
    precision: str | None = None,
    confidence: float = _CONFIDENCE,
    context: int | None = None,
    concurrency: int | None = None,
    kv_cache: str | None = None,
    tp: int | None = None,
    pp: int | None = None,
    utilization: float | None = None,
    gpu_layers: int | None = None,
    host_experts: int | None = None,
    cache_on_host: bool = False,
    memory_map: bool = True,
    step_tokens: int | None = None,
    offload_gib: float | None = None,
    max_sequences: int | None = None,
    runtime_version: str | None = None,
    batch: int | None = None,
    dims: Mapping[str, int] | None = None,
    input_shape: Any = None,
    mode: str | None = None,
    optimizer: str | None = None,
    layout: str | None = None,
) -> Fit:
    """Whether ``model`` fits on ``device`` (one or several), from headers and configurations alone.

    ``model``: a name of the hub or of a shipped configuration, a folder, a config.json or its content, a safetensors or
    GGUF file or the header of one, an ONNX file, ``timm:NAME``, or what `perfpass.predict` takes. Without ``device``:
    the smallest devices that hold it, all boards that do, the cheapest, and what would make it fit below them.

    Of language models: ``context`` tokens a sequence (prompt and answer; assumed: 8,192, or the model's positions) and
    ``concurrency`` sequences at once (1); ``runtime`` vllm (assumed; llama.cpp for GGUF), sglang, trtllm, llama.cpp,
    transformers; ``precision`` of the weights (as stored), ``kv_cache`` its type; ``tp``, ``pp`` and the rest as
    `perfpass.deploy.fit.settings.Settings` says, ``runtime_version`` of vLLM or SGLang (assumed: the newest). Of other
    networks: ``batch``, ``dims``, ``input_shape``, ``mode``, ``optimizer``, ``layout``, ``precision`` and ``runtime``
    as `perfpass.predict` takes them.

    It fits where the probability is at least ``confidence``, does not where it is at most 1 - ``confidence``; between
    them the answer is that it cannot be said. Raises ArgumentError, DeviceError, and what reading the model raises
    (FileError, FormatError, LimitError, UnsupportedError).
    """
    if isinstance(confidence, bool) or not isinstance(confidence, (int, float)) or not 0.5 < confidence < 1:
        raise ArgumentError(f"confidence must be above 0.5 and below 1, got {confidence!r}")
    targets = _devices(device)
    found = subject(model)
    check_usable(found)
    given: dict[str, Any] = {
        "context": context, "concurrency": concurrency, "kv_cache": kv_cache, "tp": tp, "pp": pp,
        "utilization": utilization, "gpu_layers": gpu_layers, "offload_gib": offload_gib,
        "max_sequences": max_sequences, "runtime_version": runtime_version,
        "batch": batch, "dims": dims, "input_shape": input_shape, "mode": mode, "optimizer": optimizer,
        "layout": layout,
    }  # fmt: skip
    if found.network is not None:
        _refuse(given, _OF_LANGUAGE, f"{found.name} is no language model that is served token by token")
        return _network(found, targets, runtime, precision, confidence, {k: given[k] for k in _OF_NETWORKS})
    if mode == "training":
        raise ArgumentError(
            f"{found.name} is a language model, whose running is asked here; its training is asked with "
            f"`perfpass predict {found.name} --mode training` (a step on one device) or `perfpass train-cost` "
            "(also with adapters, --lora-rank, and on many)"
        )
    _refuse(given, _OF_NETWORKS, f"{found.name} is a language model; its load is context and concurrency")
    stack = runtime or ("llama.cpp" if _is_packed(found) else "vllm")
    if stack not in RUNTIMES:
        raise ArgumentError(unknown("runtime", stack, RUNTIMES))
    settings = Settings(
        runtime=stack,
        tp=1 if tp is None else tp,
        pp=1 if pp is None else pp,
        precision=precision,
        kv_cache=kv_cache,
        utilization=utilization,
        gpu_layers=gpu_layers,
        host_experts=host_experts or 0,
        cache_on_host=cache_on_host,
        memory_map=memory_map,
        step_tokens=step_tokens,
        offload_gib=offload_gib or 0.0,
        max_sequences=max_sequences,
        runtime_version=runtime_version or "",
    )
    if found.language is None:
        return _weights_alone(found, targets, settings, confidence)
    check_split(found.language, settings.split.tensor, settings.split.pipeline)
    if host_experts and not found.language.is_mixture:
        raise ArgumentError(f"{found.language.name} has no experts to leave on the host; leave host_experts out")
    positions = found.language.max_positions
    load = Load(
        min(_CONTEXT, positions or _CONTEXT) if context is None else context, 1 if concurrency is None else concurrency
    )
    if max_sequences is not None and load.sequences > max_sequences:
        raise ArgumentError(
            f"concurrency is {load.sequences:,}, of which vLLM runs {max_sequences:,} at once (max_sequences): the "
            f"others wait, and take no memory; give a concurrency of {max_sequences:,} at most"
        )
    if load.context <= (window := found.language.window):
        raise ArgumentError(
            f"a context of {load.context:,} tokens holds no answer of {found.language.name}, whose window of sound has "
            f"{window:,} positions; it may have {window + 1:,} to {positions:,}, or leave it out"
        )
    return _language(found, targets, settings, load, confidence, given, runtime)


def _devices(device: Any) -> tuple[Device, ...]:
    if device is None:
        return ()
    asked = [device] if isinstance(device, (str, Device)) else list(device)
    if not asked:
        raise ArgumentError("no device is given; name one, or leave device out")
    return tuple(find_device(one) for one in asked)


def _refuse(given: Mapping[str, Any], names: Sequence[str], why: str) -> None:
    wrong = next((name for name in names if given[name] is not None), None)
    if wrong is not None:
        raise ArgumentError(f"{wrong} has no meaning here: {why}")


def _is_packed(found: Subject) -> bool:
    """Whether the weights are those of a file of llama.cpp, or a name says so."""
    return found.packed or (found.language is not None and found.language.stored_as in GGUF_BITS)


def _language(
    found: Subject,
    targets: tuple[Device, ...],
    settings: Settings,
    load: Load,
    confidence: float,
    given: Mapping[str, Any],
    runtime: str | None,
) -> Fit:
    language = found.language
    assert language is not None
    changed = []
    for target in targets:
        if not target.is_gpu and settings.runtime != "llama.cpp":
            raise ArgumentError(
                f"{target.id}: {RUNTIMES[settings.runtime]} is counted on GPUs; choose one, or llama.cpp"
            )
        check_runtime(settings.runtime, target)
        check_together(target, settings.gpus)
        changed.append(computed(language, target, settings))
    asks = [Ask(found, target, settings, load, confidence) for target in targets]
    where = None
    if not targets:
        from perfpass.deploy.fit.anywhere import VENDOR, anywhere

        any_ask = Ask(found, find_device(VENDOR), settings, load, confidence)
        where = anywhere(any_ask.device, lambda one: _held(any_ask, one), lambda one: tried.runs_on(any_ask, one))
        asks = [any_ask.with_(device=one) for one in where.smallest]
    answers: list[DeviceFit] = []
    loaded: list[tuple[str, str]] = []
    for ask in asks:
        need = ask.need()
        loaded.append((need.precision, need.cache_type))
        answers.append(_answered(ask, need, whole=bool(targets)))
    notes = [*found.notes, *filter(None, changed)]
    notes += [
        f"{one.id} is counted with {size(one.usable_bytes)}, the most it is sold with (a device file has yours); "
        + by_itself
        for one in targets
        if (by_itself := given_by_default(one).words)
    ]
    if settings.runtime == "llama.cpp" and settings.precision is None:
        own = language.experts_stored_as
        if by_file := file_type(language.stored_as, own):
            notes.append(f"{by_file} is of llama.cpp's own file of it, whose experts stay in {own}")
    if long := beyond_positions(language, load.context):
        notes.append(long)
    assumed = [name for name in ("context", "concurrency") if given[name] is None]
    assumed += ["runtime"] if runtime is None else []
    counted_as = settings.runtime_version or NEWEST.get(settings.runtime)
    assumed += ["runtime_version"] if counted_as and not settings.runtime_version else []
    said: dict[str, Any] = {
        name: value
        for name, value in vars(settings).items()
        if value not in (None, 0, 0.0, False, "") and not (name in ("tp", "pp") and value == 1) and name != "memory_map"
    }
    if counted_as:
        said["runtime_version"] = counted_as
    if loaded:  # of several devices each that one of them loads: notes say which
        weights, caches = (" and ".join(dict.fromkeys(kinds)) for kinds in zip(*loaded, strict=True))
        said |= {"precision": weights, "kv_cache": caches}
    return Fit(
        model=found.name,
        kind="language model",
        parameters=found.parameters,
        runtime=RUNTIMES[settings.runtime],
        confidence=confidence,
        answers=tuple(answers),
        load={"context": load.context, "concurrency": load.sequences},
        settings=said,
        weights_basis=found.basis,
        assumed=tuple(assumed),
        notes=tuple(notes),
        asked=bool(targets),
        boards=where.boards if where else (),
        below=_below(any_ask.with_(device=where.below)) if where and where.below else None,
    )


def _held(ask: Ask, other: Device) -> tuple[float, float] | None:
    found = tried.held_by(ask, other)
    return None if found is None else (found.probability, found.needed.median)


def _below(ask: Ask) -> DeviceFit:
    return _answered(ask, ask.need(), whole=True)


def _answered(ask: Ask, need: Need, *, whole: bool) -> DeviceFit:
    """``whole``: with what still fits, and what would."""
    language = ask.subject.language
    assert language is not None
    answer = need.answer(ask.confidence)
    shown, basis = None, ""
    if answer != "no":
        shown, basis = shown_in_use(ask.subject, ask.device, ask.settings, ask.load, need)
    return DeviceFit(
        device=ask.device.id,
        device_name=ask.device.name,
        gpus=ask.settings.gpus,
        answer=answer,
        probability=need.probability,
        needed=need.needed,
        limit_bytes=int(need.limit_bytes),
        limit=need.binding,
        memory_bytes=ask.device.usable_bytes,
        parts={
            "weights": int(need.weights),
            "cache": int(need.cache_bytes),
            "activations": int(need.activations),
            "runtime": int(need.runtime),
        },
        cache={name: int(value) for name, value in need.cache.items() if value},
        host_bytes=int(need.host_bytes),
        host=_host(ask, need),
        in_use=shown,
        basis=basis,
        largest=tried.largest(ask, language.max_positions) if whole else Largest(),
        reason=_reason(need, answer),
        changes=tried.changes(ask, language.max_positions) if whole and answer != "yes" else (),
    )


def _host(ask: Ask, need: Need) -> str:
    """How the host holds what stays there."""
    if not need.host_bytes or ask.settings.runtime != "llama.cpp":
        return ""
    if not ask.settings.memory_map:
        return "read into its memory"
    return "weights mapped: read from the file again where memory is short"


def _reason(need: Need, answer: str) -> str:
    """Why not, in a sentence; empty where it fits."""
    if answer == "yes":
        return ""
    room = size(need.limit_bytes)
    if need.weights > need.limit_bytes:
        return f"weights of {size(need.weights)} alone are over the {room} that may be filled"
    least = need.least.median
    if least > need.limit_bytes:
        each = size(need.parts.each)
        return (
            f"weights of {size(need.weights)} leave no room in {room} for the {each} of one sequence and what runs it"
        )
    if need.needed.median > need.limit_bytes:
        return (
            f"one sequence would do with {size(least)}, but all of them, with {size(need.cache_bytes)} of cache, need "
            f"{size(need.needed.median)}, and {room} may be filled"
        )
    return f"{size(need.needed.median)} are likely, but up to {size(need.needed.high)} possible in {room}"


def _weights_alone(found: Subject, targets: tuple[Device, ...], settings: Settings, confidence: float) -> Fit:
    """A header without a configuration: what a sequence keeps is not known, so it can only be said not to fit."""
    assert found.placed is not None
    if not targets:
        raise ArgumentError(f"{found.name} has weights and no configuration; name a --device, or give its config.json")
    size_on = found.placed.total / settings.gpus
    answers = []
    for target in targets:
        share = settings.utilization or 1.0
        limit = target.usable_bytes * share
        over = size_on > limit
        answers.append(
            DeviceFit(
                device=target.id,
                device_name=target.name,
                gpus=settings.gpus,
                answer="no" if over else "cannot say",
                probability=0.0 if over else None,
                needed=Interval(size_on, size_on, max(size_on, limit), "byte"),
                limit_bytes=int(limit),
                limit="",
                memory_bytes=target.usable_bytes,
                parts={"weights": int(size_on)},
                cache={},
                reason=f"weights of {size(size_on)} alone are over it"
                if over
                else f"weights take {size(size_on)}; cache and activations are not known without the config.json",
            )
        )
    return Fit(
        model=found.name,
        kind="weights alone",
        parameters=found.parameters,
        runtime=RUNTIMES[settings.runtime],
        confidence=confidence,
        answers=tuple(answers),
        load={},
        settings={},
        weights_basis=found.basis,
        notes=found.notes,
    )


def _network(
    found: Subject,
    targets: tuple[Device, ...],
    runtime: str | None,
    precision: str | None,
    confidence: float,
    given: Mapping[str, Any],
) -> Fit:
    from perfpass.deploy.fit.networks import Network, Workload, fitted
    from perfpass.predictors.workload import RUNTIMES as RUN_BY
    from perfpass.predictors.workload import told_otherwise

    stack = runtime or "torch"
    if stack not in RUN_BY:
        raise ArgumentError(
            f"{found.name} is no language model that is served token by token; {unknown('runtime', stack, RUN_BY)}"
        )
    sizes = {name: given[name] for name in ("batch", "dims", "input_shape")}
    how = {name: given[name] for name in ("mode", "optimizer", "layout") if given[name] is not None}
    workload = Workload(sizes, {**how, "runtime": stack, "precision": precision or "fp32"}, confidence)
    network = Network(found.network, workload)
    below: DeviceFit | None = None
    boards: tuple[Board, ...] = ()
    answers = []
    for target in targets:
        one, last = fitted(network, target, workload)
        answers.append(one)
    if not targets:
        from perfpass.deploy.fit.anywhere import VENDOR, anywhere

        first = find_device(VENDOR)
        # A step's memory is recorded anew on each device, which takes seconds: one is asked, and told.
        here = network.predicted(first).memory.in_use if network.trains else None
        asked = network.question(first, here)
        where = anywhere(first, lambda one: asked.holds(device=one), network.runs_on)
        if where.below is not None:
            below, last = fitted(network, where.below, workload)
        for target in where.smallest:
            one, last = fitted(network, target, workload)
            answers += [one] if one.answer == "yes" else []
            if answers and network.trains:
                break
        least = min((one.memory_bytes for one in answers), default=0)
        boards = tuple(one for one in where.boards if one.memory_bytes >= least)
    ran = {name: last.workload[name] for name in ("precision", "mode", "runtime")}
    return Fit(
        model=found.name,
        kind="network",
        parameters=int(last.provenance["graph"]["parameters"]),
        runtime=stack,
        confidence=confidence,
        answers=tuple(answers),
        load={"batch": int(last.workload["batch"])},
        settings=ran,
        weights_basis="its graph",
        assumed=tuple(name for name, value in (("precision", precision), ("runtime", runtime)) if value is None),
        notes=(*found.notes, *told_otherwise(network.graph, last.workload["precision"])),
        asked=bool(targets),
        boards=boards,
        below=below,
    )
