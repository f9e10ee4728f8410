"""The options of the commands that measure, learn and grade."""

from __future__ import annotations

from typing import Any

from perfpass.cli.options import lazy, new_command, seconds, texts, whole, wholes

_MEASURE_EPILOG = """\
MODEL is SOURCE:NAME: timm:resnet50, torchvision:resnet50, hf:bert-base (a configuration shipped with perfpass) or
hf:PATH (a config.json), onnx:PATH (with its weights), unet:temperature-downscaling. Weights are random, nothing is
downloaded. Every combination of the lists is measured; what DIR/records.jsonl already holds is not measured again.

examples:
  perfpass measure timm:resnet50 --batch 1,8,32 --runtime torch,onnxruntime
  perfpass measure hf:llama-3.2-1b --device cuda --mode prefill,decode --sequence-length 512,4096 --precision bf16
  perfpass measure --campaign data/campaigns/gpu.toml --device cuda --budget 25m -o records/h100
  perfpass measure --campaign data/campaigns/gpu.toml --ray auto --budget 2h"""


def add_measure(commands: Any) -> None:
    command = new_command(
        commands,
        "measure",
        lazy("measure"),
        "measure latency, memory, energy and power of models on this machine",
        _MEASURE_EPILOG,
    )
    command.add_argument("models", nargs="*", metavar="MODEL", help="SOURCE:NAME of what to measure")
    command.add_argument("--campaign", metavar="FILE", help="campaign file (docs/measuring.md) instead of models")
    command.add_argument("--device", metavar="D", help="cpu, cuda or cuda:N (default: cpu, or what the campaign says)")
    command.add_argument("--mode", type=texts, metavar="M,..", help="inference, training, prefill, decode")
    command.add_argument("--batch", type=wholes, metavar="N,..", help="batch sizes (default: 1)")
    command.add_argument("--precision", type=texts, metavar="P,..", help="fp32, tf32, fp16, bf16, amp, amp_bf16")
    command.add_argument("--layout", type=texts, metavar="L,..", help="nchw, nhwc")
    command.add_argument("--runtime", type=texts, metavar="R,..", help="torch, torch.compile, onnxruntime, tvm")
    command.add_argument("--image-size", type=wholes, metavar="N,..", help="pixels (default: the model's own)")
    command.add_argument("--sequence-length", type=wholes, metavar="N,..", help="tokens read, or in the cache (decode)")
    command.add_argument("--optimizer", type=texts, metavar="O,..", help="sgd, adamw (training; default: sgd)")
    command.add_argument("--threads", type=wholes, metavar="N,..", help="threads on the CPU (default: all)")
    command.add_argument("--repeats", type=whole, metavar="N", help="measure each combination N times (default: 1)")
    command.add_argument("-o", "--output", metavar="DIR", help="folder of the records (default: records/NAME)")
    command.add_argument("--budget", type=seconds, metavar="T", help="stop in time: 90s, 25m, 2h")
    command.add_argument("--retry-failed", action="store_true", help="measure again what failed, crashed or timed out")
    command.add_argument("--list", action="store_true", help="print the order of what would be measured, and stop")
    command.add_argument("--ray", metavar="ADDRESS", help="run on a Ray cluster: its address, auto, or local")
    command.add_argument(
        "--ray-workers", type=whole, metavar="N", help="CPU workers on the cluster (default: one a node)"
    )


_CALIBRATE_EPILOG = """\
FILE is a journal of `perfpass measure` (records.jsonl) or a Parquet table of vision records (docs/records.md). The
calibration is stored beside your device files, `perfpass predict` uses it and says so, and --no-calibration leaves it
out. Ten measurements are enough for a scale, thirty-two bend it by kind of network.

examples:
  perfpass calibrate --device h100 --plan 10 --precision amp > plan.toml     what to measure
  perfpass measure --campaign plan.toml --device cuda -o records/h100
  perfpass calibrate --device h100 --records records/h100/records.jsonl"""


def add_calibrate(commands: Any) -> None:
    command = new_command(
        commands,
        "calibrate",
        lazy("calibrate"),
        "learn a device, or new software on it, from 10 to 32 measurements",
        _CALIBRATE_EPILOG,
    )
    command.add_argument("--device", required=True, metavar="NAME", help="device, or device:profile, or cpu")
    command.add_argument("--records", metavar="FILE", help="measurements of that device: JSONL or Parquet")
    command.add_argument("-o", "--output", metavar="DIR", help="where to write (default: the user's device folder)")
    command.add_argument("--plan", type=whole, metavar="N", help="print which N configurations to measure, and stop")
    command.add_argument("--precision", default="fp32", metavar="P", help="of the plan (default: fp32)")
    command.add_argument("--runtime", default="torch", metavar="R", help="of the plan (default: torch)")
    command.add_argument("--layout", default="nchw", metavar="L", help="of the plan (default: nchw)")
    command.add_argument("--json", action="store_true", help="the plan as JSON instead of a campaign file")
    command.add_argument("--device-file", action="append", default=[], metavar="FILE", help="TOML file of more devices")


def add_roofline(commands: Any) -> None:
    command = new_command(
        commands,
        "roofline",
        lazy("roofline"),
        "measure what this machine's device reaches on single operators, and draw its roofline",
        "Writes DIR/operators.jsonl (every point; what it already holds is not measured again), roofline.json,\n"
        "roofline.svg and roofline.md (docs/roofline.md). Needs torch, psutil and matplotlib.\n\n"
        "examples:\n  perfpass roofline --quick\n  perfpass roofline --device cuda -o records/h100-roofline",
    )
    command.add_argument("--device", default="cpu", metavar="D", help="cpu, cuda or cuda:N (default: cpu)")
    command.add_argument("-o", "--output", metavar="DIR", help="folder to write to (default: records/roofline-DEVICE)")
    command.add_argument("--quick", action="store_true", help="fewer points, less care: under a minute")
    command.add_argument("--threads", type=whole, metavar="N", help="threads on the CPU (default: all)")


def add_records(commands: Any) -> None:
    command = new_command(
        commands,
        "records",
        lazy("records"),
        "read public measurements into the record schema, and list what was refused and why",
        "example:\n  perfpass records sources --reader argonne -o records",
    )
    command.add_argument("sources", metavar="DIR", help="folder that holds the sources' folders (docs/records.md)")
    command.add_argument("--reader", type=texts, metavar="R,..", help="only these readers (default: all)")
    command.add_argument("-o", "--output", metavar="DIR", help="write every table as DIR/READER-KIND.parquet")
    command.add_argument("--json", action="store_true", help="JSON on stdout instead of text")


def add_train(commands: Any) -> None:
    command = new_command(
        commands,
        "train",
        lazy("train"),
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


def add_evaluate(commands: Any) -> None:
    command = new_command(
        commands,
        "evaluate",
        lazy("evaluate"),
        "grade the predictors on held-out records: unseen models, families and devices",
        "examples:\n  perfpass evaluate --area inference --json\n  perfpass evaluate --output results\n"
        "  perfpass evaluate --predictors all --adaptation --jobs 2      every predictor side by side",
    )
    _add_areas(command)
    compared = command.add_argument_group("predictors side by side (docs/comparison.md)")
    compared.add_argument("--predictors", type=texts, metavar="P,..", help="compare these instead: all, or a list")
    compared.add_argument("--tasks", type=texts, metavar="T,..", help="latency, training_step, ... (default: all)")
    compared.add_argument("--splits", type=texts, metavar="S,..", help="random, architecture, family, device (all)")
    compared.add_argument("--devices", type=whole, metavar="N", help="at most N unseen devices of each task")
    compared.add_argument("--adaptation", action="store_true", help="also curves of 0 to 128 records of a new device")
    compared.add_argument("--journal", metavar="FILE", help="what is fitted is kept there; an interrupted run goes on")
    compared.add_argument("--jobs", type=whole, default=1, metavar="N", help="processes (default: 1)")
    compared.add_argument("--tables-only", action="store_true", help="fit nothing: the tables of the journal")
    command.add_argument("--json", action="store_true", help="JSON on stdout instead of tables")
    command.add_argument("--output", metavar="DIR", help="also write tables, JSON and pictures there")


def _add_areas(command: Any) -> None:
    command.add_argument("--records", metavar="DIR", help="folder of records (default: those of this repository)")
    areas = "vision, serving, ... (default: all; perfpass.training.areas lists them)"
    command.add_argument("--area", type=texts, action="extend", metavar="A,..", help=areas)
    command.add_argument("--seed", type=whole, default=0, metavar="N", help="seed of every random choice (default: 0)")
