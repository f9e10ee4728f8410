"""What each command does; the options are in `parser`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfpass.cli.options import once
from perfpass.errors import ArgumentError, ShapeError, UnsupportedError

if TYPE_CHECKING:
    from perfpass.graph import OpGraph


def predict(options: Any) -> int:
    """`perfpass predict MODEL --device D`."""
    from perfpass.cli.costing import cost_options
    from perfpass.prediction import explanation, prediction_table
    from perfpass.predictors import predict as run
    from perfpass.text import printable

    # Before the model is read: a wrong table should not cost the time of a large one.
    asked, device = cost_options(options), _device(options)
    prediction = run(
        options.model,
        device,
        batch=options.batch,
        input_shape=once(options.input_shape, "--input-shape"),
        precision=options.precision,
        mode=options.mode,
        runtime=_runtime(options),
        layout=options.layout,
        optimizer=options.optimizer,
        dims=once(options.dim, "--dim"),
        calibration=not options.no_calibration,
        processes=options.processes,
        predictor=options.predictor,
    )
    found = None
    if asked is not None:
        from perfpass.deploy.cost import cost, table

        found = cost(prediction.latency_ms, prediction.energy_j, device, asked)
    if options.json:
        _print_json({**prediction.to_dict(), **({"cost": found.to_dict()} if found else {})})
        return 0
    print(f"{printable(Path(options.model).name)} on {prediction_table(prediction)}")
    if found:
        print(f"\n{table(found)}")
    if options.explain:
        print(f"\n{explanation(prediction)}")
    return 0


def _runtime(options: Any) -> str:
    if not options.compiled:
        return options.runtime or "torch"
    if options.runtime not in (None, "torch", "torch.compile"):
        raise ArgumentError(f"--compiled means torch.compile, but --runtime is {options.runtime!r}; give one of them")
    return "torch.compile"


def _device(options: Any) -> Any:
    from perfpass.devices import add_file, device

    for path in options.device_file:
        add_file(path)
    return device(options.device)


def annotate(options: Any) -> int:
    """`perfpass annotate MODEL`."""
    from perfpass.cli.annotating import run

    return run(options, runtime=None if options.show or options.remove else _runtime(options))


def partition(options: Any) -> int:
    """`perfpass partition MODEL --device D -o FILE`."""
    from perfpass.cli.partitioning import run

    return run(options, _device(options))


def compare(options: Any) -> int:
    """`perfpass compare MODEL`."""
    from perfpass.cli.comparing import run

    return run(options)


def inspect(options: Any) -> int:
    """`perfpass inspect MODEL`: inputs first, so that the symbolic dimensions to set can be seen."""
    from perfpass.cli.inspection import inputs_table, inspect_table, inspection, model_inputs

    inputs = model_inputs(options.model)
    try:
        graph = _graph(options)
    except ShapeError:
        # What to set is what the user needs now: show it, then fail with the error that names it.
        if inputs and not options.json:
            print(inputs_table(inputs))
            sys.stdout.flush()
        raise
    found = inspection(graph, inputs)
    if options.json:
        _print_json(found)
    else:
        print(inspect_table(Path(options.model).name, found))
    return 0


def _graph(options: Any) -> OpGraph:
    from perfpass.importers import load

    return load(
        options.model,
        batch=options.batch,
        input_shape=once(options.input_shape, "--input-shape"),
        dims=once(options.dim, "--dim"),
    )


def features(options: Any) -> int:
    """`perfpass features MODEL --schema S -o FILE`."""
    from perfpass.features import extract, save

    found = extract(_graph(options), options.schema)
    save(found, options.output)
    nodes, width = found.nodes.shape
    print(
        f"{options.output}: schema {found.schema} version {found.version}, {nodes} nodes x {width} features, "
        f"{found.edge_index.shape[1]} edges, {len(found.statics)} statics"
    )
    return 0


def devices(options: Any) -> int:
    """`perfpass devices [NAME]`."""
    from perfpass.cli.inspection import calibration_facts, calibration_lines
    from perfpass.devices import add_file, catalogue, device
    from perfpass.devices.sheet import device_list, device_sheet

    for path in options.device_file:
        add_file(path)
    if options.name is not None:
        one = device(options.name)
        learned = calibration_facts(one)
        if options.json:
            _print_json({**one.to_dict(), "calibration": learned})
        else:
            print(device_sheet(one))
            if learned:
                print("\n" + calibration_lines(learned))
        return 0
    known = catalogue()
    if options.json:
        _print_json([d.to_dict() for d in known])
        return 0
    print(device_list(known))
    print(
        f"\n{len(known)} devices, and cpu for this machine. Dense peaks in TFLOP/s, power limit in W.\n"
        "`perfpass devices NAME` shows the rest, MIG profiles and sources."
    )
    return 0


def measure(options: Any) -> int:
    """`perfpass measure`."""
    from perfpass.cli.measuring import run

    return run(options)


def llm(options: Any) -> int:
    """`perfpass llm MODEL`."""
    from perfpass.cli.llm import run

    return run(options)


def operator(options: Any) -> int:
    """`perfpass operator NAME`."""
    from perfpass.cli.operators import run

    return run(options)


def calibrate(options: Any) -> int:
    """`perfpass calibrate`."""
    from perfpass.cli.calibrating import run

    return run(options)


def roofline(options: Any) -> int:
    """`perfpass roofline`."""
    from perfpass.cli.characterising import run

    return run(options)


def records(options: Any) -> int:
    """`perfpass records`."""
    try:
        from perfpass.predictors.learned.artefacts import check_writable
        from perfpass.records import corpus, schema

        found = {}
        if options.output:
            check_writable(Path(options.output) / "tables")
        for name, reading in corpus.read(options.sources, options.reader):
            found[name] = corpus.summary(reading)
            if not options.json:
                print(corpus.text(name, found[name]), flush=True)
            if options.output:
                for kind, table in reading.tables.items():
                    schema.write(Path(options.output) / f"{name}-{kind}.parquet", kind, table)
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            f"`perfpass records` needs the package {error.name}: pip install pandas pyarrow"
        ) from error
    if options.json:
        _print_json(found)
    return 0


def train(options: Any) -> int:
    """`perfpass train`."""
    run = _training("train")
    if options.predictor is not None:
        return _train_predictor(options)
    if options.published or options.base:
        raise ArgumentError("--published and --base belong to --predictor NAME")
    run(options.records, options.output, options.area, seed=options.seed, resume=options.resume)
    return 0


def _train_predictor(options: Any) -> int:
    """A compared predictor, by its name."""
    from importlib import import_module

    from perfpass.predictors.learned import artefacts
    from perfpass.training.tasks.methods import METHODS, method

    if options.area or options.resume:
        raise ArgumentError("--predictor trains one predictor: leave out --area and --resume (it goes on by itself)")
    method(options.predictor)
    module = import_module(METHODS[options.predictor])
    if not hasattr(module, "train"):
        raise UnsupportedError(f"{options.predictor} is trained within `perfpass evaluate` alone")
    more: dict[str, Any] = {"base": options.base} if options.base else {}
    if more and options.predictor != "graph-language":
        raise ArgumentError("--base is the language model of graph-language; no other predictor stands on one")
    artefacts.check_writable(Path(options.output) if options.output else artefacts.shipped(options.predictor))
    place = module.train(
        options.predictor, options.records, options.output, seed=options.seed, published=options.published, **more
    )
    print(place)
    return 0


def evaluate(options: Any) -> int:
    """`perfpass evaluate`."""
    run = _training("evaluate")
    report = (
        _compare(options)
        if options.predictors
        else run(options.records, options.area, output=options.output, seed=options.seed)
    )
    if options.json:
        _print_json(report.to_dict())
    else:
        print(report)
    return 0


def _compare(options: Any) -> Any:
    """Predictors side by side."""
    from perfpass.study.evaluate import evaluate as compare

    if options.area or options.records:
        raise ArgumentError("--predictors compares on the repository's records: leave out --area and --records")
    return compare(
        options.predictors,
        task_names=options.tasks,
        splits=options.splits,
        devices=options.devices,
        journal=options.journal,
        output=options.output,
        seed=options.seed,
        jobs=options.jobs,
        adaptation=options.adaptation,
        fit=not options.tables_only,
    )


def _training(name: str) -> Any:
    """A function of perfpass.training, whose packages a plain installation does not have."""
    try:
        from perfpass import training
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            f"`perfpass {name}` needs the package {error.name}: pip install pandas pyarrow scipy xgboost-cpu matplotlib"
        ) from error
    return getattr(training, name)


def completion(options: Any) -> int:
    """`perfpass completion SHELL`."""
    from perfpass.cli.completion import script

    print(script(options.shell))
    return 0


def _print_json(value: Any) -> None:
    """Strict JSON: ASCII only, and an error rather than NaN or infinity."""
    json.dump(value, sys.stdout, indent=2, allow_nan=False)
    print()
