"""`perfpass operator`: what one kernel costs on a GPU."""

from __future__ import annotations

import json
import sys
from typing import Any


def run(options: Any) -> int:
    """Prints the prediction of one kernel as a table or JSON."""
    from perfpass.devices import add_file, device
    from perfpass.predictors.kernels import predictor as kernels

    for path in options.device_file:
        add_file(path)
    found = device(options.device)
    predictor = kernels.load()
    software = {"stack": options.stack, "version": options.stack_version, "kernel": options.kernel}
    sizes = {name: getattr(options, name) for name in _SIZES[options.operator]}
    if options.operator == "gemm":
        times = predictor.gemm(found, **sizes, dtype=options.dtype, **software)
    elif options.operator == "moe":
        times = predictor.moe(found, **sizes, skew=options.skew, dtype=options.dtype, **software)
    elif options.operator in ("prefill-attention", "decode-attention"):
        call = predictor.attention_prefill if options.operator == "prefill-attention" else predictor.attention_decode
        times = call(found, **sizes, dtype=options.dtype, kv_dtype=options.kv_dtype, **software)
    else:
        operation = options.operator.replace("-", "_")
        times = predictor.collective(found, operation, **sizes, dtype=options.dtype, **software)
    shown = _result(options.operator, found, sizes, times)
    if options.json:
        json.dump(shown, sys.stdout, indent=2, allow_nan=False)
        print()
    else:
        print(_table(shown))
    return 0


_SIZES = {
    "gemm": ("m", "n", "k"),
    "prefill-attention": ("batch", "tokens", "heads", "kv_heads", "head_dim", "window"),
    "decode-attention": ("batch", "context", "heads", "kv_heads", "head_dim", "window"),
    "moe": (
        *("tokens", "hidden", "intermediate", "experts", "active_experts"),
        *("tensor_parallel", "expert_parallel"),
    ),
    **dict.fromkeys(("all-reduce", "all-gather", "reduce-scatter", "all-to-all"), ("n_devices", "elements")),
}


def _result(operator: str, device: Any, sizes: dict[str, int], times: Any) -> dict[str, Any]:
    """The prediction of one row as strict JSON."""
    median, low, high = (float(v[0]) * 1e6 for v in (times.seconds, times.low_s, times.high_s))
    names = ("launch", "compute", "memory", "dependent_steps", "before_and_after")
    return {
        "schema_version": 1,
        "operator": operator,
        "device": device.id,
        "sizes": sizes,
        "software": {
            "stack": times.software.runtime,
            "version": times.software.version,
            "kernel": times.software.family,
            "precision": times.software.precision,
        },
        "latency_us": {"median": median, "low": low, "high": high, "unit": "us", "coverage": 0.9},
        "power_w": float(times.power_w[0]),
        "time_shares": {n: round(float(s), 4) for n, s in zip(names, times.shares[0], strict=True)},
        "evidence": times.evidence,
        "support": times.support.to_dict(),
    }


def _table(shown: dict[str, Any]) -> str:
    latency, software = shown["latency_us"], shown["software"]
    sizes = ", ".join(f"{name} {value}" for name, value in shown["sizes"].items())
    shares = ", ".join(f"{name.replace('_', ' ')} {value:.0%}" for name, value in shown["time_shares"].items())
    lines = [
        f"{shown['operator']} on {shown['device']} ({sizes})",
        f"  latency   {latency['median']:.4g} us   ({latency['low']:.4g} to {latency['high']:.4g}, 90 %)",
        f"  power     {shown['power_w']:.0f} W with the kernel back to back",
        f"  time      {shares}",
        f"  software  {software['stack']} {software['version']}, {software['precision']}, kernel {software['kernel']}",
        f"  support   {shown['support']['level']} ({shown['evidence']})",
    ]
    return "\n".join([*lines, *(f"            {reason}" for reason in shown["support"]["reasons"])])
