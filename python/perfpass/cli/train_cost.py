"""`perfpass train-cost`: memory, time, energy, money and carbon of training a model, on one device or on many."""

from __future__ import annotations

import argparse
from typing import Any

from perfpass.cli.options import (
    add_device_file,
    add_device_files,
    add_json,
    add_shapes,
    find_device,
    new_command,
    print_json,
    shapes,
    texts,
)
from perfpass.cli.options import whole as whole_number
from perfpass.errors import ArgumentError

_EPILOG = """\
MODEL is a language model as for `perfpass llm`, or any other network as for `perfpass predict`. Language models are
laid out over devices in every way; their batches are in sequences, and of an option that is left out the search tries
all values. Other networks train in eager PyTorch, each device on samples of its own; their batches are in samples,
and of the options of layouts --sharding, --recompute (none, full) and --offload (none, optimizer, parameters) have a
meaning. --config reads the file that a framework is started with (torchtitan, DeepSpeed, Accelerate, Megatron-LM, NeMo,
Megatron-Bridge), recognised by its content; options given here overrule it, and MODEL may be left out where it says
which. Exit status: 0 it fits, 1 it does not (with nine chances in ten); other codes are those of errors.

examples:
  perfpass train-cost llama-3.1-8b --device h100 --gpus 8 --sharding zero3 --sequence 8192
  perfpass train-cost llama-3.1-70b --device h100 --gpus 64 --tp 8 --pp 4 --global-batch 512 --tokens 10B
  perfpass train-cost llama-3.1-70b --device h100 --gpus 64 --global-batch 512 --search
  perfpass train-cost qwen2.5-7b --device rtx-4090 --framework torch --precision bf16_true --advise
  perfpass train-cost llama-2-7b --device rtx-4090 --lora-rank 16 --frozen nf4 --framework torch --sequence 2048
  perfpass train-cost resnet50 --device a100 --gpus 8 --micro-batch 256 --precision amp --samples 1281167 --epochs 90
  perfpass train-cost timm:vit_large_patch16_224 --device rtx-4090 --gpus 4 --micro-batch 64 --sharding zero3 --advise
  perfpass train-cost --config llama3_8b.toml --device h100 --gpus 64"""
_UNITS = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_FLAGS = {"virtual": "--vp", "dims": "--dim", "host_gb_s": "--host-bandwidth"}
_LAYOUT = (
    ("tp", "tensor", "tensor ranks"),
    ("pp", "pipeline", "pipeline stages"),
    ("cp", "context", "context ranks"),
    ("ep", "expert", "groups that experts are spread over"),
)


def add(commands: Any) -> None:
    """The command's options."""
    summary = "what training a model takes, on one GPU or on many"
    command = new_command(commands, "train-cost", run, summary, _EPILOG)
    command.add_argument(
        "model", nargs="?", metavar="MODEL", help="a name, a config.json or its folder, an ONNX file, timm:NAME"
    )
    command.add_argument(
        "--config", metavar="FILE", help="what a framework is started with: the layout is read from it"
    )
    command.add_argument("--device", required=True, metavar="NAME", help="each GPU")
    command.add_argument("--gpus", type=whole_number, metavar="N", help="how many (default: 1)")
    for short, name, meaning in _LAYOUT:
        command.add_argument(f"--{short}", dest=name, type=whole_number, metavar="N", help=f"{meaning} (default: 1)")
    command.add_argument("--vp", type=whole_number, metavar="N", help="chunks of a stage (default: 1)")
    command.add_argument(
        "--sharding", metavar="S", help="none, zero1, zero2, zero3 (FSDP); default: zero1, of networks none"
    )
    command.add_argument(
        "--sequence", type=whole_number, metavar="N", help="tokens (default: 4096, or the model's positions)"
    )
    command.add_argument(
        "--micro-batch", type=whole_number, metavar="N", help="sequences or samples at once (default: 1)"
    )
    command.add_argument("--global-batch", type=whole_number, metavar="N", help="sequences or samples of a step")
    command.add_argument(
        "--precision",
        metavar="P",
        help="bf16 (default; fp16 where a device has none), fp8, nvfp4, amp, bf16_true, fp32; of networks as predict",
    )
    command.add_argument(
        "--optimizer",
        metavar="O",
        help="adamw (default), adamw_8bit, muon, sgd, ...; of networks those of predict",
    )
    command.add_argument("--recompute", metavar="R", help="none, selective, full, offloaded (default: none)")
    command.add_argument("--offload", metavar="O", help="states, optimizer, parameters: to the host (default: none)")
    command.add_argument("--schedule", metavar="S", help="of a pipeline: 1f1b (default), zb_h1, zb_h2")
    command.add_argument("--attention", metavar="A", help="flash or unfused (default: flash, if the framework has it)")
    command.add_argument("--loss", metavar="L", help="parallel, eager, fused, scripted (default: the framework's)")
    command.add_argument(
        "--framework",
        metavar="F",
        help="megatron (default), torch, deepspeed, other; eager: as predict, in amp_bf16 with adamw",
    )
    command.add_argument("--lora-rank", type=whole_number, metavar="N", help="train adapters of this rank alone")
    command.add_argument("--lora-targets", type=texts, metavar="T,T", help="what they adapt (default: query,value)")
    command.add_argument("--frozen", metavar="Q", help="weights beside adapters: none (16 bits, default), int8, nf4")
    command.add_argument("--dora", action="store_true", help="adapters with magnitudes")
    command.add_argument(
        "--equal-lengths", action="store_true", help="sequences are packed or padded to one length (as Megatron-LM's)"
    )
    command.add_argument(
        "--towers", metavar="T", help="what reads pictures or sound: frozen (default), trained, none (not loaded)"
    )
    command.add_argument("--layout", metavar="L", help="of other networks: nchw (default) or nhwc")
    add_shapes(command)
    command.add_argument("--fabric", type=float, metavar="GB", help="GB/s between hosts, one direction, a device")
    command.add_argument(
        "--host-bandwidth", type=float, metavar="GB", help="GB/s of host memory, a device (default: 25)"
    )
    command.add_argument("--tokens", type=_tokens, metavar="N", help="of the run, as 10B: hours, energy, money")
    command.add_argument("--samples", type=_tokens, metavar="N", help="of an epoch, as 1.28M, instead of --tokens")
    command.add_argument("--epochs", type=float, metavar="N", help="of --samples (default: 1)")
    command.add_argument("--region", metavar="CODE", help="grid whose carbon counts: ISO country code, or WORLD")
    command.add_argument("--carbon-intensity", type=float, metavar="G", help="your own gCO2e/kWh instead")
    command.add_argument("--pue", type=float, metavar="F", help="total over IT power (default: 1)")
    command.add_argument("--price-table", metavar="FILE", help="TOML price table instead of the shipped one")
    command.add_argument("--advise", action="store_true", help="what takes less memory, also where it fits")
    command.add_argument("--search", action="store_true", help="try every layout that is not given")
    command.add_argument(
        "--no-calibration", action="store_true", help="ignore what `perfpass calibrate` has learned of own steps"
    )
    add_device_file(command)
    add_json(command)


def _tokens(text: str) -> float:
    factor = _UNITS.get(text[-1:].upper(), 1.0)
    try:
        return float(text[:-1] if factor > 1 else text) * factor
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number; give one as 10B, 500M or 1e9") from None


def run(options: Any) -> int:
    """Prints the prediction, or the best layouts."""
    from perfpass.deploy import training_files
    from perfpass.deploy.train_answer import train_answer, train_layouts

    add_device_files(options)
    given = {name: value for name, value in _asked(options).items() if value is not None}
    model, notes = options.model, tuple[str, ...]()
    if options.config is not None:
        settings = training_files.read(options.config)
        given, notes = settings.asked | given, settings.notes
        model = settings.model if model is None else model
    if model is None:
        raise ArgumentError("no model is named, and no --config that names one; give MODEL")
    device = find_device(options)
    beside: dict[str, Any] = {"advise": options.advise, "notes": notes, "named": _flag}
    if options.search:
        layouts = train_layouts(model, device, **beside, **given)
        print_json(layouts.to_dict()) if options.json else print(layouts)
        return 0 if layouts.best else 1
    answer = train_answer(model, device, **beside, **given)
    print_json(answer.to_dict()) if options.json else print(answer)
    return 0 if answer.fits else 1


def _asked(options: Any) -> dict[str, Any]:
    """By the names of `perfpass.train_cost`; None where an option was left out."""
    asked: dict[str, Any] = {name: getattr(options, name) for _, name, _ in _LAYOUT}
    same: tuple[str, ...] = (
        "gpus",
        "sharding",
        "micro_batch",
        "recompute",
        "sequence",
        "global_batch",
        "precision",
        "optimizer",
    )
    same += ("attention", "loss", "framework", "lora_rank", "frozen", "offload", "schedule", "tokens", "region")
    same += ("samples", "epochs", "towers")
    asked |= {name: getattr(options, name) for name in (*same, "carbon_intensity", "pue", "price_table")}
    return asked | {
        "virtual": options.vp,
        "lora_targets": None if options.lora_targets is None else tuple(options.lora_targets),
        "dora": options.dora or None,
        "equal_lengths": options.equal_lengths or None,
        "host_gb_s": options.host_bandwidth,
        "fabric_gb_s": options.fabric,
        "calibration": False if options.no_calibration else None,
        "layout": options.layout,
        **shapes(options),
    }


def _flag(name: str) -> str:
    """What an argument is called here."""
    flags = {name: f"--{short}" for short, name, _ in _LAYOUT} | _FLAGS
    return flags.get(name, "--" + name.replace("_", "-"))
