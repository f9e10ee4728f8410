"""Draws the pictures of docs/guides/looking.md: a vision, a language, a training and a served case, all kinds of each;
and that of the table of growth in docs/internals/cold-start.md.

python benchmarks/publish/pictures.py
"""

from __future__ import annotations

from pathlib import Path

import perfpass
from perfpass.report import Picture
from perfpass.report.chart import SHAPES, Chart, Dot, Dots, Line, around

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "docs" / "pictures"
EXAMPLES = ROOT / "examples"
OF_RUN = ("roofline", "operators", "icicle", "flame", "memory", "mig", "intervals")
BOARD = "a100-sxm4-80gb"
GROWTH = ROOT / "docs" / "internals" / "cold-start.md"


def main() -> None:
    """Writes docs/pictures/*.svg."""
    OUT.mkdir(exist_ok=True)
    limits = perfpass.Limits(latency_ms=10)
    cases = {
        "vision": perfpass.predict(EXAMPLES / "resnet50.onnx", BOARD, batch=8, precision="fp16", limits=limits),
        "language": perfpass.predict("bert-base-uncased", BOARD, batch=8, precision="amp", limits=limits),
        "training": perfpass.predict(EXAMPLES / "resnet50.onnx", BOARD, batch=64, precision="amp", mode="training"),
    }
    for name, prediction in cases.items():
        for kind in OF_RUN:
            if kind != "mig" or prediction.decision is not None:
                save(getattr(prediction.plot, kind)(), name)
    swept = {"vision": (EXAMPLES / "resnet50.onnx", "fp16"), "language": ("bert-base-uncased", "amp")}
    for name, (model, precision) in swept.items():
        sweep = perfpass.sweep(model, ["t4", "l4", BOARD], batches=[1, 2, 4, 8, 16, 32, 64], precisions=[precision])
        for picture in (sweep.plot.batch(), sweep.plot.pareto()):
            save(picture, name)
    served = perfpass.predict_llm("llama-3.1-8b", "h100-sxm", concurrency=16)
    for picture in (served.plot.intervals(), served.plot.memory()):
        save(picture, "llm")
    loads = [1, 2, 4, 8, 16, 32, 64]
    by_load = perfpass.sweep(
        "llama-3.1-8b", ["h100-sxm", BOARD], concurrencies=loads, tensor_parallel=[1], precisions=["bf16"]
    )
    for picture in (by_load.plot.load(), by_load.plot.pareto()):
        save(picture, "llm")
    save(perfpass.pack(EXAMPLES / "fleet.toml").plot.fleet(), "fleet")
    growth(GROWTH.read_text(encoding="utf-8")).save(OUT / "growth.svg")
    print(f"{OUT}: {sum(path.stat().st_size for path in OUT.glob('*.svg')) / 1e3:,.0f} kB")


def growth(page: str) -> Picture:
    """Processor time and memory over the number of nodes, as the page's table has them."""
    lines = page.partition("\n## Growth\n")[2].splitlines()
    head, _, *rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("|")]
    nodes = [float(row[0].replace(",", "")) for row in rows]
    stages = {name: [float(row[i].removesuffix(" ms")) for row in rows] for i, name in enumerate(head[2:-1], 2)}
    held = {"beyond a small question": [float(row[-1]) for row in rows]}
    machine = "a chain of Add and Relu; one process each"
    return Picture(
        "growth",
        (
            _over_nodes("Processor time of each step", f"{machine}, least of three", "ms", nodes, stages),
            _over_nodes("Memory at the peak", machine, "MiB", nodes, held),
        ),
    )


def _over_nodes(title: str, subtitle: str, unit: str, nodes: list[float], series: dict[str, list[float]]) -> Chart:
    marks: list[Line | Dots] = []
    for i, (name, ys) in enumerate(series.items()):
        known = [(x, y) for x, y in zip(nodes, ys, strict=True) if y > 0]
        dots = (Dot(x, y, 0.1, f"{name}: {y:g} {unit} at {x:,.0f} nodes") for x, y in known)
        marks += [Line(tuple(known), i), Dots(tuple(dots), i, SHAPES[i], name)]
    last = ", ".join(f"{name} {ys[-1]:g} {unit}" for name, ys in series.items())
    return Chart(
        title,
        subtitle,
        around("nodes", nodes, log=True, form="count"),
        around(unit, [y for ys in series.values() for y in ys if y > 0], log=True),
        tuple(marks),
        f"{title} by the number of nodes, both logarithmic. Of {nodes[-1]:,.0f} nodes: {last}.",
        ("nodes", *series),
        tuple((f"{x:,.0f}", *(f"{ys[i]:g} {unit}" for ys in series.values())) for i, x in enumerate(nodes)),
        height=240,
    )


def save(picture: Picture, case: str) -> None:
    """One file, by its case and kind."""
    picture.save(OUT / f"{case}-{picture.name}.svg")


if __name__ == "__main__":
    main()
