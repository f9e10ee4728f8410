"""`perfpass roofline`: measures the points that are missing, then writes the summary, the figure and the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from perfpass.cli.options import new_command, whole
from perfpass.cli.session import Progress, need


def add(commands: Any) -> None:
    """The command's options."""
    command = new_command(
        commands,
        "roofline",
        run,
        "measure what this machine's device reaches on single operators, and draw its roofline",
        "Writes DIR/operators.jsonl (every point; what it already holds is not measured again), roofline.json,\n"
        "roofline.svg and roofline.md (docs/internals/roofline.md). Needs torch, psutil and matplotlib.\n\n"
        "examples:\n  perfpass roofline --quick\n  perfpass roofline --device cuda -o records/h100-roofline",
    )
    command.add_argument("--device", default="cpu", metavar="D", help="cpu, cuda or cuda:N (default: cpu)")
    command.add_argument("-o", "--output", metavar="DIR", help="folder to write to (default: records/roofline-DEVICE)")
    command.add_argument("--quick", action="store_true", help="fewer points, less care: under a minute")
    command.add_argument("--threads", type=whole, metavar="N", help="threads on the CPU (default: all)")


def run(options: Any) -> int:
    """Measures, writes, and prints the roofs. What did not run is in the table."""
    need("roofline", "torch", "psutil", "matplotlib")
    from perfpass.measure.roofline import measurement as roofline
    from perfpass.text import count, digits

    folder = Path(options.output or Path("records") / f"roofline-{options.device.replace(':', '')}")
    with Progress("operator") as progress:
        outcome = roofline.characterise(
            options.device, folder, quick=options.quick, threads=options.threads, progress=progress
        )
    summary = roofline.summarise(folder)
    paths = roofline.write(summary, folder)
    by_status = ", ".join(f"{number} {status}" for status, number in outcome.measured.items()) or "nothing new"
    print(f"{summary['device']}: {by_status}, {outcome.skipped} known, {outcome.elapsed_s:.0f} s")
    for precision, peak in summary["peak_flop_s"].items():
        ridge = summary["ridge_flop_per_byte"][precision]["memory"]
        print(f"  {precision:<5} {count(peak, 'FLOP/s')}, ridge at {digits(ridge)} FLOP per byte")
    print(f"  memory {count(summary['memory_bytes_s'], 'B/s')}, cache {count(summary['cache_bytes_s'], 'B/s')}")
    print("\n".join(f"  {path}" for path in paths))
    return 0
