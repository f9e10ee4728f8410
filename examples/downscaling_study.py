"""A study of one model on one device: the U-Net that downscales temperature, from its operators to its bill.

    python examples/downscaling_study.py --device cpu -o records/downscaling --quick

Operator level: every convolution of the network against the roofline measured on the same device. Inference and
training level: latency, throughput, memory and utilisation over batches and precisions. Then money and MIG advice:
measured for the device that is here, predicted (and marked so) for those that are not. Measuring needs torch, psutil
and matplotlib; what is known in the output folder is not measured again, so the report can be written elsewhere with
``--only report``. The predictions need perfpass's compiled core.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import textwrap
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from perfpass.deploy import money
from perfpass.devices import device as find_device
from perfpass.errors import DeviceError, PerfPassError
from perfpass.measure import unet
from perfpass.measure.campaign import run
from perfpass.measure.campaign_file import campaign
from perfpass.measure.journal import read
from perfpass.measure.local import LocalPool
from perfpass.measure.operators import ELEMENT_BYTES, Convolution
from perfpass.measure.roofline import measurement as roofline
from perfpass.measure.roofline.figure import save, save_figure
from perfpass.prediction import MigHint
from perfpass.predictors.mig.profile import advise, utilisation
from perfpass.text import count, digits, size

NAME = "temperature-downscaling"
MODEL = f"unet:{NAME}"
OPERATOR_BATCH = {"cpu": 8, "cuda": 64}
SAMPLES = 100_000  # of one epoch, for the money: a round number, not a property of any data set
DEVICES = (
    "h200",
    "h100-sxm5-80gb",
    "h100-pcie-80gb",
    "a100-sxm4-80gb",
    "a100-sxm4-40gb",
    "a30",
    "l40s",
    "l4",
    "a10",
    "t4",
)
PREDICTED_BATCH = 64
# What `amp` computes its convolutions in; the roof of a run is that of this precision.
COMPUTED_IN = {"amp": "fp16", "amp_bf16": "bf16"}


def layers(batch: int, precision: str) -> dict[str, Convolution]:
    """The network's convolutions by the names of their modules, at ``batch``."""
    module = unet.UNet(unet.NAMES[NAME]).eval()
    found: dict[str, Convolution] = {}

    def note(name: str) -> Any:
        def hook(layer: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
            _, channels, height, width = inputs[0].shape
            found[name] = Convolution(
                batch=batch,
                channels=channels,
                height=height,
                width=width,
                filters=output.shape[1],
                kernel=layer.kernel_size[0],
                stride=layer.stride[0],
                transposed=isinstance(layer, torch.nn.ConvTranspose2d),
                precision=precision,
                layout="nhwc" if precision in ("fp16", "bf16") else "nchw",
            )

        return hook

    for name, layer in module.named_modules():
        if isinstance(layer, torch.nn.Conv2d | torch.nn.ConvTranspose2d):
            layer.register_forward_hook(note(name))
    with torch.no_grad():
        module(torch.zeros(1, unet.CHANNELS, unet.HEIGHT, unet.WIDTH))
    return found


def work(batch: int, precision: str) -> tuple[int, int]:
    """FLOPs and compulsory bytes of one forward run: of its convolutions, which are nearly all of the FLOPs."""
    convolutions = layers(batch, COMPUTED_IN.get(precision, precision)).values()
    return sum(c.flops for c in convolutions), sum(c.bytes for c in convolutions)


def sweeps(kind: str, quick: bool) -> dict[str, Any]:
    """The campaign: inference and training over batches and precisions."""
    if kind == "cpu":
        batches = [1, 4, 16] if quick else [1, 2, 4, 8, 16, 32, 64]
        inference = {"batch": batches, "precision": ["fp32", "bf16"]}
        training = {"batch": [4, 8] if quick else [4, 8, 16, 32], "precision": ["fp32", "amp_bf16"]}
    else:
        batches = [1, 8, 64, 512] if quick else [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
        inference = {"batch": batches, "precision": ["fp32", "tf32", "fp16", "bf16"]}
        training = {
            "batch": [16, 64, 256] if quick else [8, 16, 32, 64, 128, 256, 512],
            "precision": ["fp32", "tf32", "amp", "amp_bf16"],
        }
    content: dict[str, Any] = {
        "name": NAME,
        "sweep": [{"model": MODEL, "mode": "inference"} | inference, {"model": MODEL, "mode": "training"} | training],
    }
    if quick:
        content["protocol"] = {"warmup_max_s": 1.0, "measure_max_s": 1.5, "confidence_share": 0.03}
    return content


def measure(device: str, folder: Path, quick: bool, threads: int | None) -> None:
    """All three levels, into ``folder``."""
    kind = torch.device(device).type
    print(f"roofline of {device}")
    roofline.characterise(device, folder, quick=quick, threads=threads)
    roofline.write(roofline.summarise(folder), folder)
    precisions = ("fp32",) if kind == "cpu" else ("fp32", "tf32", "fp16")
    for precision in precisions:
        print(f"convolutions of the network in {precision}")
        roofline.characterise(
            device,
            folder / "operators",
            quick=quick,
            threads=threads,
            operators=layers(OPERATOR_BATCH[kind], precision).values(),
        )
    print("inference and training")
    fixed: dict[str, Any] = {"device": device} | ({"threads": threads} if threads else {})
    wanted = campaign(sweeps(kind, quick), **fixed)
    print(run(wanted, folder / "campaign", lambda log: LocalPool([device], log)))


def rows(folder: Path) -> list[dict[str, Any]]:
    """The campaign's records of runs that ended well, by mode, precision and batch, each once (the last)."""
    records = {r["key"]: r for r in read(folder / "campaign" / "records.jsonl").records}
    fine = [r for r in records.values() if r["status"] == "ok"]
    return sorted(
        fine, key=lambda r: (r["configuration"]["mode"], r["configuration"]["precision"], r["configuration"]["batch"])
    )


def share_of_device(record: dict[str, Any], summary: dict[str, Any]) -> float | None:
    """Utilisation of a measured run against the measured roofs; a training step does three times the forward work.

    Backward computes the gradients of inputs and of weights, each as much work as the forward run. None where no peak
    of the precision was measured.
    """
    c = record["configuration"]
    peak = summary["peak_flop_s"].get(COMPUTED_IN.get(c["precision"], c["precision"]))
    if peak is None:
        return None
    flops, moved = work(c["batch"], c["precision"])
    times = 3 if c["mode"] == "training" else 1
    return utilisation(times * flops, times * moved, record["latency_ms"]["median"], peak, summary["memory_bytes_s"])


def peak_memory(record: dict[str, Any]) -> int:
    """Peak bytes of a run: the allocator's on a GPU, else what the process's resident memory grew by."""
    memory = record["memory"]
    if "reserved_peak_bytes" in memory:
        return int(memory["reserved_peak_bytes"])
    return int(max(0, memory["host_peak_rss_bytes"] - memory["host_baseline_rss_bytes"]))


# ---------------------------------------------------------------------------------------------------------- report


def operator_level(folder: Path, summary: dict[str, Any]) -> list[str]:
    """Table of the convolutions, and the figure with them on the roofline."""
    detail = read(folder / "operators" / roofline.JOURNAL)
    kind = summary["kind"]
    lines: list[str] = ["## Operators", "", "![convolutions on the roofline](operators.svg)", ""]
    points = []
    for precision in [p for p in ELEMENT_BYTES if p in summary["peak_flop_s"]]:
        wanted = layers(OPERATOR_BATCH[kind], precision)
        by_operator = {}
        for record in detail.records:
            if record["status"] == "ok" and record["environment"] == summary["environment"]:
                by_operator[roofline.from_dict(record["configuration"])] = record
        if not all(c in by_operator for c in wanted.values()):
            continue
        repeated = Counter(wanted.values())
        total = sum(by_operator[c]["latency_ms"]["median"] for c in wanted.values())
        lines += [f"### {precision}, batch {OPERATOR_BATCH[kind]}", ""]
        lines += [
            "| convolution | times | FLOPs | FLOP/B | time each | share of all | FLOP/s | of the roof |",
            "|---|---:|---:|---:|---:|---:|---:|---:|",
        ]
        for convolution, times in sorted(
            repeated.items(), key=lambda item: -item[1] * by_operator[item[0]]["latency_ms"]["median"]
        ):
            record = by_operator[convolution]
            ms, reached = record["latency_ms"]["median"], record["flop_s"]
            name = next(n for n, c in wanted.items() if c == convolution)
            roof = roofline.attainable(summary, convolution)
            lines.append(
                f"| {name}: {convolution.channels} to {convolution.filters}, "
                f"{convolution.height} x {convolution.width}, kernel {convolution.kernel}"
                f"{', transposed' if convolution.transposed else ''} | {times} "
                f"| {count(convolution.flops)} | {digits(convolution.flops / convolution.bytes)} | {digits(ms)} ms "
                f"| {100 * times * ms / total:.0f} % | {count(reached)} | {100 * reached / roof:.0f} % |"
            )
            points.append(
                {
                    "group": convolution.group,
                    "precision": precision,
                    "flop_per_byte": convolution.flops / convolution.bytes,
                    "flop_s": reached,
                }
            )
        lines += ["", f"All convolutions together: {digits(total)} ms.", ""]
    save_figure(summary, folder / "operators.svg", points)
    return lines


def run_level(folder: Path, summary: dict[str, Any], mode: str) -> list[str]:
    """Table and figure of inference or training."""
    chosen = [r for r in rows(folder) if r["configuration"]["mode"] == mode]
    title = {"inference": "Inference", "training": "Training"}[mode]
    time = {"inference": "latency", "training": "step"}[mode]
    lines = [f"## {title}", "", f"![{mode}]({mode}.svg)", ""]
    lines += [
        f"| precision | batch | {time} | p99 | samples/s | peak memory | utilisation | flags |",
        "|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    for r in chosen:
        share = share_of_device(r, summary)
        lines.append(
            f"| {r['configuration']['precision']} | {r['configuration']['batch']} "
            f"| {digits(r['latency_ms']['median'])} ms | {digits(r['latency_ms']['p99'])} ms "
            f"| {digits(r['throughput_per_s'])} | {size(peak_memory(r))} "
            f"| {'not known' if share is None else f'{100 * share:.0f} %'} | {', '.join(r['flags'])} |"
        )
    draw_runs(chosen, summary, mode, folder / f"{mode}.svg")
    return [*lines, ""]


def draw_runs(chosen: list[dict[str, Any]], summary: dict[str, Any], mode: str, path: Path) -> None:
    """Time, throughput and memory over the batch, a line per precision."""
    from matplotlib.figure import Figure

    colours = dict(
        zip(
            ("fp32", "tf32", "fp16", "bf16", "amp", "amp_bf16"),
            ("#0072B2", "#009E73", "#D55E00", "#CC79A7") * 2,
            strict=False,
        )
    )
    figure = Figure(figsize=(12.5, 3.8), layout="constrained")
    panels = figure.subplots(1, 3)
    readings = (
        ("latency (ms)" if mode == "inference" else "step (ms)", lambda r: r["latency_ms"]["median"]),
        ("throughput (samples/s)", lambda r: r["throughput_per_s"]),
        ("peak memory (MiB)", lambda r: peak_memory(r) / 2**20),
    )
    for axes, (label, value) in zip(panels, readings, strict=True):
        for precision in dict.fromkeys(r["configuration"]["precision"] for r in chosen):
            line = [r for r in chosen if r["configuration"]["precision"] == precision]
            batches = [r["configuration"]["batch"] for r in line]
            axes.plot(
                batches, [value(r) for r in line], marker="o", markersize=4, color=colours[precision], label=precision
            )
        ticks = sorted({r["configuration"]["batch"] for r in chosen})
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(ticks, [str(t) for t in ticks])
        axes.minorticks_off()
        axes.yaxis.set_major_formatter(lambda v, _: digits(v))
        axes.yaxis.set_major_locator(_steps())
        axes.set_xlabel("batch")
        axes.set_ylabel(label)
        axes.grid(True, color="0.9")
        axes.set_axisbelow(True)
    panels[0].legend(fontsize=8)
    figure.suptitle(f"{NAME} U-Net, {mode}, on {summary['device']}", fontsize=12)
    save(figure, path)


def _steps() -> Any:
    from matplotlib.ticker import LogLocator

    return LogLocator(base=10, subs=(1, 2, 5), numticks=12)


def bill(folder: Path, summary: dict[str, Any], prices: str | None) -> list[str]:
    """Money and MIG advice: the device here as measured, the others as predicted."""
    table = money.read_prices(prices)
    lines = ["## Money and MIG", "", "Cheapest price of the table; the device is taken as busy all the time.", ""]
    lines += [
        "| device | known by | batch | samples/s | USD per million samples | utilisation | MIG advice |",
        "|---|---|---:|---:|---:|---:|---|",
    ]
    notes = Notes({}, {})
    lines += measured_bill(folder, summary, table, notes)
    lines += predicted_bill(table, str(summary["facts"]["device"].get("catalogue_id")), notes)
    lines += ["", "Prices:", "", *(f"- {name}: {paid}" for name, paid in notes.prices.items())]
    lines += ["", "Why this advice:", "", *(wrapped(f"- {name}: {why}") for name, why in notes.reasons.items())]
    training = [r for r in rows(folder) if r["configuration"]["mode"] == "training"]
    if training:
        best = max(training, key=lambda r: r["throughput_per_s"])
        c = best["configuration"]
        hours = SAMPLES / best["throughput_per_s"] / 3600
        text = f"Training, measured: an epoch of {SAMPLES:,} samples takes {digits(hours)} h "
        text += f"(batch {c['batch']}, {c['precision']})"
        try:
            paid = money.price(catalogue_name(summary), table)
            usd = money.per_epoch(best["latency_ms"]["median"], c["batch"], SAMPLES, paid)
            text += f", {usd:.3g} USD at {paid}"
        except DeviceError as error:
            text += f"; {error}"
        lines += ["", wrapped(text + ".")]
    lines += predicted_training(table, str(summary["facts"]["device"].get("catalogue_id")))
    return [*lines, ""]


def catalogue_name(summary: dict[str, Any]) -> str:
    """The device here, as the catalogue and the price table call it."""
    return (
        "cpu" if summary["kind"] == "cpu" else str(summary["facts"]["device"].get("catalogue_id") or summary["device"])
    )


@dataclass(frozen=True)
class Notes:
    """What stands below the table of money: why a profile is advised, and what a device costs, by its name."""

    reasons: dict[str, str]
    prices: dict[str, str]


def wrapped(text: str) -> str:
    """A paragraph or list item in lines of 118 columns."""
    indent = "  " if text.startswith("- ") else ""
    return textwrap.fill(text, 118, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def measured_bill(folder: Path, summary: dict[str, Any], table: Any, notes: Notes) -> list[str]:
    """Rows of the device here: per precision the best throughput, at the batch that gave it; fills ``notes``."""
    inference = [r for r in rows(folder) if r["configuration"]["mode"] == "inference"]
    lines = []
    for precision in dict.fromkeys(r["configuration"]["precision"] for r in inference):
        best = max(
            (r for r in inference if r["configuration"]["precision"] == precision), key=lambda r: r["throughput_per_s"]
        )
        batch, ms = best["configuration"]["batch"], best["latency_ms"]["median"]
        share = share_of_device(best, summary)
        cost, advice = "not known", "not known"
        try:
            target = find_device(catalogue_name(summary))
            if share is not None:
                name = f"{summary['device']}, {precision}"
                advice = advised(advise(share, peak_memory(best), target), name, notes.reasons)
            row = money.price(target, table)
            cost, notes.prices[summary["device"]] = f"{money.per_million(ms, batch, row):.3g}", str(row)
        except DeviceError:
            pass
        known_by = f"measured, {precision}" + (" (contended)" if "contended" in best["flags"] else "")
        utilised = "not known" if share is None else f"{100 * share:.0f} %"
        lines.append(
            f"| {summary['device']} | {known_by} | {batch} | {digits(best['throughput_per_s'])} "
            f"| {cost} | {utilised} | {advice} |"
        )
    return lines


def predicted_bill(table: Any, skip: str, notes: Notes) -> list[str]:
    """Rows of the devices that are not here, predicted with their intervals (nine of ten runs lie inside)."""
    try:
        from perfpass.predictors import predict
    except ImportError as error:
        print(f"no predictions: {error}; build perfpass and run again with --only report", file=sys.stderr)
        return []
    module = unet.UNet(unet.NAMES[NAME]).eval()
    flops, moved = work(PREDICTED_BATCH, "fp32")
    lines = []
    for name in DEVICES:
        target = find_device(name)
        if target.id == skip:
            continue
        found = predict(module, target, input_shape=(unet.CHANNELS, unet.HEIGHT, unet.WIDTH), batch=PREDICTED_BATCH)
        latency = found.latency_ms
        # Convolutions of fp32 models run in TF32 where there is any: cuDNN's default in PyTorch, and what is predicted.
        peak = target.peak("tf32" if "tf32" in target.peak_flops else "fp32")
        share = utilisation(flops, moved, latency.median, peak, target.memory_bandwidth_bytes_s)
        advice = advised(advise(share, found.peak_memory_bytes.high, target), target.name, notes.reasons)
        cost = "not known"
        try:
            row = money.price(target, table)
            usd: Any = money.per_million(latency, PREDICTED_BATCH, row)
            cost, notes.prices[target.name] = f"{usd.median:.3g} ({usd.low:.3g} to {usd.high:.3g})", str(row)
        except DeviceError:
            pass
        rate = found.throughput_per_s
        lines.append(
            f"| {target.name} | predicted, fp32 ({found.support.level}) | {PREDICTED_BATCH} "
            f"| {digits(rate.median)} ({digits(rate.low)} to {digits(rate.high)}) "
            f"| {cost} | {100 * share:.0f} % | {advice} |"
        )
    return lines


def predicted_training(table: Any, skip: str) -> list[str]:
    """A step and an epoch on the devices that are not here, with their intervals; empty without the compiled core."""
    try:
        from perfpass.predictors import predict
    except ImportError:
        return []
    module = unet.UNet(unet.NAMES[NAME])
    lines = ["", f"Training, predicted (fp32, SGD with momentum; an epoch is {SAMPLES:,} samples):", ""]
    lines += ["| device | batch | step ms | hours an epoch | USD an epoch | support |", "|---|---:|---:|---:|---:|---|"]
    for name in DEVICES:
        target = find_device(name)
        if target.id == skip:
            continue
        shape = (unet.CHANNELS, unet.HEIGHT, unet.WIDTH)
        found = predict(module, target, input_shape=shape, batch=PREDICTED_BATCH, mode="training")
        step, hours_per_ms = found.latency_ms, SAMPLES / PREDICTED_BATCH / 3.6e6
        cost = "not known"
        with contextlib.suppress(DeviceError):
            paid = money.price(target, table).usd_per_hour
            cost = " to ".join(f"{ms * hours_per_ms * paid:.3g}" for ms in (step.low, step.high))
        lines.append(
            f"| {target.name} | {PREDICTED_BATCH} | {digits(step.median)} ({digits(step.low)} to {digits(step.high)}) "
            f"| {digits(step.median * hours_per_ms)} | {cost} | {found.support.level} |"
        )
    return lines


def advised(hint: MigHint, name: str, reasons: dict[str, str]) -> str:
    """The profile for the table; its reason goes into ``reasons``."""
    reasons[name] = hint.reason
    return f"{hint.profile}, {hint.instances_per_gpu} to a GPU" if hint.profile else "none"


def report(folder: Path, prices: str | None) -> Path:
    """study.md and its figures, from what ``folder`` holds."""
    summary = roofline.summarise(folder)
    parameters = sum(p.numel() for p in unet.UNet(unet.NAMES[NAME]).parameters())
    flops, moved = work(1, "fp32")
    lines = [
        f"# Temperature downscaling on {summary['device']}",
        "",
        wrapped(
            f"A U-Net of {parameters / 1e6:.2f} million parameters: image [B, 3, {unet.HEIGHT}, {unet.WIDTH}] to two "
            f"fields [B, 1, {unet.HEIGHT}, {unet.WIDTH}]. One sample takes {count(flops)}FLOPs and moves at least "
            f"{size(moved)} in its convolutions. Measured {summary['measured_at'][:10]}, torch "
            f"{summary['facts']['software'].get('torch')}."
        ),
        "",
        wrapped(
            "Utilisation is the share of peak compute or of memory bandwidth (whichever is larger) that the "
            "convolutions' FLOPs and compulsory bytes come to, of the measured roofs for the device here and of the "
            "catalogue's figures for those predicted; above 100 % is cut. Bandwidth out of a cache can pass that of "
            "memory."
        ),
        "",
        "![roofline](roofline.svg)",
        "",
        "All points of the roofline: [roofline.md](roofline.md).",
        "",
        *operator_level(folder, summary),
        *run_level(folder, summary, "inference"),
        *run_level(folder, summary, "training"),
        *bill(folder, summary, prices),
    ]
    path = folder / "study.md"
    path.write_text("\n".join(lines))
    return path


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", metavar="D", help="cpu, cuda or cuda:N (default: cpu)")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="DIR", help="folder of records, figures and report"
    )
    parser.add_argument("--quick", action="store_true", help="fewer points, less care")
    parser.add_argument("--threads", type=int, metavar="N", help="threads on the CPU (default: all)")
    parser.add_argument("--only", choices=("measure", "report"), help="one half; the other may run on another machine")
    parser.add_argument("--prices", metavar="FILE", help="a price table of your own (as perfpass/deploy/prices.toml)")
    options = parser.parse_args()
    try:
        if options.only != "report":
            measure(options.device, options.output, options.quick, options.threads)
        if options.only != "measure":
            print(report(options.output, options.prices))
    except PerfPassError as error:
        print(f"downscaling_study: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
