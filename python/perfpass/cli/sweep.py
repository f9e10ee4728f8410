"""`perfpass sweep`: every combination of devices, precisions, splits, batches and loads, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfpass.cli.options import (
    add_cuda_graph,
    add_device_file,
    add_json,
    add_model,
    new_command,
    numbers,
    once,
    print_json,
    swept_dims,
    texts,
    wholes,
)

if TYPE_CHECKING:
    from perfpass.deploy.sweep import Sweep

_EPILOG = """\
MODEL is as for `perfpass predict`, or a language model that writes text as for `perfpass llm`; the second is served,
unless --batches asks for one pass of it. Values of an option stand with commas between them. A combination that cannot
be asked is a row with its reason; exit status 1 where that is all of them. Columns and limits: docs/guides/deployer.md.

examples:
  perfpass sweep resnet50.onnx --device a100,l4,t4 --batches 1,8,64 --precision fp32,fp16 --pareto latency_ms,energy_j
  perfpass sweep encoder.onnx --device a100,l4 --batches 1,8 --dim sequence=128..4096       128, 256, 512, ... 4096
  perfpass sweep llama-3.1-8b --tp 1,2,4 --precision bf16,fp8 --concurrency 1,8,64 -o points.parquet
  perfpass sweep llama-3.1-8b --device h100 --slices --pareto usd_per_million_tokens,tpot_ms --json"""


def add(commands: Any) -> None:
    """The command's options."""
    command = new_command(commands, "sweep", run, "predict every combination of devices, splits and loads", _EPILOG)
    add_model(command, assumes=False)
    add_devices(command)
    command.add_argument("--batches", type=wholes, metavar="N,N", help="of a network (default: --batch, or 1)")
    command.add_argument("--input-length", type=wholes, metavar="N,N", help="mean tokens of a prompt (default: 1024)")
    command.add_argument("--output-length", type=wholes, metavar="N,N", help="mean tokens of an answer (default: 128)")
    command.add_argument("--concurrency", type=numbers, metavar="N,N", help="requests in flight (default: 1)")
    command.add_argument(
        "--every-split", action="store_true", help="where no split is given, all that are worth asking (served)"
    )
    command.add_argument("--energy", action="store_true", help="also joules and watts of a served model")
    command.add_argument("--pareto", type=texts, metavar="A,B", help="only points that none is better than in these")
    command.add_argument("-o", "--output", metavar="FILE", help=".csv, .parquet or .json file to write")
    command.add_argument("--ray", action="store_true", help="run the parts as tasks of Ray")
    add_json(command)


def add_devices(command: Any) -> None:
    """What may vary of a deployment, for a sweep and for a choice from one."""
    command.add_argument(
        "--device", type=texts, metavar="A,B", help="devices or slices (default: the GPUs of the price table)"
    )
    command.add_argument("--slices", action="store_true", help="also every MIG profile of each device")
    command.add_argument("--precision", type=texts, metavar="P,P", help="default: fp32; served: what is stored")
    command.add_argument("--runtime", type=texts, metavar="R,R", help="default: torch; served: vllm")
    command.add_argument("--layout", type=texts, metavar="L,L", help="nchw, nhwc (of a network; default: nchw)")
    add_cuda_graph(command)
    command.add_argument("--tp", type=wholes, metavar="N,N", help="tensor parallelism (served; default: 1,2,4,8)")
    command.add_argument("--pp", type=wholes, metavar="N,N", help="pipeline stages (served; default: 1)")
    command.add_argument("--dp", type=wholes, metavar="N,N", help="ranks of data-parallel attention (served)")
    command.add_argument("--ep", type=wholes, metavar="N,N", help="expert groups of a mixture (served)")
    command.add_argument("--price-table", metavar="FILE", help="TOML price table instead of the shipped one")
    add_device_file(command)


def varied(options: Any) -> dict[str, Any]:
    """The values of `add_devices`, and those of `add_model` but the batch, as `perfpass.sweep` takes them."""
    from perfpass.cli.options import add_device_files

    add_device_files(options)
    return {
        "devices": options.device,
        "slices": options.slices,
        "precisions": options.precision,
        "runtimes": options.runtime,
        "layouts": options.layout,
        "cuda_graph": options.cuda_graph,
        "tensor_parallel": options.tp,
        "pipeline_parallel": options.pp,
        "data_parallel": options.dp,
        "expert_parallel": options.ep,
        "dims": swept_dims(options),
        "input_shape": once(options.input_shape, "--input-shape"),
    }


def run(options: Any) -> int:
    """Prints the points, or writes them."""
    from perfpass.deploy.sweep import sweep

    found = sweep(
        options.model,
        **varied(options),
        batches=options.batches or (None if options.batch is None else [options.batch]),
        input_lengths=options.input_length,
        output_lengths=options.output_length,
        concurrencies=options.concurrency,
        every_split=options.every_split,
        energy=options.energy,
        price_table=options.price_table,
        progress=True,
        ray=options.ray,
    )
    status = answered(found)
    if options.pareto:
        found = found.pareto(*options.pareto)
    if options.output:
        found.write(options.output)
    if options.json:
        print_json(found.to_dict())
    elif options.output:
        print(f"{options.output}: {len(found):,} points, {int(found.ok.sum()):,} of them with figures")
    else:
        print(found)
    return status


def answered(found: Sweep) -> int:
    """The exit status: 1 where no point has a figure."""
    return 0 if found.ok.any() else 1
