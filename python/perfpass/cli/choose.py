"""`perfpass choose`: what to run a model on, so that it keeps its targets at the lowest price."""

from __future__ import annotations

from typing import Any

from perfpass.cli.options import (
    add_cost_options,
    add_json,
    add_model,
    model_sizes,
    new_command,
    print_json,
    whole,
    wholes,
)
from perfpass.cli.sweep import add_devices, varied

_EPILOG = """\
MODEL is as for `perfpass predict`, or a language model that writes text as for `perfpass llm`. Targets are kept
together with the probability --confidence, from the calibrated intervals. Prices come from a dated table: the shipped
one, or --price-table.

examples:
  perfpass choose llama-3.1-8b --rate 20 --input-length 1024 --output-length 256 --ttft 500 --tpot 30
  perfpass choose llama-3.1-70b --concurrency 64 --tpot 40 --precision bf16,fp8 --confidence 0.95 --json
  perfpass choose resnet50.onnx --rate 500 --p99 50 --slices --precision fp32,fp16
  perfpass choose resnet50.onnx --device l4,a10 --latency 20 --max-power 60 --region FR

exit codes: 0 chosen; 1 no option keeps the targets; 2 cannot say, or a wrong argument; others as everywhere."""


def add(commands: Any) -> None:
    """The command's options."""
    command = new_command(commands, "choose", run, "choose devices that keep targets at the lowest price", _EPILOG)
    add_model(command, assumes=False)
    add_devices(command)
    load = command.add_argument_group("load", "without one the devices are busy all the time")
    load.add_argument(
        "--rate", type=float, metavar="R", help="requests (of a network: samples) a second, over all copies"
    )
    load.add_argument("--concurrency", type=float, metavar="N", help="requests in flight over all copies (served)")
    load.add_argument("--input-length", type=whole, metavar="N", help="mean tokens of a prompt (default: 1024)")
    load.add_argument("--output-length", type=whole, metavar="N", help="mean tokens of an answer (default: 128)")
    load.add_argument("--batches", type=wholes, metavar="N,N", help="of a network (default: 1 to 256, doubling)")
    targets = command.add_argument_group("targets", "all of them are to be kept")
    for name, text in (
        ("ttft", "mean ms to the first token (served)"),
        ("tpot", "mean ms per token after it (served)"),
        ("latency", "mean ms of a whole request (served), or of a run of the batch"),
        ("p99", "ms in which 99 of 100 requests are done, their waiting with them (a network with --rate)"),
        ("max-price", "USD an hour of all devices"),
        ("max-power", "watts of all devices"),
    ):
        targets.add_argument(f"--{name}", type=float, metavar="X", help=text)
    targets.add_argument("--confidence", type=float, default=0.9, metavar="P", help="to keep them (default: 0.9)")
    add_cost_options(command)
    add_json(command)


def run(options: Any) -> int:
    """Prints the choice; the exit status is the decision."""
    from perfpass.deploy.choose import choose
    from perfpass.deploy.cost import Options

    where = Options(
        region=options.region,
        g_per_kwh=options.carbon_intensity,
        pue=1.0 if options.pue is None else options.pue,
        price_table=options.price_table,
        grid_table=options.grid_table,
    )
    found = choose(
        options.model,
        **varied(options) | {"dims": model_sizes(options)["dims"]},
        batches=options.batches or (None if options.batch is None else [options.batch]),
        rate=options.rate,
        concurrency=options.concurrency,
        input_length=options.input_length,
        output_length=options.output_length,
        ttft_ms=options.ttft,
        tpot_ms=options.tpot,
        latency_ms=options.latency,
        p99_ms=options.p99,
        max_usd_per_hour=options.max_price,
        max_power_w=options.max_power,
        confidence=options.confidence,
        where=where,
        progress=True,
    )
    if options.json:
        print_json(found.to_dict())
    else:
        print(found)
    return found.exit_code
