"""The options of every command. Nothing heavy is imported: `perfpass --help` answers at once."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from perfpass import __version__
from perfpass.cli import learning
from perfpass.cli.costing import add_cost_options
from perfpass.cli.options import dim, lazy, new_command, pair, shape, whole
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
    learning.add_measure(commands)
    _add_llm(commands)
    _add_operator(commands)
    learning.add_calibrate(commands)
    learning.add_roofline(commands)
    learning.add_records(commands)
    learning.add_train(commands)
    learning.add_evaluate(commands)
    _add_completion(commands)
    return parser


def _add_model(command: Any) -> None:
    command.add_argument("model", metavar="MODEL", help="ONNX file, or Hugging Face config.json or folder")
    command.add_argument("--batch", type=whole, metavar="N", help="batch size (default: the model's own)")
    command.add_argument(
        "--dim",
        action="append",
        default=[],
        type=dim,
        metavar="NAME=N",
        help="value of a symbolic dimension; may be given more than once",
    )
    command.add_argument(
        "--input-shape",
        action="append",
        default=[],
        type=shape,
        metavar="NAME=1x3x224x224",
        help="whole shape of one input; may be given more than once",
    )


def _add_predict(commands: Any) -> None:
    command = new_command(
        commands, "predict", lazy("predict"), "predict what a model costs on a device", _PREDICT_EPILOG
    )
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
        "--processes", type=whole, metavar="N", help="MPS processes that share the device or slice (default: one)"
    )
    command.add_argument(
        "--predictor",
        default="perfpass",
        metavar="NAME",
        help="perfpass (default), or a published one: dippm, trappm, graph-language (docs/predictors.md)",
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
    command = new_command(
        commands, "annotate", lazy("annotate"), "write the prediction into an ONNX file's metadata", _ANNOTATE_EPILOG
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
    command = new_command(
        commands,
        "partition",
        lazy("partition"),
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
    command = new_command(
        commands,
        "compare",
        lazy("compare"),
        "read a model by several tools, and explain every difference between their graphs",
        _COMPARE_EPILOG,
    )
    _add_model(command)
    command.add_argument(
        "--readers", action="append", default=[], metavar="R,..", help="file, onnxruntime, relay, relax (default: all)"
    )
    command.add_argument(
        "--python", action="append", default=[], type=pair, metavar="R=PYTHON", help="run a reader in another Python"
    )
    command.add_argument("--summary", action="append", default=[], metavar="FILE", help="a graph that --export wrote")
    command.add_argument("--export", metavar="FILE", help="write the graph of one reader, and stop")
    command.add_argument("--explain", action="store_true", help="also name the nodes of every difference")
    command.add_argument("--json", action="store_true", help="JSON on stdout instead of tables, with all names")


def _add_inspect(commands: Any) -> None:
    command = new_command(
        commands,
        "inspect",
        lazy("inspect"),
        "show a model's inputs, symbolic dimensions, operators and exact totals",
        "examples:\n  perfpass inspect model.onnx\n  perfpass inspect model.onnx --dim batch=8 --json",
    )
    _add_model(command)
    command.add_argument("--json", action="store_true", help="JSON on stdout instead of tables")


def _add_features(commands: Any) -> None:
    command = new_command(
        commands,
        "features",
        lazy("features"),
        "write a model's node features, edges and statics to a file",
        "FILE ends in .npz (NumPy; nodes [N, F], edge_index [2, E], statics [S] and their names). The schemas are\n"
        "described in docs/schemas.md.\n\nexample:\n  perfpass features model.onnx --schema trappm -o model.npz",
    )
    _add_model(command)
    command.add_argument("--schema", required=True, metavar="S", help=", ".join(_SCHEMAS))
    command.add_argument("-o", "--output", required=True, metavar="FILE", help="file to write")


def _add_devices(commands: Any) -> None:
    command = new_command(
        commands,
        "devices",
        lazy("devices"),
        "list the devices, or show one with its MIG profiles and the source of every figure",
        "examples:\n  perfpass devices\n  perfpass devices h100\n  perfpass devices a100-80gb:2g.20gb\n"
        "  perfpass devices --device-file my_gpu.toml --json",
    )
    command.add_argument("name", nargs="?", metavar="NAME", help="one device; all if not given")
    command.add_argument("--json", action="store_true", help="JSON on stdout instead of a table")
    command.add_argument("--device-file", action="append", default=[], metavar="FILE", help="TOML file of more devices")


_LLM_EPILOG = """\
MODEL is a Hugging Face config.json or its folder, or the name of a model whose configuration ships (as
deepseek-ai/DeepSeek-V3, llama-3.1-70b). Concurrency counts requests in flight over the whole deployment.

examples:
  perfpass llm llama-3.1-8b --device h100 --input-length 1024 --output-length 128 --concurrency 64
  perfpass llm deepseek-ai/DeepSeek-R1 --device b200 --tp 8 --ep 8 --precision nvfp4 --runtime trtllm \\
      --input-length 8192 --output-length 1024 --concurrency 32
  perfpass llm model/config.json --device h200 --workers 2 --tp 8 --prefill-workers 1 --prefill-tp 8 \\
      --input-length 4096 --output-length 512 --concurrency 256 --runtime sglang --json
  perfpass llm llama-2-70b --device a100-80gb --tp 4 --offline --input-length 512 --output-length 128 --concurrency 16
  perfpass llm llama-2-7b --device h100 --predictor llm-trees --input-length 512 --output-length 512 --concurrency 16"""
_LLM_RUNTIMES = ("vllm", "trtllm", "sglang", "tgis", "deepspeed", "deepspeed-mii", "llama.cpp", "sambaflow")
_LLM_PRECISIONS = ("bf16", "fp16", "fp8", "fp8_block", "nvfp4", "fp4", "mxfp4", "int4", "int8")


def _add_llm(commands: Any) -> None:
    command = new_command(
        commands, "llm", lazy("llm"), "predict what serving a language model costs: TTFT, TPOT, memory", _LLM_EPILOG
    )
    command.add_argument("model", metavar="MODEL", help="config.json, its folder, or a known name")
    command.add_argument("--device", required=True, metavar="NAME", help="a GPU of `perfpass devices`")
    for name, text in (("input-length", "prompt"), ("output-length", "answer")):
        command.add_argument(f"--{name}", type=whole, required=True, metavar="N", help=f"mean tokens of a {text}")
    command.add_argument("--concurrency", type=whole, required=True, metavar="N", help="requests in flight")
    command.add_argument(
        "--runtime",
        choices=_LLM_RUNTIMES,
        default="vllm",
        help="serving stack (default: vllm); tgis: as of 2023; deepspeed and the rest: with --offline",
    )
    command.add_argument(
        "--offline",
        action="store_true",
        help="without a server: all requests as one batch, on --tp devices; the whole batch, its prompt, a token",
    )
    command.add_argument("--runtime-version", default="", metavar="V", help="its version, as 0.18.0")
    command.add_argument("--precision", choices=_LLM_PRECISIONS, help="of the matrices (default: what is stored)")
    command.add_argument("--kv-precision", choices=("bf16", "fp8", "nvfp4"), help="of the cache")
    for name, text in (("tp", "tensor"), ("pp", "pipeline"), ("dp", "attention-data"), ("ep", "expert")):
        command.add_argument(f"--{name}", type=whole, default=1, metavar="N", help=f"{text} parallelism (default: 1)")
        if name != "ep":
            command.add_argument(f"--prefill-{name}", type=whole, default=1, metavar="N", help="of a prefill worker")
    command.add_argument("--workers", type=whole, default=1, metavar="N", help="replicas (default: 1)")
    command.add_argument("--prefill-workers", type=whole, metavar="N", help="disaggregated: replicas that only prefill")
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
    command = new_command(
        commands, "operator", lazy("operator"), "predict what one kernel costs on a GPU", _OPERATOR_EPILOG
    )
    operators = command.add_subparsers(dest="operator", metavar="OPERATOR", required=True, parser_class=_Parser)
    for name, sizes in _OPERATOR_SIZES.items():
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
        operator.add_argument("--stack", metavar="S", help="trtllm, vllm, sglang; nccl for collectives")
        operator.add_argument("--stack-version", metavar="V", help="its version, as 0.24.0 or 1.3.0rc20")
        operator.add_argument("--kernel", metavar="K", help="implementation, as triton, fa3, deepgemm, cutlass")
        operator.add_argument("--json", action="store_true", help="JSON on stdout instead of a table")
        operator.add_argument("--device-file", action="append", default=[], metavar="FILE", help="TOML of more devices")


def _add_completion(commands: Any) -> None:
    command = new_command(
        commands,
        "completion",
        lazy("completion"),
        "print a shell completion script",
        "examples:\n  perfpass completion bash > ~/.local/share/bash-completion/completions/perfpass\n"
        "  perfpass completion zsh > ~/.zfunc/_perfpass",
    )
    command.add_argument("shell", choices=("bash", "zsh", "tcsh"), metavar="SHELL", help="bash, zsh or tcsh")
