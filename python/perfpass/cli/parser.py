"""The options of every command. Nothing heavy is imported: `perfpass --help` answers at once."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from perfpass import __version__
from perfpass.cli.costing import add_cost_options
from perfpass.errors import ArgumentError

_DESCRIPTION = """\
What a deep-learning model costs on a device before it runs there: latency, throughput, peak memory,
energy, power and the MIG profile it fits into, each with an interval that holds in nine of ten cases."""

_EPILOG = """\
examples:
  perfpass predict resnet50.onnx --device a100                     one prediction, as a table
  perfpass predict resnet50.onnx --device h100 --batch 32 --precision amp --explain
  perfpass predict encoder.onnx --device l4 --dim batch=8 --dim sequence=128 --json
  perfpass predict model.onnx --device a100-80gb:1g.10gb           on a MIG slice
  perfpass predict hf_model/config.json --device cpu               no weights needed
  perfpass llm llama-3.1-8b --device h100 --input-length 1024 --output-length 128 --concurrency 64
  perfpass inspect model.onnx                                      operators, totals, inputs
  perfpass annotate model.onnx --device a100                       the prediction into the file's metadata
  perfpass features model.onnx --schema dippm -o model.npz         tensors for your own predictor
  perfpass devices                                                 all devices; with a NAME, its figures and sources
  perfpass measure timm:resnet50 --batch 1,8                       measure on this machine, into records

exit codes:
  0 done             4 damaged file       8 not supported        70 internal error
  1 other failure    5 a limit exceeded   9 unknown device       130 interrupted
  2 wrong argument   6 broken graph      10 predictor damaged    141 reader of the output gone
  3 file not found   7 unresolved shape

Errors are one line on stderr. PERFPASS_DEBUG=1 adds the traceback. PERFPASS_DEVICES names further device files."""

_PREDICT_EPILOG = """\
MODEL is an ONNX file (weights are neither needed nor read) or a Hugging Face config.json or its folder.
A symbolic dimension of the file needs a value: --dim NAME=N, or --batch for the batch; `perfpass inspect`
lists them. The interval of peak memory is one-sided: plan for its upper end.

examples:
  perfpass predict resnet50.onnx --device a100
  perfpass predict encoder.onnx --device t4 --dim batch=8 --dim sequence=128 --precision fp16
  perfpass predict model.onnx --device rtx-4090 --batch 64 --precision amp --layout nhwc --compiled
  perfpass predict model.onnx --device h100:1g.10gb --json | jq .latency_ms.median
  perfpass predict model.onnx --device a100 --region FR --pue 1.2      also energy, carbon and money of 1,000 runs"""

_PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16", "amp", "amp_bf16", "int8", "fp8")
_RUNTIMES = ("torch", "torch.compile", "onnxruntime", "tensorrt", "tvm")
_SCHEMAS = ("operator", "dippm", "trappm", "nnlqp")


class _Parser(argparse.ArgumentParser):
    """argparse with our error line: one line, what was wrong and where the help is."""

    def error(self, message: str) -> NoReturn:
        raise ArgumentError(f"{message}; see `{self.prog} --help`")


class _PrintCompletion(argparse.Action):
    """`--print-completion SHELL`, with shtab imported only then."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option: str | None = None) -> None:
        from perfpass.cli.completion import script

        print(script(values))
        parser.exit()


def build_parser() -> argparse.ArgumentParser:
    """The parser; ``options.run(options)`` executes the command."""
    parser = _Parser(
        prog="perfpass",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"perfpass {__version__}")
    parser.add_argument(
        "--print-completion",
        action=_PrintCompletion,
        choices=("bash", "zsh", "tcsh"),
        help="print a shell completion script (as `perfpass completion SHELL`)",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)
    _add_predict(commands)
    _add_annotate(commands)
    _add_compare(commands)
    _add_partition(commands)
    _add_inspect(commands)
    _add_features(commands)
    _add_devices(commands)
    _add_measure(commands)
    _add_llm(commands)
    _add_operator(commands)
    _add_calibrate(commands)
    _add_roofline(commands)
    _add_records(commands)
    _add_train(commands)
    _add_evaluate(commands)
    _add_completion(commands)
    return parser


def _command(commands: Any, name: str, run: Callable[[Any], int], summary: str, epilog: str | None = None) -> Any:
    command = commands.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.set_defaults(run=run)
    return command


def _lazy(name: str) -> Callable[[Any], int]:
    """The function of perfpass.cli.commands of that name, imported when it is called."""

    def run(options: Any) -> int:
        from perfpass.cli import commands

        code: int = getattr(commands, name)(options)
        return code

    return run


def _add_model(command: Any) -> None:
    command.add_argument("model", metavar="MODEL", help="ONNX file, or Hugging Face config.json or folder")
    command.add_argument("--batch", type=_whole, metavar="N", help="batch size (default: the model's own)")
    command.add_argument(
        "--dim",
        action="append",
        default=[],
        type=_dim,
        metavar="NAME=N",
        help="value of a symbolic dimension; may be given more than once",
    )
    command.add_argument(
        "--input-shape",
        action="append",
        default=[],
        type=_shape,
        metavar="NAME=1x3x224x224",
        help="whole shape of one input; may be given more than once",
    )


def _add_predict(commands: Any) -> None:
    command = _command(commands, "predict", _lazy("predict"), "predict what a model costs on a device", _PREDICT_EPILOG)
    _add_model(command)
    command.add_argument(
        "--device", required=True, metavar="NAME", help="device, or device:profile for a MIG slice, or cpu for this one"
    )
    _add_workload(command)
    command.add_argument("--json", action="store_true", help="JSON on stdout instead of the table")
    command.add_argument("--explain", action="store_true", help="also show what the time and memory are made of")
    add_cost_options(command)


def _add_workload(command: Any) -> None:
    """How the model runs, and on what devices beyond the catalogue."""
    command.add_argument("--precision", default="fp32", metavar="P", help=f"{', '.join(_PRECISIONS)} (default: fp32)")
    command.add_argument("--runtime", default=None, metavar="R", help=f"{', '.join(_RUNTIMES)} (default: torch)")
    command.add_argument("--compiled", action="store_true", help="short for --runtime torch.compile")
    command.add_argument("--layout", default="nchw", metavar="L", help="nchw or nhwc (default: nchw)")
    command.add_argument("--mode", default="inference", metavar="M", help="inference, or training: one whole step")
    command.add_argument(
        "--optimizer", metavar="O", help="none, sgd, momentum, adam, adamw (training; default: momentum)"
    )
    command.add_argument("--device-file", action="append", default=[], metavar="FILE", help="TOML file of more devices")
    command.add_argument(
        "--processes", type=_whole, metavar="N", help="MPS processes that share the device or slice (default: one)"
    )
    command.add_argument(
        "--predictor",
        default="perfpass",
        metavar="NAME",
        help="perfpass (default), or a published one: dippm, graph-language (docs/predictors.md)",
    )
    command.add_argument(
        "--no-calibration", action="store_true", help="ignore what `perfpass calibrate` has learned of the device"
    )


_ANNOTATE_EPILOG = """\
MODEL is an ONNX file. Its weights are neither read nor rewritten: some kilobytes of metadata are appended, which
ONNX Runtime (custom_metadata_map), onnx.checker and Netron show. Annotating again replaces the prediction for the
same device; predictions for several devices stand side by side. See docs/annotate.md.

examples:
  perfpass annotate model.onnx --device a100-80gb --device l4 --dim batch=8
  perfpass annotate model.onnx --device h100 --precision fp16 --runtime onnxruntime -o annotated.onnx
  perfpass annotate model.onnx --show
  perfpass annotate model.onnx --remove                            the file is what it was, byte for byte"""


def _add_annotate(commands: Any) -> None:
    command = _command(
        commands, "annotate", _lazy("annotate"), "write the prediction into an ONNX file's metadata", _ANNOTATE_EPILOG
    )
    _add_model(command)
    command.add_argument(
        "--device",
        action="append",
        default=[],
        metavar="NAME",
        help="device to predict for; may be given more than once",
    )
    _add_workload(command)
    command.add_argument("-o", "--output", metavar="FILE", help="write a copy instead of changing the file")
    what = command.add_mutually_exclusive_group()
    what.add_argument("--show", action="store_true", help="show the predictions that the file holds")
    what.add_argument("--remove", action="store_true", help="take the metadata out again")
    command.add_argument("--json", action="store_true", help="JSON on stdout instead of a table")


_PARTITION_EPILOG = """\
ONNX Runtime gives nodes to its CUDA provider until the statistics of FILE add up to a limit; this writes FILE without
the profiling run on the GPU that it usually comes from. See docs/partition.md.

examples:
  perfpass partition model.onnx --device l4 --dim batch=8 -o model.csv
  perfpass partition model.onnx --device a100-80gb:1g.10gb --source file -o model.csv --json"""


def _add_partition(commands: Any) -> None:
    command = _command(
        commands,
        "partition",
        _lazy("partition"),
        "write the node memory statistics that ONNX Runtime's resource partitioning reads",
        _PARTITION_EPILOG,
    )
    _add_model(command)
    command.add_argument("--device", required=True, metavar="NAME", help="device whose memory is the limit")
    command.add_argument("-o", "--output", required=True, metavar="FILE", help="CSV file to write")
    command.add_argument(
        "--source",
        choices=("auto", "onnxruntime", "file"),
        default="auto",
        help="whose graph: onnxruntime's after its basic optimisations, or the file's (default: the first if possible)",
    )
    command.add_argument("--device-file", action="append", default=[], metavar="FILE", help="TOML file of more devices")
    command.add_argument("--json", action="store_true", help="JSON on stdout instead of text")


_COMPARE_EPILOG = """\
MODEL is an ONNX file. The first reader is what the others are compared with; one that is not installed or refuses
the model is named and left out. All but `file` read the weights. See docs/readers.md.

examples:
  perfpass compare model.onnx                                      file, onnxruntime, relay and relax, where installed
  perfpass compare model.onnx --readers file,relax --python relax=venv/bin/python --explain
  perfpass compare model.onnx --readers relax --export relax.json  in another environment, then here:
  perfpass compare model.onnx --readers file --summary relax.json"""


def _add_compare(commands: Any) -> None:
    command = _command(
        commands,
        "compare",
        _lazy("compare"),
        "read a model by several tools, and explain every difference between their graphs",
        _COMPARE_EPILOG,
    )
    _add_model(command)
    command.add_argument(
        "--readers", action="append", default=[], metavar="R,..", help="file, onnxruntime, relay, relax (default: all)"
    )
    command.add_argument(
        "--python", action="append", default=[], type=_pair, metavar="R=PYTHON", help="run a reader in another Python"
    )
    command.add_argument("--summary", action="append", default=[], metavar="FILE", help="a graph that --export wrote")
    command.add_argument("--export", metavar="FILE", help="write the graph of one reader, and stop")
    command.add_argument("--explain", action="store_true", help="also name the nodes of every difference")
    command.add_argument("--json", action="store_true", help="JSON on stdout instead of tables, with all names")


def _add_inspect(commands: Any) -> None:
    command = _command(
        commands,
        "inspect",
        _lazy("inspect"),
        "show a model's inputs, symbolic dimensions, operators and exact totals",
        "examples:\n  perfpass inspect model.onnx\n  perfpass inspect model.onnx --dim batch=8 --json",
    )
    _add_model(command)
    command.add_argument("--json", action="store_true", help="JSON on stdout instead of tables")


def _add_features(commands: Any) -> None:
    command = _command(
        commands,
        "features",
        _lazy("features"),
        "write a model's node features, edges and statics to a file",
        "FILE ends in .npz (NumPy; nodes [N, F], edge_index [2, E], statics [S] and their names). The schemas are\n"
        "described in docs/schemas.md.\n\nexample:\n  perfpass features model.onnx --schema trappm -o model.npz",
    )
    _add_model(command)
    command.add_argument("--schema", required=True, metavar="S", help=", ".join(_SCHEMAS))
    command.add_argument("-o", "--output", required=True, metavar="FILE", help="file to write")


def _add_devices(commands: Any) -> None:
    command = _command(
        commands,
        "devices",
        _lazy("devices"),
        "list the devices, or show one with its MIG profiles and the source of every figure",
        "examples:\n  perfpass devices\n  perfpass devices h100\n  perfpass devices a100-80gb:2g.20gb\n"
        "  perfpass devices --device-file my_gpu.toml --json",
    )
    command.add_argument("name", nargs="?", metavar="NAME", help="one device; all if not given")
    command.add_argument("--json", action="store_true", help="JSON on stdout instead of a table")
    command.add_argument("--device-file", action="append", default=[], metavar="FILE", help="TOML file of more devices")


_MEASURE_EPILOG = """\
MODEL is SOURCE:NAME: timm:resnet50, torchvision:resnet50, hf:bert-base (a configuration shipped with perfpass) or
hf:PATH (a config.json), onnx:PATH (with its weights), unet:temperature-downscaling. Weights are random, nothing is
downloaded. Every combination of the lists is measured; what DIR/records.jsonl already holds is not measured again.

examples:
  perfpass measure timm:resnet50 --batch 1,8,32 --runtime torch,onnxruntime
  perfpass measure hf:llama-3.2-1b --device cuda --mode prefill,decode --sequence-length 512,4096 --precision bf16
  perfpass measure --campaign data/campaigns/gpu.toml --device cuda --budget 25m -o records/h100
  perfpass measure --campaign data/campaigns/gpu.toml --ray auto --budget 2h"""


def _add_measure(commands: Any) -> None:
    command = _command(
        commands,
        "measure",
        _lazy("measure"),
        "measure latency, memory, energy and power of models on this machine",
        _MEASURE_EPILOG,
    )
    command.add_argument("models", nargs="*", metavar="MODEL", help="SOURCE:NAME of what to measure")
    command.add_argument("--campaign", metavar="FILE", help="campaign file (docs/measuring.md) instead of models")
    command.add_argument("--device", metavar="D", help="cpu, cuda or cuda:N (default: cpu, or what the campaign says)")
    command.add_argument("--mode", type=_texts, metavar="M,..", help="inference, training, prefill, decode")
    command.add_argument("--batch", type=_wholes, metavar="N,..", help="batch sizes (default: 1)")
    command.add_argument("--precision", type=_texts, metavar="P,..", help="fp32, tf32, fp16, bf16, amp, amp_bf16")
    command.add_argument("--layout", type=_texts, metavar="L,..", help="nchw, nhwc")
    command.add_argument("--runtime", type=_texts, metavar="R,..", help="torch, torch.compile, onnxruntime, tvm")
    command.add_argument("--image-size", type=_wholes, metavar="N,..", help="pixels (default: the model's own)")
    command.add_argument(
        "--sequence-length", type=_wholes, metavar="N,..", help="tokens read, or in the cache (decode)"
    )
    command.add_argument("--optimizer", type=_texts, metavar="O,..", help="sgd, adamw (training; default: sgd)")
    command.add_argument("--threads", type=_wholes, metavar="N,..", help="threads on the CPU (default: all)")
    command.add_argument("--repeats", type=_whole, metavar="N", help="measure each combination N times (default: 1)")
    command.add_argument("-o", "--output", metavar="DIR", help="folder of the records (default: records/NAME)")
    command.add_argument("--budget", type=_seconds, metavar="T", help="stop in time: 90s, 25m, 2h")
    command.add_argument("--retry-failed", action="store_true", help="measure again what failed, crashed or timed out")
    command.add_argument("--list", action="store_true", help="print the order of what would be measured, and stop")
    command.add_argument("--ray", metavar="ADDRESS", help="run on a Ray cluster: its address, auto, or local")
    command.add_argument(
        "--ray-workers", type=_whole, metavar="N", help="CPU workers on the cluster (default: one a node)"
    )


_LLM_EPILOG = """\
MODEL is a Hugging Face config.json or its folder, or the name of a model whose configuration ships (as
deepseek-ai/DeepSeek-V3, llama-3.1-70b). Concurrency counts requests in flight over the whole deployment.

examples:
  perfpass llm llama-3.1-8b --device h100 --input-length 1024 --output-length 128 --concurrency 64
  perfpass llm deepseek-ai/DeepSeek-R1 --device b200 --tp 8 --ep 8 --precision nvfp4 --runtime trtllm \\
      --input-length 8192 --output-length 1024 --concurrency 32
  perfpass llm model/config.json --device h200 --workers 2 --tp 8 --prefill-workers 1 --prefill-tp 8 \\
      --input-length 4096 --output-length 512 --concurrency 256 --runtime sglang --json
  perfpass llm llama-2-7b --device h100 --predictor llm-trees --input-length 512 --output-length 512 --concurrency 16"""
_LLM_PRECISIONS = ("bf16", "fp16", "fp8", "fp8_block", "nvfp4", "fp4", "mxfp4", "int4", "int8")


def _add_llm(commands: Any) -> None:
    command = _command(
        commands, "llm", _lazy("llm"), "predict what serving a language model costs: TTFT, TPOT, memory", _LLM_EPILOG
    )
    command.add_argument("model", metavar="MODEL", help="config.json, its folder, or a known name")
    command.add_argument("--device", required=True, metavar="NAME", help="a GPU of `perfpass devices`")
    for name, text in (("input-length", "prompt"), ("output-length", "answer")):
        command.add_argument(f"--{name}", type=_whole, required=True, metavar="N", help=f"mean tokens of a {text}")
    command.add_argument("--concurrency", type=_whole, required=True, metavar="N", help="requests in flight")
    command.add_argument(
        "--runtime", choices=("vllm", "trtllm", "sglang"), default="vllm", help="serving stack (default: vllm)"
    )
    command.add_argument("--runtime-version", default="", metavar="V", help="its version, as 0.18.0")
    command.add_argument("--precision", choices=_LLM_PRECISIONS, help="of the matrices (default: what is stored)")
    command.add_argument("--kv-precision", choices=("bf16", "fp8", "nvfp4"), help="of the cache")
    for name, text in (("tp", "tensor"), ("pp", "pipeline"), ("dp", "attention-data"), ("ep", "expert")):
        command.add_argument(f"--{name}", type=_whole, default=1, metavar="N", help=f"{text} parallelism (default: 1)")
        if name != "ep":
            command.add_argument(f"--prefill-{name}", type=_whole, default=1, metavar="N", help="of a prefill worker")
    command.add_argument("--workers", type=_whole, default=1, metavar="N", help="replicas (default: 1)")
    command.add_argument(
        "--prefill-workers", type=_whole, metavar="N", help="disaggregated: replicas that only prefill"
    )
    command.add_argument(
        "--predictor",
        default="perfpass",
        metavar="NAME",
        help="perfpass (default); llm-trees: the requests as one offline batch (docs/llm-trees.md)",
    )
    command.add_argument("--json", action="store_true", help="JSON on stdout instead of a table")
    command.add_argument("--device-file", action="append", default=[], metavar="FILE", help="TOML of more devices")
    add_cost_options(command)


_OPERATOR_EPILOG = """\
DTYPE is bf16, fp16, fp8, fp8_block, fp8_static, int8, int8_wo, int4_wo (weights alone), fp4, w4a16_mxfp4 or
w4a8_mxfp4_mxfp8, as far as it was measured for the operator. Stack and version default to the newest measured ones.

examples:
  perfpass operator gemm --device h100 --m 4096 --n 4096 --k 4096 --dtype fp8 --stack vllm
  perfpass operator prefill-attention --device h200 --batch 1 --tokens 8192 --heads 32 --kv-heads 8
  perfpass operator decode-attention --device h100 --batch 64 --context 4096 --heads 32 --kv-heads 8 --kv-dtype fp8
  perfpass operator moe --device b200 --tokens 512 --hidden 4096 --intermediate 1536 --experts 128 --active-experts 8
  perfpass operator all-reduce --device h100 --n-devices 8 --elements 4194304 --json"""
# Sizes of each operator; those with a value are its default.
_OPERATOR_SIZES: dict[str, dict[str, int | None]] = {
    "gemm": {"m": None, "n": None, "k": None},
    "prefill-attention": {"batch": 1, "tokens": None, "heads": None, "kv-heads": None, "head-dim": 128, "window": 0},
    "decode-attention": {"batch": 1, "context": None, "heads": None, "kv-heads": None, "head-dim": 128, "window": 0},
    "moe": {
        **dict.fromkeys(("tokens", "hidden", "intermediate", "experts", "active-experts")),
        **dict.fromkeys(("tensor-parallel", "expert-parallel"), 1),
    },
    **{n: {"n-devices": None, "elements": None} for n in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")},
}


def _add_operator(commands: Any) -> None:
    command = _command(
        commands, "operator", _lazy("operator"), "predict what one kernel costs on a GPU", _OPERATOR_EPILOG
    )
    operators = command.add_subparsers(dest="operator", metavar="OPERATOR", required=True, parser_class=_Parser)
    for name, sizes in _OPERATOR_SIZES.items():
        operator = operators.add_parser(name, help=", ".join(sizes), allow_abbrev=False)
        operator.add_argument("--device", required=True, metavar="NAME", help="a GPU of `perfpass devices`")
        for size, default in sizes.items():
            operator.add_argument(f"--{size}", type=_whole, metavar="N", required=default is None, default=default)
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
        operator.add_argument("--stack", metavar="S", help="trtllm, vllm, sglang; nccl for collectives")
        operator.add_argument("--stack-version", metavar="V", help="its version, as 0.24.0 or 1.3.0rc20")
        operator.add_argument("--kernel", metavar="K", help="implementation, as triton, fa3, deepgemm, cutlass")
        operator.add_argument("--json", action="store_true", help="JSON on stdout instead of a table")
        operator.add_argument("--device-file", action="append", default=[], metavar="FILE", help="TOML of more devices")


_CALIBRATE_EPILOG = """\
FILE is a journal of `perfpass measure` (records.jsonl) or a Parquet table of vision records (docs/records.md). The
calibration is stored beside your device files, `perfpass predict` uses it and says so, and --no-calibration leaves it
out. Ten measurements are enough for a scale, thirty-two bend it by kind of network.

examples:
  perfpass calibrate --device h100 --plan 10 --precision amp > plan.toml     what to measure
  perfpass measure --campaign plan.toml --device cuda -o records/h100
  perfpass calibrate --device h100 --records records/h100/records.jsonl"""


def _add_calibrate(commands: Any) -> None:
    command = _command(
        commands,
        "calibrate",
        _lazy("calibrate"),
        "learn a device, or new software on it, from 10 to 32 measurements",
        _CALIBRATE_EPILOG,
    )
    command.add_argument("--device", required=True, metavar="NAME", help="device, or device:profile, or cpu")
    command.add_argument("--records", metavar="FILE", help="measurements of that device: JSONL or Parquet")
    command.add_argument("-o", "--output", metavar="DIR", help="where to write (default: the user's device folder)")
    command.add_argument("--plan", type=_whole, metavar="N", help="print which N configurations to measure, and stop")
    command.add_argument("--precision", default="fp32", metavar="P", help="of the plan (default: fp32)")
    command.add_argument("--runtime", default="torch", metavar="R", help="of the plan (default: torch)")
    command.add_argument("--layout", default="nchw", metavar="L", help="of the plan (default: nchw)")
    command.add_argument("--json", action="store_true", help="the plan as JSON instead of a campaign file")
    command.add_argument("--device-file", action="append", default=[], metavar="FILE", help="TOML file of more devices")


def _add_roofline(commands: Any) -> None:
    command = _command(
        commands,
        "roofline",
        _lazy("roofline"),
        "measure what this machine's device reaches on single operators, and draw its roofline",
        "Writes DIR/operators.jsonl (every point; what it already holds is not measured again), roofline.json,\n"
        "roofline.svg and roofline.md (docs/roofline.md). Needs torch, psutil and matplotlib.\n\n"
        "examples:\n  perfpass roofline --quick\n  perfpass roofline --device cuda -o records/h100-roofline",
    )
    command.add_argument("--device", default="cpu", metavar="D", help="cpu, cuda or cuda:N (default: cpu)")
    command.add_argument("-o", "--output", metavar="DIR", help="folder to write to (default: records/roofline-DEVICE)")
    command.add_argument("--quick", action="store_true", help="fewer points, less care: under a minute")
    command.add_argument("--threads", type=_whole, metavar="N", help="threads on the CPU (default: all)")


def _add_records(commands: Any) -> None:
    command = _command(
        commands,
        "records",
        _lazy("records"),
        "read public measurements into the record schema, and list what was refused and why",
        "example:\n  perfpass records sources --reader argonne -o records",
    )
    command.add_argument("sources", metavar="DIR", help="folder that holds the sources' folders (docs/records.md)")
    command.add_argument("--reader", type=_texts, metavar="R,..", help="only these readers (default: all)")
    command.add_argument("-o", "--output", metavar="DIR", help="write every table as DIR/READER-KIND.parquet")
    command.add_argument("--json", action="store_true", help="JSON on stdout instead of text")


def _add_train(commands: Any) -> None:
    command = _command(
        commands,
        "train",
        _lazy("train"),
        "fit the predictors on measured records and write their artefacts",
        "Needs pandas, pyarrow, scipy, xgboost and matplotlib. The records are described in docs/records.md.",
    )
    _add_areas(command)
    command.add_argument("-o", "--output", metavar="DIR", help="where to write (default: the shipped artefacts' place)")
    command.add_argument("--resume", action="store_true", help="keep artefacts made from the same records and program")
    command.add_argument(
        "--predictor", metavar="NAME", help="train one compared predictor instead (docs/predictors.md), into DIR itself"
    )
    command.add_argument(
        "--published", action="store_true", help="with --predictor: sizes and settings as published (needs a GPU)"
    )
    command.add_argument(
        "--base", metavar="FOLDER", help="with --predictor graph-language: a causal language model to stand on"
    )


def _add_evaluate(commands: Any) -> None:
    command = _command(
        commands,
        "evaluate",
        _lazy("evaluate"),
        "grade the predictors on held-out records: unseen models, families and devices",
        "examples:\n  perfpass evaluate --area vision --json\n  perfpass evaluate --output results\n"
        "  perfpass evaluate --predictors all --adaptation --jobs 2      every predictor side by side",
    )
    _add_areas(command)
    compared = command.add_argument_group("predictors side by side (docs/comparison.md)")
    compared.add_argument("--predictors", type=_texts, metavar="P,..", help="compare these instead: all, or a list")
    compared.add_argument("--tasks", type=_texts, metavar="T,..", help="latency, training_step, ... (default: all)")
    compared.add_argument("--splits", type=_texts, metavar="S,..", help="random, architecture, family, device (all)")
    compared.add_argument("--devices", type=_whole, metavar="N", help="at most N unseen devices of each task")
    compared.add_argument("--adaptation", action="store_true", help="also curves of 0 to 128 records of a new device")
    compared.add_argument("--journal", metavar="FILE", help="what is fitted is kept there; an interrupted run goes on")
    compared.add_argument("--jobs", type=_whole, default=1, metavar="N", help="processes (default: 1)")
    compared.add_argument("--tables-only", action="store_true", help="fit nothing: the tables of the journal")
    command.add_argument("--json", action="store_true", help="JSON on stdout instead of tables")
    command.add_argument("--output", metavar="DIR", help="also write tables, JSON and pictures there")


def _add_areas(command: Any) -> None:
    command.add_argument("--records", metavar="DIR", help="folder of records (default: those of this repository)")
    areas = "vision, serving, ... (default: all; perfpass.training.areas lists them)"
    command.add_argument("--area", type=_texts, action="extend", metavar="A,..", help=areas)
    command.add_argument("--seed", type=_whole, default=0, metavar="N", help="seed of every random choice (default: 0)")


def _add_completion(commands: Any) -> None:
    command = _command(
        commands,
        "completion",
        _lazy("completion"),
        "print a shell completion script",
        "examples:\n  perfpass completion bash > ~/.local/share/bash-completion/completions/perfpass\n"
        "  perfpass completion zsh > ~/.zfunc/_perfpass",
    )
    command.add_argument("shell", choices=("bash", "zsh", "tcsh"), metavar="SHELL", help="bash, zsh or tcsh")


def _whole(text: str) -> int:
    try:
        return int(text, 10)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def _wholes(text: str) -> list[int]:
    return [_whole(part.strip()) for part in text.split(",")]


def _texts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


def _seconds(text: str) -> float:
    unit = {"s": 1.0, "m": 60.0, "h": 3600.0}.get(text[-1:])
    try:
        value = float(text[:-1]) if unit else float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time (for example 90s, 25m or 2h)")
    return value * (unit or 1.0)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"expected READER=PYTHON, got {text!r}")
    return name, value


def _dim(text: str) -> tuple[str, int]:
    name, equals, value = text.rpartition("=")
    if not equals or not name or not value.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=N (for example batch=8)")
    return name, int(value)


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, equals, value = text.rpartition("=")
    parts = value.lower().split("x")
    if not equals or not name or not all(part.isdecimal() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=SIZExSIZE (for example input=1x3x224x224)")
    return name, tuple(int(part) for part in parts)


def once(pairs: Sequence[tuple[str, Any]], option: str) -> dict[str, Any] | None:
    """Repeated NAME=VALUE options as a mapping, None if there are none. Raises ArgumentError on a name given twice."""
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ArgumentError(f"{option} gives {twice!r} more than once; give each name once")
    return mapping or None
