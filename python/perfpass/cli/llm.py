"""`perfpass llm`: what serving a language model costs."""

from __future__ import annotations

import json
import sys
from typing import Any


def run(options: Any) -> int:
    """Prints the prediction as a table or JSON."""
    from perfpass.cli.costing import cost_options
    from perfpass.devices import add_file, device
    from perfpass.llm import Parallelism
    from perfpass.llm.energy import per_million_tokens
    from perfpass.predictors.serving import predict_llm

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
