"""`perfpass llm`: what serving a language model costs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from perfpass.cli.llm_arrivals import add_arrivals, arrive, autoscaled, simulated
from perfpass.cli.llm_host import add_host, host_options, refuse_host
from perfpass.cli.llm_seams import add_seams, asked_for, handed_over, slots
from perfpass.cli.llm_switches import add_switches, switched_on, switches
from perfpass.cli.options import (
    add_cost,
    add_device_file,
    add_json,
    cost,
    deployed,
    find_device,
    new_command,
    print_json,
    whole,
)
from perfpass.errors import ArgumentError

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.llm import Parallelism
    from perfpass.predictors.engine.tails import ArrivalPrediction
    from perfpass.predictors.generation.prediction import Offline
    from perfpass.predictors.serving.prediction import LlmPrediction
    from perfpass.predictors.switches.switches import Switches

_EPILOG = """\
MODEL is a Hugging Face config.json or its folder, or the name of a model whose configuration ships (as
deepseek-ai/DeepSeek-V3, llama-3.1-70b). Concurrency counts requests in flight over the whole deployment. What is not
given is assumed, and the answer says what was.

examples:
  perfpass llm llama-3.1-8b --device h100                          one request at a time, on the fewest GPUs
  perfpass llm llama-3.1-8b --device h100 --input-length 1024 --output-length 128 --concurrency 64
  perfpass llm deepseek-ai/DeepSeek-R1 --device b200 --tp 8 --ep 8 --precision nvfp4 --runtime trtllm \\
      --input-length 8192 --output-length 1024 --concurrency 32
  perfpass llm model/config.json --device h200 --workers 2 --tp 8 --prefill-workers 1 --prefill-tp 8 \\
      --input-length 4096 --output-length 512 --concurrency 256 --runtime sglang --json
  perfpass llm llama-3.1-8b --device h100 --rate 3 --ttft 200 --tpot 20       tails at 3 requests a second
  perfpass llm llama-2-70b --device a100-80gb --tp 4 --offline --input-length 512 --output-length 128 --concurrency 16
  perfpass llm llama-3.1-8b --device rtx-4090 --runtime ollama
  perfpass llm llama-2-7b --device a100-80gb --runtime transformers --precision int4 --concurrency 8
  perfpass llm llama-2-7b --device h100 --predictor llm-trees --input-length 512 --output-length 512 --concurrency 16"""
_SERVERS = ("vllm", "trtllm", "sglang", "tgis")
# Of these, batches alone were measured: they are predicted without a server, asked or not.
_ALONE = (
    *("deepspeed", "deepspeed-mii", "llama.cpp", "ollama", "sambaflow", "transformers", "transformers-compiled"),
    *("bitsandbytes", "megatron", "fastertransformer", "tgi", "lmdeploy", "exllama", "exllamav2", "mlc"),
    "ktransformers",
)
RUNTIMES = (*_SERVERS, *_ALONE)
PRECISIONS = (
    *("bf16", "fp16", "fp32", "fp8", "fp8_block", "fp8_wo", "nvfp4", "fp4", "nvfp4_wo", "mxfp4"),
    *("int4", "int8", "int8_wo"),
)
# Options of a server that one batch on one deployment does not have.
_SERVER_OPTIONS = (
    *("kv_precision", "pp", "dp", "ep", "workers", "prefill_workers", "decode_batch", "equal_answers"),
    *("prefill_tp", "prefill_pp", "prefill_dp"),
)


def add(commands: Any) -> None:
    """The command's options."""
    command = new_command(
        commands, "llm", run, "predict what serving a language model costs: TTFT, TPOT, memory", _EPILOG
    )
    command.add_argument("model", metavar="MODEL", help="config.json, its folder, or a known name")
    command.add_argument("--device", required=True, metavar="NAME", help="a GPU of `perfpass devices`")
    add_load(command)
    command.add_argument(
        "--runtime",
        choices=RUNTIMES,
        metavar="NAME",
        help=f"serving stack: {', '.join(_SERVERS)} (default: vllm; tgis: as of 2023); without a server "
        f"{', '.join(_ALONE)}",
    )
    command.add_argument(
        "--precision",
        metavar="P",
        help=f"of the matrices: {', '.join(PRECISIONS)}, or a file type of llama.cpp, as q4_k_m (default: what is "
        "stored)",
    )
    add_split(command)
    add_host(command)
    add_arrivals(command)
    command.add_argument(
        "--predictor",
        default="perfpass",
        metavar="NAME",
        help="perfpass (default); llm-trees: the requests as one offline batch (docs/research/llm-trees.md)",
    )
    add_switches(command)
    add_json(command, "a table")
    add_device_file(command, "TOML of more devices")
    add_cost(command)
    add_seams(command)


def add_load(command: Any) -> None:
    """What is asked of a language model: its requests, with a server or without."""
    for name, text in (("input-length", "a prompt (default: 1024)"), ("output-length", "an answer (default: 128)")):
        command.add_argument(f"--{name}", type=whole, metavar="N", help=f"mean tokens of {text}")
    command.add_argument(
        "--concurrency",
        type=whole,
        metavar="N",
        help="requests in flight (default: 1); prompt tokens at a time in llama.cpp (default: 512)",
    )
    command.add_argument(
        "--offline",
        action="store_true",
        help="without a server: all requests as one batch on --tp devices; the whole batch, its prompt, a token "
        "(the default where --runtime has no server)",
    )


def add_split(command: Any) -> None:
    """How a served language model is deployed."""
    command.add_argument("--runtime-version", default="", metavar="V", help="its version, as 0.18.0")
    command.add_argument("--kv-precision", choices=("bf16", "fp8", "nvfp4"), help="of the cache")
    for name, text in (("tp", "tensor"), ("pp", "pipeline"), ("dp", "attention-data"), ("ep", "expert")):
        default = "the fewest GPUs that hold the model, up to 8" if name == "tp" else "1"
        said = f"{text} parallelism (default: {default})"
        command.add_argument(f"--{name}", type=whole, default=None if name == "tp" else 1, metavar="N", help=said)
        if name != "ep":
            command.add_argument(f"--prefill-{name}", type=whole, default=1, metavar="N", help="of a prefill worker")
    command.add_argument("--workers", type=whole, default=1, metavar="N", help="replicas (default: 1)")
    command.add_argument("--prefill-workers", type=whole, metavar="N", help="disaggregated: replicas that only prefill")
    command.add_argument(
        "--decode-batch",
        type=whole,
        metavar="N",
        help="disaggregated: requests that a decode rank runs at most, others wait (default: as many as fit)",
    )
    command.add_argument(
        "--equal-answers", action="store_true", help="every answer has this length, as benchmarks ask (waves in SGLang)"
    )


def run(options: Any) -> int:
    """Prints the prediction as a table or JSON."""
    from perfpass.predictors import registry

    arriving = arrive(options)
    if options.offline or options.predictor != registry.DEFAULT or runs_alone(options):
        if arriving:
            raise ArgumentError(f"{_road(options)} predicts one batch without a server: leave out --rate and --trace")
        return _offline(options)
    from perfpass.deploy.cost import per_million_tokens, table

    refuse_host(options)
    # Before the model is read: a wrong table should not cost the time of a prediction.
    asked, target = cost(options), find_device(options)
    if (arriving or options.autoscale) and (of := asked_for(options, targets=False)):
        raise ArgumentError(f"{of} is of requests in flight; leave out --rate, --trace and --autoscale")
    if options.autoscale:
        scaled = autoscaled(options, target)
        if options.json:
            print_json(scaled.to_dict())
        else:
            print(scaled)
        return 0
    found: ArrivalPrediction | LlmPrediction
    if arriving:
        found = simulated(options, target, _prefill(options))
    elif options.tune == "llama.cpp":
        slots(options, target)
        return 0
    else:
        found = served(options, target, switches(options))
        if handed_over(options, found):
            return 0
    money = per_million_tokens(found, target, asked) if asked else None
    if options.json:
        print_json({**found.to_dict(), **({"cost": money.to_dict()} if money else {})})
    else:
        print(found)
        if money:
            print(f"\n{table(money)}")
    return 0


def served(options: Any, target: Device, switched: Switches | None = None) -> LlmPrediction:
    """What the options ask of a server, with what is ``switched`` on."""
    from perfpass.predictors.serving.predictor import predict_llm

    return predict_llm(
        options.model,
        target,
        concurrency=options.concurrency,
        runtime=options.runtime or getattr(options, "tune", None),
        **deployed(options),
        prefill=_prefill(options),
        prefill_workers=options.prefill_workers or 0,
        decode_batch=options.decode_batch or 0,
        equal_answers=options.equal_answers,
        switches=switched,
    )


def _prefill(options: Any) -> Parallelism | None:
    """The split of a prefill worker, where prefill has workers of its own."""
    if not options.prefill_workers:
        return None
    from perfpass.llm import Parallelism

    return Parallelism.of(options.prefill_tp, options.prefill_pp, options.prefill_dp)


def _offline(options: Any) -> int:
    if handed := asked_for(options) or switched_on(options):
        raise ArgumentError(f"{_road(options)} predicts one batch without a server: leave out {handed}")
    if cost(options):
        raise ArgumentError(f"{_road(options)} predicts one batch without a server: leave out a cost option")
    found = alone(options)
    if options.json:
        print_json(found.to_dict())
    else:
        print(found)
    return 0


def alone(options: Any) -> Offline:
    """All requests as one batch, without a server; also what the compared predictors answer."""
    from perfpass.predictors import registry
    from perfpass.predictors.generation.predictor import assumed_batch

    registry.check(options.predictor)
    asked = ((name, getattr(options, name)) for name in _SERVER_OPTIONS)
    given = [name for name, value in asked if value is True or (value is not False and value not in ("", None, 1))]
    if given:
        name = f"--{given[0].replace('_', '-')}"
        raise ArgumentError(f"{_road(options)} predicts one batch without a server: leave out {name}")
    batch, assumed = assumed_batch(
        options.model,
        find_device(options),
        runtime=options.runtime,
        tp=options.tp,
        concurrency=options.concurrency,
        input_length=options.input_length,
        output_length=options.output_length,
        precision=options.precision,
        runtime_version=options.runtime_version,
        **host_options(options),
    )
    return replace(registry.offline(options.predictor, batch), assumed=assumed)


def runs_alone(options: Any) -> bool:
    """Whether the runtime has no server here. To propose settings for llama.cpp's (--tune) is another question."""
    return options.runtime in _ALONE and not getattr(options, "tune", None)


def _road(options: Any) -> str:
    from perfpass.predictors import registry

    if options.predictor != registry.DEFAULT:
        return str(options.predictor)
    return "--offline" if options.offline else str(options.runtime)
