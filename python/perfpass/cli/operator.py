"""`perfpass operator`: what one kernel costs on a GPU."""

from __future__ import annotations

import math
from typing import Any

from perfpass.cli.options import add_device_file, add_json, find_device, new_command, print_json, whole
from perfpass.errors import ArgumentError

_EPILOG = """\
DTYPE is bf16, fp16, fp8, fp8_block, fp8_static, int8, int8_wo, int4_wo (weights alone), fp4, w4a16_mxfp4 or
w4a8_mxfp4_mxfp8, as far as it was measured for the operator. Stack and version default to the newest measured ones.

examples:
  perfpass operator gemm --device h100 --m 4096 --n 4096 --k 4096 --dtype fp8 --stack vllm
  perfpass operator prefill-attention --device h200 --batch 1 --tokens 8192 --heads 32 --kv-heads 8
  perfpass operator decode-attention --device h100 --batch 64 --context 4096 --heads 32 --kv-heads 8 --kv-dtype fp8
  perfpass operator moe --device b200 --tokens 512 --hidden 4096 --intermediate 1536 --experts 128 --active-experts 8
  perfpass operator all-reduce --device h100 --n-devices 8 --elements 4194304 --json
  perfpass operator all-to-all --device h100 --n-devices 32 --n-nodes 4 --elements 7340032 --dtype fp8 --stack deepep"""
# Sizes of each operator; those with a value are its default.
_SIZES: dict[str, dict[str, int | None]] = {
    "gemm": {"m": None, "n": None, "k": None},
    "prefill-attention": {"batch": 1, "tokens": None, "heads": None, "kv-heads": None, "head-dim": 128, "window": 0},
    "decode-attention": {"batch": 1, "context": None, "heads": None, "kv-heads": None, "head-dim": 128, "window": 0},
    "moe": {
        **dict.fromkeys(("tokens", "hidden", "intermediate", "experts", "active-experts")),
        **dict.fromkeys(("tensor-parallel", "expert-parallel"), 1),
    },
    **{n: {"n-devices": None, "elements": None} for n in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")},
}


def add(commands: Any) -> None:
    """The command's options."""
    command = new_command(commands, "operator", run, "predict what one kernel costs on a GPU", _EPILOG)
    operators = command.add_subparsers(dest="operator", metavar="OPERATOR", required=True)
    for name, sizes in _SIZES.items():
        operator = operators.add_parser(name, help=", ".join(sizes), allow_abbrev=False)
        operator.add_argument("--device", required=True, metavar="NAME", help="a GPU of `perfpass devices`")
        for size, default in sizes.items():
            operator.add_argument(f"--{size}", type=whole, metavar="N", required=default is None, default=default)
        operator.add_argument("--dtype", default="bf16", metavar="DTYPE", help="precision (default: bf16)")
        if "attention" in name:
            operator.add_argument("--kv-dtype", metavar="DTYPE", help="precision of the cache (default: --dtype)")
        if name == "moe":
            operator.add_argument(
                "--skew",
                type=float,
                default=0.0,
                metavar="X",
                help="power law of tokens over experts (default: 0, even)",
            )
        if "n-devices" in sizes:
            operator.add_argument(
                "--n-nodes", type=whole, default=1, metavar="N", help="nodes that they stand in (default: 1)"
            )
        said = "trtllm, vllm, sglang; nccl for collectives, between nodes also deepep"
        operator.add_argument("--stack", metavar="S", help=said)
        operator.add_argument("--stack-version", metavar="V", help="its version, as 0.24.0 or 1.3.0rc20")
        operator.add_argument("--kernel", metavar="K", help="implementation, as triton, fa3, deepgemm, cutlass")
        add_json(operator, "a table")
        add_device_file(operator, "TOML of more devices")


def run(options: Any) -> int:
    """Prints the prediction of one kernel as a table or JSON."""
    from perfpass.predictors.kernels import network
    from perfpass.predictors.kernels import predictor as kernels

    found = find_device(options)
    predictor = kernels.load()
    software = {"stack": options.stack, "version": options.stack_version, "kernel": options.kernel}
    sizes = {name: getattr(options, name) for name in (s.replace("-", "_") for s in _SIZES[options.operator])}
    if options.operator == "gemm":
        times = predictor.gemm(found, **sizes, dtype=options.dtype, **software)
    elif options.operator == "moe":
        times = predictor.moe(found, **sizes, skew=options.skew, dtype=options.dtype, **software)
    elif options.operator in ("prefill-attention", "decode-attention"):
        call = predictor.attention_prefill if options.operator == "prefill-attention" else predictor.attention_decode
        times = call(found, **sizes, dtype=options.dtype, kv_dtype=options.kv_dtype, **software)
    elif options.n_nodes > 1:
        if given := [name for name in ("version", "kernel") if software[name]]:
            raise ArgumentError(f"between nodes no {given[0]} was told apart; give --stack alone")
        sizes = {"n_devices": sizes["n_devices"], "n_nodes": options.n_nodes, "elements": sizes["elements"]}
        operation = options.operator.replace("-", "_")
        times = network.collective(predictor, found, operation, **sizes, dtype=options.dtype, stack=options.stack)
    else:
        operation = options.operator.replace("-", "_")
        times = predictor.collective(found, operation, **sizes, dtype=options.dtype, **software)
    shown = _result(options.operator, found, sizes, times)
    if options.json:
        print_json(shown)
    else:
        print(_table(shown))
    return 0


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
        "power_w": None if math.isnan(times.power_w[0]) else float(times.power_w[0]),
        "time_shares": {n: round(float(s), 4) for n, s in zip(names, times.shares[0], strict=True)},
        "evidence": times.evidence,
        "support": times.support.to_dict(),
    }


def _table(shown: dict[str, Any]) -> str:
    from perfpass.text import digits

    latency, software = shown["latency_us"], shown["software"]
    sizes = ", ".join(f"{name} {value}" for name, value in shown["sizes"].items())
    release = f"{software['stack']} {software['version']}".rstrip()
    shares = ", ".join(f"{name.replace('_', ' ')} {value:.0%}" for name, value in shown["time_shares"].items())
    lines = [
        f"{shown['operator']} on {shown['device']} ({sizes})",
        f"  latency   {digits(latency['median'])} us   ({digits(latency['low'])} to {digits(latency['high'])}, 90%)",
        *([f"  power     {digits(shown['power_w'])} W with the kernel back to back"] if shown["power_w"] else []),
        f"  time      {shares}",
        f"  software  {release}, {software['precision']}, kernel {software['kernel']}",
        f"  support   {shown['support']['level']} ({shown['evidence']})",
    ]
    return "\n".join([*lines, *(f"            {reason}" for reason in shown["support"]["reasons"])])
