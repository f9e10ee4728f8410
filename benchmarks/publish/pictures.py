"""Draws the pictures of docs/guides/looking.md: a vision, a language, a training and a served case, all kinds of each.

python benchmarks/publish/pictures.py
"""

from __future__ import annotations

from pathlib import Path

import perfpass
from perfpass.report import Picture

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "docs" / "pictures"
EXAMPLES = ROOT / "examples"
OF_RUN = ("roofline", "operators", "icicle", "flame", "memory", "mig", "intervals")
BOARD = "a100-sxm4-80gb"


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
    print(f"{OUT}: {sum(path.stat().st_size for path in OUT.glob('*.svg')) / 1e3:,.0f} kB")


def save(picture: Picture, case: str) -> None:
    """One file, by its case and kind."""
    picture.save(OUT / f"{case}-{picture.name}.svg")


if __name__ == "__main__":
    main()
