"""From a model to a Prediction: read, count, plan, estimate, and put the answer together."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.decision import Limits
from perfpass.devices import Device
from perfpass.devices import device as find_device
from perfpass.errors import ArgumentError
from perfpass.graph import DTYPES, OpGraph
from perfpass.graph.saved import saved_activations
from perfpass.prediction import SUPPORT_LEVELS, Interval, MigHint, Prediction, Support, SupportLevel
from perfpass.predictors import loads, quantisation, registry
from perfpass.predictors import sparsity as sparse
from perfpass.predictors.breakdown import TOP_OPERATORS, breakdown
from perfpass.predictors.decided import decided
from perfpass.predictors.estimate import Estimate, PlannedRun, Run
from perfpass.predictors.inference.fusion import as_run
from perfpass.predictors.judged import judged
from perfpass.predictors.lane import UNITS, Lane, level_of_graphs
from perfpass.predictors.learned import width_words
from perfpass.predictors.memory import allocation, process
from perfpass.predictors.memory.allowance import in_a_slice
from perfpass.predictors.mig.profile import hint
from perfpass.predictors.relative.question import Asked, kept
from perfpass.predictors.workload import PRECISIONS, check, check_batch, leading_dim, own_name, told_otherwise
from perfpass.text import shown_value

if TYPE_CHECKING:
    from perfpass.graph.costs import Costs
    from perfpass.predictors.calibration.posterior import Calibration
    from perfpass.predictors.calibration.schedules import Schedules
    from perfpass.predictors.remedies import AtBatch

_PLANNED = ("precision", "runtime", "layout")  # what a plan of memory asks of inference


def predict(
    model: Any,
    device: str | Device,
    *,
    batch: int | None = None,
    input_shape: Any = None,
    precision: str = "fp32",
    mode: str = "inference",
    runtime: str = "torch",
    layout: str = "nchw",
    dims: Mapping[str, int] | None = None,
    optimizer: str | None = None,
    frozen: Sequence[str] = (),
    assume: Mapping[str, int] | None = None,
    sparsity: str | None = None,
    cuda_graph: bool = False,
    calibration: bool | Calibration | Schedules = True,
    processes: int | None = None,
    predictor: str = registry.DEFAULT,
    limits: Limits | None = None,
) -> Prediction:
    """What one run of ``model`` costs on ``device``.

    ``model``: a path to an ONNX file or a Hugging Face ``config.json``, the folder of either, its content, the name
    of a known network (of a shipped configuration, of timm, torchvision or `perfpass.importers.definitions`),
    ``timm:NAME``, ``torchvision:NAME``, the bytes of a ModelProto, an ``onnx.ModelProto``, a ``torch.nn.Module`` on
    any device (with ``input_shape``, without the batch), a Relay ``tvm.IRModule`` or an OpGraph.
    ``device``: a name, id or alias (``perfpass.device``), with a MIG profile after a colon if only a slice is meant, or
    "cpu" for this machine. ``batch``: the model's own if None; an OpGraph and a TVM module have theirs in their
    shapes, and another is refused. ``precision``: fp64, fp32, tf32, fp16, bf16, amp (fp16 autocast), amp_bf16, int8,
    fp8, w8a8, w8a16, w4a16 or nf4. ``runtime``: torch, torch.compile, onnxruntime, tensorrt, tvm (Relay) or relax.
    ``layout``: nchw or nhwc. ``dims``: values of symbolic dimensions by name. ``mode``: inference, or training: one
    step (forward, backward, optimizer), derived from the forward graph; ``optimizer``: none, sgd, momentum (the
    default), adam or adamw, for training alone. ``frozen``, for training alone: parameters that are not trained, by
    their names, those of the modules that hold them, or patterns (``encoder``, ``*.bias``; initializers of an ONNX
    file); those of a torch module that do not require a gradient are frozen without being named. ``assume``: the load,
    where the model's own values decide it: ``{"experts": N}`` shares each layer's tokens evenly
    over N experts of a mixture (all that the tokens can reach if not stated), ``{"detections": N}`` lets
    N boxes an image pass each threshold of a detector (100), ``{"frames": N}`` has a token of a text spoken for N
    frames of sound (2); what is not stated is named in the support and widens the intervals. ``sparsity``: "2:4" where
    every product with weights is so sparse (inference in tensorrt; in torch linear layers alone). ``cuda_graph``: the
    kernels (inference in tensorrt, onnxruntime, or torch.compile in mode "reduce-overhead") are captured once and
    replayed with one call of the host. ``calibration``: True
    takes what `perfpass calibrate` has stored of the device, False ignores it; of inference alone, a Calibration is
    used itself, and so are the Schedules of TVM's tuning records (``tvm_perfpass.read_schedules``). ``processes``
    (inference alone): how many MPS processes share the device, each running the model; the latency is that of one, the
    throughput that of all. ``predictor``: a name of ``perfpass.predictors.registry.PREDICTORS``; published predictors
    answer what they know, and the rest stays ours. ``limits``: what the run is to keep, and how surely; the prediction
    then has a ``decision``, with what the run costs in each MIG slice of the device.

    Raises ArgumentError, DeviceError, UnsupportedError and what reading the model raises (FileError, FormatError,
    LimitError, GraphError, ShapeError).
    """
    from perfpass.importers import load
    from perfpass.importers.model_argument import once, opened, unasked

    target = find_device(device)
    # Before the model is read: a wrong argument should not cost the time of a large one.
    how: dict[str, Any] = {"precision": precision, "mode": mode, "runtime": runtime, "layout": layout}
    check(target, batch=batch, optimizer=optimizer, sparsity=sparsity, cuda_graph=cuda_graph, **how)
    if frozen and mode != "training":
        raise ArgumentError(f"frozen={shown_value(frozen)} needs mode='training'; inference trains nothing")
    registry.check(predictor)
    name, model = _name(model), once(model)
    stored, left = _quantised(model, precision), unasked(model, input_shape, dims)
    model, input_shape, dims = opened(model, input_shape, dims)
    source: dict[str, Any] = {"input_shape": input_shape, "dims": dims, "frozen": frozen}
    graph = load(model, batch=batch, assume=assume, **source)
    graph = replace(graph, unasked=left) if left and not graph.unasked else graph
    how |= {"optimizer": optimizer, "sparsity": sparsity, "cuda_graph": cuda_graph}
    how |= {"calibration": calibration, "processes": processes}

    recorded = mode == "training" and runtime == "torch" and _is_module(model)

    def answer(graph: OpGraph, batch: int | None, device: Device = target, **how: Any) -> Prediction:
        found = _predicted(graph, device, batch=batch, **how)
        if recorded:
            from perfpass.predictors.training_step.assemble import with_recorded_memory

            found = with_recorded_memory(found, model, input_shape, device, graph)
        if mode == "training":
            found = _corrected_step(found, device, name, calibration)
        return registry.answer(predictor, found, graph, device)

    def usual(device: Device) -> Prediction:
        def loaded(load_of: Mapping[str, int]) -> Prediction:
            other = load(model, batch=batch, assume={**(assume or {}), **load_of}, **source)
            return answer(other, batch, device, **how)

        return loads.held(answer(graph, batch, device, **how), graph.assumed, loaded)

    at: AtBatch | None = None
    own = batch

    def memory(*, device: Device | None = None, batch: int | None = None, precision: str | None = None) -> Interval:
        itself = batch in (None, found.workload["batch"]) and precision is None
        if recorded and (device is not None or itself):  # takes seconds, and hardly differs between boards
            return found.memory.in_use
        on, changed = device or target, how if precision is None else {**how, "precision": precision}
        size, other = own, graph
        if batch is not None:
            nonlocal at
            if at is None:
                from perfpass.predictors.remedies import AtBatch

                at = AtBatch(graph, lambda size: load(model, batch=size, assume=assume, **source))
            size, other = batch, at(batch)
        planned = _in_use(other, on, size, changed)
        return answer(other, size, on, **changed).memory.in_use if planned is None else planned

    asked = _asked(graph, target, batch, how, name)
    with kept(asked):
        found = usual(target)
        found = judged(found, target, memory, batch_is_free=True, asked=asked)
        # A step's memory is recorded anew on each device, which takes seconds.
        found = decided(found, target, limits, None if recorded else usual)
    return replace(found, support=_with(found.support, stored)) if stored else found


def _asked(graph: OpGraph, device: Device, batch: int | None, how: Mapping[str, Any], name: str) -> Asked:
    """What was asked, for the evidence behind the answer."""
    counted = ("precision", "mode", "runtime", "layout", "optimizer", "sparsity", "cuda_graph")
    run = {"device": device, "batch": batch, **{key: how[key] for key in counted}}
    return Asked(partial(run_of, graph, **run), how["mode"], name, how["processes"])


def _corrected_step(
    found: Prediction, device: Device, name: str, calibration: bool | Calibration | Schedules
) -> Prediction:
    # Imported here, as all that is of a training step alone: most questions are of inference.
    from perfpass.predictors.calibration.steps import corrected_prediction

    return corrected_prediction(found, device, name, wanted=calibration is True)


def _name(model: Any) -> str:
    """Under which name records may know a model."""
    return os.fsdecode(model) if isinstance(model, (str, os.PathLike)) else type(model).__name__


def _quantised(model: Any, precision: str) -> str:
    """What is left out of a quantised checkpoint's prediction, as a sentence; empty for any other model.

    Raises FormatError and UnsupportedError for a quantisation that is not known.
    """
    from perfpass.importers.model_argument import understood

    if isinstance(model, Mapping):
        name, said, notes, content = "the configuration", "", "", model
    elif not isinstance(model, (str, os.PathLike)):
        return ""
    elif (argument := understood(model)).kind != "hf":
        return "; ".join(argument.notes)
    else:
        name, said, notes = argument.name, argument.stored, "; ".join(argument.notes)
        from perfpass.importers.model_sources import read_configuration

        content = read_configuration(name)
    from perfpass.llm.stored import stored

    kinds = dict.fromkeys((said,) if said else stored(content.get("quantization_config"), name))
    if set(kinds) <= {"bf16", "fp16"}:
        return notes
    return (
        f"the checkpoint stores its weights as {' and '.join(kinds)}; memory and times here are those of the same "
        f"network unquantised, in {precision}: `perfpass llm` counts it as it is stored"
    )


def _with(support: Support, reason: str) -> Support:
    level: SupportLevel = "near" if support.level == "in range" else support.level
    return Support(level, (reason, *support.reasons))


def _is_module(model: Any) -> bool:
    return "torch" in {base.__module__.partition(".")[0] for base in type(model).__mro__}


def predict_graph(
    graph: OpGraph,
    device: str | Device,
    *,
    batch: int | None = None,
    precision: str = "fp32",
    mode: str = "inference",
    runtime: str = "torch",
    layout: str = "nchw",
    optimizer: str | None = None,
    sparsity: str | None = None,
    cuda_graph: bool = False,
    calibration: bool | Calibration | Schedules = True,
    processes: int | None = None,
    limits: Limits | None = None,
) -> Prediction:
    """What one run of an operator graph costs on a device; ``batch`` says how many samples its shapes hold.

    The arguments are those of ``predict``; without ``batch`` the leading dimension of the first input is taken, and one
    that no input holds is an ArgumentError. A training step is derived from the forward graph: a traced step
    (TrainingGraph) is refused.
    """
    how: dict[str, Any] = {"precision": precision, "mode": mode, "runtime": runtime, "layout": layout}
    how |= {"optimizer": optimizer, "sparsity": sparsity, "cuda_graph": cuda_graph}
    how |= {"calibration": calibration, "processes": processes}
    target, own = find_device(device), batch
    if batch is not None and isinstance(graph, OpGraph):
        from perfpass.graph.held_batch import check_held

        check_held(graph, check_batch(batch))

    def memory(*, device: Device | None = None, batch: int | None = None, precision: str | None = None) -> Interval:
        on, changed = device or target, how if precision is None else {**how, "precision": precision}
        planned = _in_use(graph, on, own, changed)
        return _predicted(graph, on, batch=own, **changed).memory.in_use if planned is None else planned

    asked = _asked(graph, target, batch, how, "")
    with kept(asked):
        found = _predicted(graph, target, batch=batch, **how)
        if mode == "training":
            found = _corrected_step(found, target, "", calibration)
        found = judged(found, target, memory, batch_is_free=False, asked=asked)
        return decided(found, target, limits, lambda instance: _predicted(graph, instance, batch=batch, **how))


def _predicted(
    graph: OpGraph,
    device: Device,
    *,
    calibration: bool | Calibration | Schedules,
    processes: int | None,
    **how: Any,
) -> Prediction:
    """As `predict_graph`, before it is judged whether it fits."""
    if how.get("sparsity") is not None:
        return _sparse(graph, device, calibration=calibration, processes=processes, **how)
    run = run_of(graph, device, **how)
    found = _answered(run, how["mode"], calibration, processes)
    if run.quantised is None:
        said = quantisation.no_engine(run.way)
        return replace(found, support=found.support.at_most("near", said)) if said else found
    return _with_quantised(found, run, graph, calibration=calibration, processes=processes, **how)


def _sparse(graph: OpGraph, device: Device, *, sparsity: str, **how: Any) -> Prediction:
    """With sparse weights: the interval holds the dense run too, since few products reach twice the rate."""
    rest = {key: how.pop(key) for key in ("calibration", "processes")}
    dense = _predicted(graph, device, **rest, **how)
    found = _answered(run_of(graph, device, sparsity=sparsity, **how), how["mode"], **rest)
    said = f"weights are {sparsity} sparse: their products at twice the dense rate, which few reach; memory is dense"
    return replace(
        loads.stretched(found, dense),
        support=found.support.at_most("near", said),
        workload={**found.workload, "sparsity": sparsity},
    )


def _with_quantised(found: Prediction, run: Run, graph: OpGraph, *, precision: str, **how: Any) -> Prediction:
    """``found`` of ``graph`` quantised: unless that was measured, the interval of the time holds ``graph``'s too."""
    assert run.quantised is not None
    precision = own_name(precision)
    if not quantisation.measured(precision, run.way):
        plain = _predicted(graph, run.way.device, precision=run.way.precision, **how)
        found = replace(loads.stretched(found, plain), memory=found.memory)
    said = quantisation.sentence(precision, run.quantised, run.way)
    return replace(
        found, support=found.support.at_most("near", said), workload={**found.workload, "precision": precision}
    )


def _answered(run: Run, mode: str, calibration: bool | Calibration | Schedules, processes: int | None) -> Prediction:
    graph = run.graph
    way, target = run.way, run.way.device
    lane = Lane(way, mode == "training", calibration, processes)
    if mode == "training":
        from perfpass.graph.assumed import check_trains
        from perfpass.predictors.training_step.assemble import breakdown as step_breakdown
        from perfpass.predictors.training_step.predictor import StepPredictor

        check_trains(graph.assumed)
        estimate, step = StepPredictor.load().estimate(run)
        parts = step_breakdown(run, step, estimate, TOP_OPERATORS)
    else:
        estimate = lane.estimate(run)
        parts = breakdown(run, estimate)
    found = estimate.arrays()
    metrics = lane.metrics(found, np.array([run.batch]))
    level = lane.level(found, _level_of_graph(graph))
    del metrics["peak_memory_bytes"]
    intervals: dict[str, Any] = {name: bounds.interval(0, UNITS[name]) for name, bounds in metrics.items()}
    return Prediction(
        **intervals,
        memory=replace(estimate.memory, gradients_bytes=_gradients_bytes(run, mode)),
        mig=_mig(estimate, target),
        support=_support(SUPPORT_LEVELS[level[0]], estimate, graph, way.precision),
        breakdown=parts,
        provenance=_provenance(graph, run.costs, target, estimate),
        workload={
            "device": target.id,
            "batch": run.batch,
            "precision": way.precision,
            "mode": mode,
            "runtime": way.runtime,
            "layout": way.layout,
            **({"optimizer": way.optimizer} if mode == "training" else {}),
            **({"cuda_graph": True} if way.cuda_graph else {}),
            **({} if processes is None else {"processes": processes}),
            **_read(graph),
        },
    )


def peak_memory(
    graph: OpGraph,
    device: str | Device,
    *,
    batch: int | None = None,
    precision: str = "fp32",
    runtime: str = "torch",
    layout: str = "nchw",
) -> Interval:
    """The ``peak_memory_bytes`` that `predict_graph` gives for inference, in a tenth of its time: nothing is counted.

    The arguments are those of `predict_graph`.
    """
    planned = _planned(
        graph,
        device,
        batch=batch,
        precision=precision,
        mode="inference",
        runtime=runtime,
        layout=layout,
        optimizer=None,
    )
    _, memory = process.inference(allocation.columns_of(planned), planned.way)
    return memory.in_use.interval(0, "byte")


def _in_use(graph: OpGraph, device: Device, batch: int | None, how: Mapping[str, Any]) -> Interval | None:
    """`peak_memory` of a run, where that is all there is to its memory; None where the whole run has to be asked."""
    if how["mode"] != "inference" or how["sparsity"] is not None or not all(one.stated for one in graph.assumed):
        return None
    return peak_memory(graph, device, batch=batch, **{name: how[name] for name in _PLANNED})


def run_of(
    graph: OpGraph,
    device: str | Device,
    *,
    batch: int | None = None,
    precision: str = "fp32",
    mode: str = "inference",
    runtime: str = "torch",
    layout: str = "nchw",
    optimizer: str | None = None,
    sparsity: str | None = None,
    cuda_graph: bool = False,
) -> Run:
    """What predictors take: the graph counted and planned; the arguments are those of `predict_graph`."""
    from perfpass.graph import costs

    planned = _planned(
        graph,
        device,
        batch=batch,
        precision=precision,
        mode=mode,
        runtime=runtime,
        layout=layout,
        optimizer=optimizer,
        sparsity=sparsity,
        cuda_graph=cuda_graph,
    )
    graph, kind = planned.graph, planned.way.device.kind
    counted = costs.count(graph, float_as=planned.float_as)
    if mode == "training" and graph.frozen:
        from perfpass.graph import frozen

        marks = frozen.flags(graph, graph.frozen)
        table = frozen.table(
            graph, marks, lambda g: as_run(g, costs.count(g, float_as=planned.float_as), runtime, kind)
        )
    else:
        table = as_run(graph, counted, runtime, kind)
    if sparsity is not None:
        table = sparse.as_run(table, PRECISIONS[planned.way.precision][1], runtime)
    if planned.quantised is not None:
        table = quantisation.as_run(table, planned.way)
    return Run(**vars(planned), costs=counted, table=table)


def _planned(graph: OpGraph, device: str | Device, *, runtime: str, **how: Any) -> PlannedRun:
    from perfpass.graph import kept_outputs
    from perfpass.graph import liveness as memory
    from perfpass.graph.traced_step import TrainingGraph

    if not isinstance(graph, OpGraph):
        raise ArgumentError(f"predict_graph takes an OpGraph, got {type(graph).__name__}; use predict for other models")
    if isinstance(graph, TrainingGraph):
        raise ArgumentError(
            "got a traced training step; give the forward graph (perfpass.load without mode) and mode='training', from "
            "which the step is derived"
        )
    target = find_device(device)
    workload = check(target, runtime=runtime, **how)
    rewritten = None if workload.quantised is None else quantisation.rewritten(graph, workload.quantised)
    graph = graph if rewritten is None else rewritten.graph
    if graph.single:
        from perfpass.graph import single

        if single.keeps(workload.precision, runtime, workload.mode):
            graph = single.kept(graph)
    held = allocation.as_held(graph, target, runtime)
    plan = memory.plan(held, float_as=workload.float_as, alignment_bytes=allocation.alignment_bytes(runtime))
    return PlannedRun(
        graph=graph,
        plan=kept_outputs.with_float_logits(graph, plan, workload.float_as),
        batch=leading_dim(graph) if workload.batch is None else workload.batch,
        way=workload.on(target),
        float_as=workload.float_as,
        quantised=rewritten,
    )


def _gradients_bytes(run: Run, mode: str) -> float | None:
    """What autograd would keep of an inference run in PyTorch beyond its plan, where nothing turns it off."""
    if mode == "training" or run.way.runtime != "torch":
        return None
    kept = saved_activations(
        run.graph, run.float_as, allocation.BLOCK_BYTES, autocast=allocation.autocasts(run.way.precision)
    ).saved
    return float(max(0, kept - run.plan.peak_activation_bytes))


def _mig(estimate: Estimate, device: Device) -> MigHint:
    return hint(in_a_slice(estimate.memory.in_use.high, device), device)


def _reasons(estimate: Estimate, graph: OpGraph) -> tuple[str, ...]:
    """Those of the predictor, and what the graph adds to them."""
    reasons = list(estimate.support.reasons)
    if unknown := graph.unknown_operators:
        reasons.append(f"operators without a cost model, counted as moving their inputs and outputs: {_few(unknown)}")
    if stated := graph.stated_operators:
        reasons.append(f"operators as their user states them, not as measured: {_few(stated)}")
    if graph.unread:
        reasons.append(
            f"{graph.unread / 1e9:.3g} B parameters of the model are not read by this pass, as what reads pictures or "
            "sound beside a language model: neither their time nor their memory is counted"
        )
    if graph.single:
        from perfpass.graph import single

        if said := single.sentence(graph):
            reasons.append(said)
    return tuple(reasons)


def _few(names: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in sorted(names.items(), key=lambda i: -i[1])[:5])


def _read(graph: OpGraph) -> dict[str, Any]:
    """What a run reads: each input's name, shape with the batch, and type, and the sizes that nobody asked for."""
    core, tensors = graph.core, graph.graph_inputs  # Relay's parameters may be a thousand of them
    inputs = [
        {"name": core.string(name), "shape": list(core.shape(tensor)), "dtype": DTYPES[dtype]}
        for tensor, name, dtype in zip(
            tensors.tolist(), graph.tensor_name[tensors].tolist(), graph.tensor_dtype[tensors].tolist(), strict=True
        )
    ]
    return {"inputs": inputs, "assumed": list(graph.unasked)}


def _support(level: SupportLevel, estimate: Estimate, graph: OpGraph, precision: str) -> Support:
    reasons, time = (*told_otherwise(graph, precision), *_reasons(estimate, graph)), estimate.latency_ms
    if estimate.arrays().latency_ms.level[0] > SUPPORT_LEVELS.index(estimate.support.level):
        causes = estimate.wide_by()
        by = f", mostly by {', '.join(causes)}" if causes else ""
        reasons = (
            *reasons,
            f"the bounds of the time are a factor of {width_words.factor(time.high / time.low)} apart{by}",
        )
    return Support(level, (*reasons, *(one.sentence() for one in graph.assumed), *graph.counted_once))


def _level_of_graph(graph: OpGraph) -> np.ndarray:
    from perfpass.graph.assumed import is_assumed

    flags = (bool(graph.unknown_operators or graph.stated), is_assumed(graph.assumed), bool(graph.counted_once))
    return level_of_graphs(*np.array(flags)[:, None])


def _provenance(graph: OpGraph, counted: Costs, device: Device, estimate: Estimate) -> dict[str, Any]:
    from perfpass import __version__

    return {
        **estimate.provenance,
        "perfpass": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "device": {
            "id": device.id,
            "name": device.name,
            "estimated_figures": list(device.estimated),
            "notes": list(device.notes),
            "read_as": device.read_as,
            "others": list(device.others),
        },
        "graph": {
            "nodes": int(graph.node_count),
            "edges": int(graph.edge_count),
            **{key: int(value) for key, value in counted.totals.items()},
            "unknown_operators": dict(graph.unknown_operators),
            "stated_operators": dict(graph.stated_operators),
            "notes": list(graph.notes),
        },
    }
