"""`perfpass llm`: what serving a language model costs."""

from __future__ import annotations

import json
import sys
from typing import Any

from perfpass.errors import ArgumentError
from perfpass.predictors import registry

# Options of a server that one batch on one deployment does not have.
_SERVER_OPTIONS = (
    *("runtime_version", "kv_precision", "pp", "dp", "ep", "workers", "prefill_workers"),
    *("prefill_tp", "prefill_pp", "prefill_dp"),
)


def run(options: Any) -> int:
    """Prints the prediction as a table or JSON."""
    if options.offline or options.predictor != registry.DEFAULT:
        return _offline(options)
    from perfpass.cli.costing import cost_options
    from perfpass.deploy.cost import per_million_tokens
    from perfpass.devices import add_file, device
    from perfpass.llm import Parallelism
    from perfpass.predictors.serving.predictor import predict_llm

    for path in options.device_file:
        add_file(path)
    # Before the model is read: a wrong table should not cost the time of a prediction.
    asked, target = cost_options(options), device(options.device)
    prefill = None
    if options.prefill_workers:
        prefill = Parallelism.of(options.prefill_tp, options.prefill_pp, options.prefill_dp)
    found = predict_llm(
        options.model,
        target,
        input_length=options.input_length,
        output_length=options.output_length,
        concurrency=options.concurrency,
        runtime=options.runtime,
        runtime_version=options.runtime_version,
        precision=options.precision,
        kv_precision=options.kv_precision,
        tp=options.tp,
        pp=options.pp,
        dp=options.dp,
        ep=options.ep,
        workers=options.workers,
        prefill=prefill,
        prefill_workers=options.prefill_workers or 0,
    )
    cost = per_million_tokens(found, target, asked) if asked else None
    if options.json:
        content = {**found.to_dict(), **({"cost": cost.to_dict()} if cost else {})}
        json.dump(content, sys.stdout, indent=2, allow_nan=False)
        print()
    else:
        from perfpass.deploy.cost import table

        print(found)
        if cost:
            print(f"\n{table(cost)}")
    return 0


def _offline(options: Any) -> int:
    """All requests as one batch, without a server; also what the compared predictors answer."""
    from perfpass.cli.costing import cost_options
    from perfpass.devices import add_file
    from perfpass.predictors.generation.predictor import batch_of

    registry.check(options.predictor)
    given = [name for name in _SERVER_OPTIONS if getattr(options, name) not in ("", None, 1)]
    if given or cost_options(options):
        name = f"--{given[0].replace('_', '-')}" if given else "a cost option"
        raise ArgumentError(f"{_road(options)} predicts one batch without a server: leave out {name}")
    for path in options.device_file:
        add_file(path)
    batch = batch_of(
        options.model,
        options.device,
        runtime=options.runtime,
        devices=options.tp,
        batch=options.concurrency,
        input_tokens=options.input_length,
        output_tokens=options.output_length,
        precision=options.precision or "fp16",
    )
    found = registry.offline(options.predictor, batch)
    if options.json:
        json.dump(found.to_dict(), sys.stdout, indent=2, allow_nan=False)
        print()
    else:
        print(found)
    return 0


def _road(options: Any) -> str:
    return "--offline" if options.predictor == registry.DEFAULT else str(options.predictor)
