"""`perfpass measure`: models or a campaign file -> records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfpass.cli.options import MODEL_FORMS, new_command, seconds, texts, whole, wholes
from perfpass.cli.session import Progress, need
from perfpass.errors import ArgumentError

if TYPE_CHECKING:
    from perfpass.measure.campaign_file import Campaign
    from perfpass.measure.configuration import Configuration

_EPILOG = """\
MODEL is what `perfpass predict` takes, an ONNX, OpenVINO or LiteRT file with its weights, or
unet:temperature-downscaling. Records name it SOURCE:NAME (timm:resnet50, hf:bert-base, onnx:PATH, file:PATH). Weights
are random, nothing is downloaded. Every combination of the lists is measured; what DIR/records.jsonl already holds is
not measured again.

examples:
  perfpass measure timm:resnet50 --batch 1,8,32 --runtime torch,onnxruntime
  perfpass measure hf:llama-3.2-1b --device cuda --mode prefill,decode --sequence-length 512,4096 --precision bf16
  perfpass measure --campaign data/campaigns/gpu.toml --device cuda --budget 25m -o records/h100
  perfpass measure --campaign data/campaigns/gpu.toml --ray auto --budget 2h"""
_AXES = (
    "mode",
    "batch",
    "precision",
    "layout",
    "runtime",
    "image_size",
    "sequence_length",
    "optimizer",
    "threads",
    "repeats",
)


def add(commands: Any) -> None:
    """The command's options."""
    command = new_command(
        commands,
        "measure",
        run,
        "measure latency, memory, energy and power of models on this machine",
        _EPILOG,
    )
    command.add_argument("models", nargs="*", metavar="MODEL", help=MODEL_FORMS)
    campaign = "campaign file (docs/guides/measure-and-calibrate.md) instead of models"
    command.add_argument("--campaign", metavar="FILE", help=campaign)
    command.add_argument("--only", type=texts, metavar="R,..", help="of a campaign, only what runs in these runtimes")
    command.add_argument("--device", metavar="D", help="cpu, cuda or cuda:N (default: cpu, or what the campaign says)")
    command.add_argument("--mode", type=texts, metavar="M,..", help="inference, training, prefill, decode")
    command.add_argument("--batch", type=wholes, metavar="N,..", help="batch sizes (default: 1)")
    command.add_argument("--precision", type=texts, metavar="P,..", help="fp32, tf32, fp16, bf16, amp, amp_bf16")
    command.add_argument("--layout", type=texts, metavar="L,..", help="nchw, nhwc")
    command.add_argument(
        "--runtime", type=texts, metavar="R,..", help="torch, torch.compile, onnxruntime, openvino, litert, tvm"
    )
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


def run(options: Any) -> int:
    """Measures, prints the summary, and returns 0; what failed is in the records and the summary."""
    wanted = _campaign(options)
    if options.list:
        from perfpass.measure.order import informative_order

        for configuration in informative_order(wanted.configurations):
            print(_line(configuration))
        return 0
    need("measure", "torch", "psutil")
    from perfpass.measure.campaign import run as run_campaign

    output = Path(options.output or Path("records") / wanted.name)
    with Progress("configuration") as progress:
        outcome = run_campaign(
            wanted,
            output,
            lambda log: _pool(options, wanted, log),
            budget_s=options.budget,
            retry_failed=options.retry_failed,
            progress=progress,
        )
    print(outcome)
    return 0


def _campaign(options: Any) -> Campaign:
    from perfpass.measure.campaign_file import campaign, read_campaign

    given = {name: value for name in _AXES if (value := getattr(options, name)) is not None}
    if (options.campaign is None) == (not options.models):
        raise ArgumentError("give either models to measure or --campaign FILE; see `perfpass measure --help`")
    fixed = {} if options.device is None else {"device": options.device}
    if options.campaign is not None:
        if given:
            names = ", ".join("--" + name.replace("_", "-") for name in given)
            raise ArgumentError(f"{names}: these are set in the campaign file; leave them out or give models instead")
        found = read_campaign(options.campaign, **fixed)
        if options.only is None:
            return found
        kept = tuple(c for c in found.configurations if c.runtime in options.only)
        if not kept:
            raise ArgumentError(f"--only {','.join(options.only)}: nothing in {options.campaign} runs there")
        return replace(found, configurations=kept)
    if options.only is not None:
        raise ArgumentError("--only chooses from a campaign; for models, --runtime does")
    models = [_source(model) for model in options.models]
    return campaign({"sweep": [{"model": models} | given]}, default_name="measured", **fixed)


def _source(model: str) -> str:
    """SOURCE:NAME of a model as any command takes it; what has no file is not looked for."""
    from perfpass.importers.model_argument import understood

    return model if model.startswith("unet:") else understood(model).source


def _pool(options: Any, wanted: Campaign, log: Path) -> Any:
    devices = sorted({configuration.device for configuration in wanted.configurations})
    if options.ray is not None:
        from perfpass.measure.cluster import RayPool

        return RayPool(options.ray, devices, workers=options.ray_workers)
    if len(devices) > 1:
        raise ArgumentError(f"the campaign names the devices {', '.join(devices)}; choose one with --device")
    from perfpass.measure.local import LocalPool

    return LocalPool(devices, log)


def _line(configuration: Configuration) -> str:
    fields = configuration.to_dict()
    model = fields.pop("model")
    return f"{model} " + " ".join(f"{name}={value}" for name, value in fields.items() if name != "repeat" or value)
