"""`perfpass llm`: what serving a language model costs."""

from __future__ import annotations

import json
import sys
from typing import Any


def run(options: Any) -> int:
    """Prints the prediction as a table or JSON."""
    from perfpass.devices import add_file
    from perfpass.llm import Parallelism
    from perfpass.predictors.serving import predict_llm

    for path in options.device_file:
        add_file(path)
    prefill = None
    if options.prefill_workers:
        prefill = Parallelism.of(options.prefill_tp, options.prefill_pp, options.prefill_dp)
    found = predict_llm(
        options.model,
        options.device,
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
    if options.json:
        json.dump(found.to_dict(), sys.stdout, indent=2, allow_nan=False)
        print()
    else:
        print(found)
    return 0
