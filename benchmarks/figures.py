"""Writes what README.md and docs/tuning.md quote between `<!-- table NAME -->` or `<!-- transcript -->` and
`<!-- end -->`.

Tables come from benchmarks/results/*.json and data/results/accuracy, the transcript from running the command.

    python benchmarks/figures.py [--check]

With --check nothing is written, and the exit code says whether they show the stored results.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from report import figure, table

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
TRANSCRIPT = ("perfpass", "predict", "examples/resnet50.onnx", "--device", "a100-80gb")
_BLOCK = re.compile(r"(<!-- (?:table )?(?P<name>\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def _spread(timing: dict[str, float]) -> str:
    return f"{figure(timing['median_ms'])} ({figure(timing['low_ms'])} to {figure(timing['high_ms'])})"


def _setting(document: dict[str, Any]) -> str:
    machine = document["machine"]
    cores = f"{machine['cores']} core{'' if machine['cores'] == 1 else 's'}"
    return f"{machine['processor']}, {cores}, {machine['system']}, Python {machine['python']}; " + ", ".join(
        f"{name} {version}" for name, version in document["versions"].items()
    )


def featurize(document: dict[str, Any]) -> str:
    """Model to features: ours and every peer, each with its ratio."""
    columns = {
        "onnx.load + Python, same features": ("onnx.load + Python, same features",),
        "onnx.load + Python, or post_order_visit + networkx": ("onnx.load + Python", "post_order_visit + networkx"),
        "onnx-tool": ("onnx-tool",),
    }
    measured = {peer for row in document["rows"] for peer in row["peers"]}
    columns = {title: peers for title, peers in columns.items() if measured.intersection(peers)}
    rows = []
    for row in document["rows"]:
        cells = [row["case"], f"{row['nodes']:,}", _spread(row["perfpass"])]
        for peers in columns.values():
            name = next((peer for peer in peers if peer in row["peers"]), None)
            cells.append(f"{figure(row['peers'][name]['median_ms'])} ({row['ratios'][name]:,.0f}x)" if name else "")
        cells.append(_spread(row["prediction"]))
        cells.append(f"{row['peak_resident_mb']:.0f}" if "peak_resident_mb" in row else "")
        rows.append(cells)
    header = [
        "model",
        "nodes",
        "perfpass ms",
        *(f"{title}, ms" for title in columns),
        "all metrics, ms",
        "peak MB",
    ]
    runs = document["rows"][0]["perfpass"]["runs"]
    return (
        f"{table(header, rows)}\n\nMedians of {runs} runs (10th to 90th percentile). Peak MB is the resident memory of "
        f"a fresh process, {document['imports_resident_mb']:.0f} of it for the imports. {_setting(document)}."
    )


def cold_start(document: dict[str, Any]) -> str:
    """Wall time of whole processes."""
    rows = [[f"`{row['command']}`", _spread(row["wall"])] for row in document["rows"]]
    runs = document["rows"][0]["wall"]["runs"]
    note = f"Medians of {runs} processes (10th to 90th percentile). {_setting(document)}."
    return f"{table(['process', 'wall ms'], rows)}\n\n{note}"


def collector(document: dict[str, Any]) -> str:
    """The collector beside other ways of measuring, and the campaigns killed."""
    header = ["model", "runtime", "perfpass measure, ms", "the other way, ms", "difference", "spread of the two"]
    rows = [
        [
            *(row["model"], row["runtime"], figure(row["collector_ms"]), figure(row["peer_ms"])),
            *(f"{row['difference']:+.1%}", f"{row['collector_spread']:.1%}, {row['peer_spread']:.1%}"),
        ]
        for row in document["latency"]
    ]
    kills = document["kills"]
    overhead = max(row["overhead_share"] for row in document["latency"])
    peaks = [row["collector_mb"] - row["gnu_time_mb"] for row in document["memory"]]
    return (
        f"{table(header, rows)}\n\nMedians of {document['blocks']} blocks of fifteen iterations; the other way is "
        "torch.utils.benchmark in turn with ours, or onnxruntime's own profile of the same runs; the spread is between "
        f"the slowest and the fastest block. Time between iterations at most {overhead:.2%}. Peak resident memory "
        f"over the imports' differs from GNU time's by {min(peaks):+.0f} to {max(peaks):+.0f} MB. "
        f"{kills['kills']} campaigns killed with SIGKILL: "
        f"{kills['lost']} records lost, {kills['doubled']} doubled, all {kills['records']} there after the last run. "
        f"{_setting(document)}."
    )


def own_device(document: dict[str, Any]) -> str:
    """Error on this machine before and after learning from its records."""
    rows = [
        [row["split"], row["learned_from"], *(f"{row[name]:.1%}" for name in ("mape", "median", "p90"))]
        for row in document["lines"]
    ]
    zero_shot = "; ".join(
        f"{row['split'].removeprefix('any, ')} {row['median_ratio']:.1f} times the measured time (median of "
        f"{row['rows']}), 90 % intervals hold for {row['covered']:.0%}"
        for row in document["lines"]
        if "covered" in row
    )
    return (
        f"{table(['split', 'learned from', 'MAPE', 'median', 'P90'], rows)}\n\n{document['rows']} records of "
        f"{document['models']} models on {document['machine']['processor']}, {document['machine']['cores']} cores. "
        f"Without a record: {zero_shot}. onnxruntime is predicted as a share of PyTorch's time, learned from these "
        "very records; architectures apart, its error is in the third line."
    )


def ort_session(document: dict[str, Any]) -> str:
    """What observing costs inside ONNX Runtime."""

    def ratio(found: dict[str, float]) -> str:
        return f"{found['median']:.3f} ({found['low']:.3f} to {found['high']:.3f})"

    rows = [
        [
            row["model"],
            str(row["nodes"]),
            figure(row["creation"]["without"]["median_ms"]),
            ratio(row["creation"]["processor_ratio"]),
            f"{row['creation']['idle_processor_ratio']['median']:.3f}",
            ratio(row["run"]["ratio"]),
            f"{row['walk_ns_per_node']['median']:.0f}",
        ]
        for row in document["models"]
    ]
    found = document["overall"]
    rows.append(
        [
            "median",
            *("", "", f"{found['creation_processor_ratio']:.3f}", f"{found['creation_idle_processor_ratio']:.3f}"),
            *(f"{found['run_ratio']:.3f}", f"{found['walk_ns_per_node']:.0f}"),
        ]
    )
    header = [
        "model",
        "nodes",
        "session ms",
        "creation, with / without",
        "of that onnxruntime's",
        "run, with / without",
    ]
    return (
        f"{table([*header, 'walk, ns a node'], rows)}\n\nRatios of neighbours in alternating order, medians (10th to "
        "90th percentile), creation in processor time; outputs bit-identical. Onnxruntime's own share is that of any "
        f"plug-in that is there and idle. {_setting(document)}."
    )


def ort_refusal(document: dict[str, Any]) -> str:
    """How soon a session that does not fit is refused, and what one that does takes longer."""
    refusals = [
        [
            row["model"],
            f"{row['nodes']:,}",
            f"{row['weights_gb']:.1f}",
            f"{row['budget_gb']:.1f}",
            _spread(row["warm"]),
            _spread(row["cold"]),
        ]
        for row in document["refusals"]
    ]
    header = ["refused model", "nodes", "weights GB", "budget GB", "in a running process, ms", "first in a process, ms"]
    ways = {
        "native": "both readers, ms",
        "file": "file reader, ms",
        "target": "with a latency target, ms",
        "ignore": '"ignore", ms',
    }
    creations = [
        [row["model"], str(row["nodes"]), _spread(row["onnxruntime"]), *(_spread(row[way]) for way in ways)]
        for row in document["creations"]
    ]
    titles = ["model", "nodes", "onnxruntime's session, ms", *ways.values()]
    return (
        f"{table(header, refusals)}\n\n{table(titles, creations)}\n\nThe last four columns are what a session of ours "
        f"takes more, in processor time. {_setting(document)}."
    )


def search(document: dict[str, Any]) -> str:
    """Models scored a second."""
    rows = [
        [
            row["what"],
            str(row["threads"]),
            row["cache"],
            f"{row['per_s']:,.0f}" + (f" ({row['low']:,.0f} to {row['high']:,.0f})" if "low" in row else ""),
        ]
        for row in document["rows_measured"]
    ]
    return (
        f"{table(['what', 'threads', 'page cache', 'a second'], rows)}\n\n{document['files']:,} distinct files of "
        f"{document['nodes']['median']:.0f} nodes (median), every score checked against `predict`. "
        f"{_setting(document)}."
    )


def relax_walk(document: dict[str, Any]) -> str:
    """A Relax module to features."""
    rows = [
        ["native walk and features", _spread(document["perfpass"]), ""],
        ["native walk alone", _spread(document["walk"]), ""],
        *([name, _spread(timing), f"{document['ratios'][name]:.0f}x"] for name, timing in document["peers"].items()),
    ]
    return (
        f"{table(['what', 'ms', 'slower'], rows)}\n\n{document['case']}, {document['bindings']:,} bindings. "
        f"{_setting(document)}."
    )


def tuning(document: dict[str, Any]) -> str:
    """The tuning study over all workloads."""
    import tuning_summary

    return f"{tuning_summary.overall(document)}\n\n{_setting(document)}."


def tuning_workloads(document: dict[str, Any]) -> str:
    """The tuning study by workload."""
    import tuning_summary

    return f"{tuning_summary.table(document)}\n\n{_setting(document)}."


def quotient(document: dict[str, Any]) -> str:
    """A graph network on classes of nodes, beside the whole graph."""
    rows = [
        [
            row["graph"],
            f"{row['nodes']:,}",
            str(row["layers"]),
            str(row["classes"]),
            *(_spread(row["times"][way]) for way in ("pyg_whole_graph", "network", "features_classes_and_network")),
            f"{row['ratio']:.0f}x",
        ]
        for row in document["rows"]
    ]
    header = ["graph", "nodes", "layers", "classes", "PyTorch Geometric, whole graph, ms", "on classes, ms"]
    shipped = " and ".join(f"{figure(row['prediction']['median_ms'])} ms" for row in document["shipped"])
    threads = document["threads"]
    return (
        f"{table([*header, 'from operator graph, ms', 'faster'], rows)}\n\nGraphSAGE, {document['hidden']} wide, "
        f"outputs equal to 1e-5; the ratio counts finding the classes. DIPPM as it ships answers in {shipped}. "
        f"{threads} thread{'' if threads == 1 else 's'}; {_setting(document)}."
    )


TABLES: dict[str, Callable[[dict[str, Any]], str]] = {
    "ort_session": ort_session,
    "ort_refusal": ort_refusal,
    "search": search,
    "quotient": quotient,
    "relax_walk": relax_walk,
    "tuning": tuning,
    "tuning_workloads": tuning_workloads,
    "featurize": featurize,
    "cold_start": cold_start,
    "collector": collector,
    "own_device": own_device,
}
# Tables made of another table's results.
_SHARED = {"tuning_workloads": "tuning"}
_PAGES = ("README.md", "docs/tuning.md")
# Written by `perfpass evaluate --output`: AREA.json.
ACCURACY = ROOT / "data" / "results" / "accuracy"


def accuracy() -> str:
    """The lines of our predictors that have an aim, of all areas; the full tables are beside their JSON."""
    from perfpass.training.areas import AREAS

    out = ["| metric | held out | judged on | rows | MAPE % | aim % | median % | P90 % | covered % |"]
    out.append("|---|---|---|---:|---:|---:|---:|---:|---:|")
    for area in (a for a in AREAS if (ACCURACY / f"{a}.json").is_file()):
        section = json.loads((ACCURACY / f"{area}.json").read_text())
        out.append(f"| **[{section['title']}](data/results/accuracy/{area}.md)** |||||||||")
        for x in section["lines"]:
            if not x["method"].startswith("perfpass") or x["aim_pct"] is None:
                continue
            held_out = x["split"] + x["method"].removeprefix("perfpass")
            covered = "" if x["coverage_pct"] is None else f"{x['coverage_pct']:.0f}"
            numbers = f"{x['mape_pct']:.1f} | {x['aim_pct']:.0f} | {x['median_ape_pct']:.1f} | {x['p90_ape_pct']:.0f}"
            out.append(f"| {x['metric']} | {held_out} | {x['judged_on']} | {x['rows']} | {numbers} | {covered} |")
    return "\n".join(out)


COMPARISON = ROOT / "data" / "results" / "comparison" / "table.json"
_COMPARED = (
    *(("latency", "random"), ("latency", "architecture"), ("latency", "family")),
    *(("training_step", "random"), ("training_step", "architecture"), ("training_step", "family")),
    *(("memory", "architecture"), ("energy", "random"), ("power", "random"), ("llm", "architecture")),
)


def predictors() -> str:
    """Mean errors of every predictor by task and what was held out; written by `perfpass evaluate --predictors all`."""
    document = json.loads(COMPARISON.read_text())
    found = {(c["predictor"], c["task"], c["split"]): c["mape_pct"] for c in document["cells"]}
    rows = [
        [name, *(f"{found[(name, *held)]:.1f}" if (name, *held) in found else "" for held in _COMPARED)]
        for name in document["predictors"]
    ]
    header = ["MAPE, %", *(f"{task.replace('_', ' ')}, {split}" for task, split in _COMPARED)]
    return table(header, [row for row in rows if any(row[1:])])


def filled(text: str) -> str:
    """A page with every marked table made from its results; a marker without results is an error."""

    def replace(match: re.Match[str]) -> str:
        name = match["name"]
        if name == "transcript":
            run = subprocess.run(
                [sys.executable, "-m", *TRANSCRIPT], cwd=ROOT, check=True, capture_output=True, text=True
            )
            return f"{match[1]}```\n$ {' '.join(TRANSCRIPT)}\n{run.stdout.strip()}\n```\n{match[3]}"
        if name == "accuracy":
            return f"{match[1]}{accuracy()}\n{match[3]}"
        if name == "predictors":
            return f"{match[1]}{predictors()}\n{match[3]}"
        if name not in TABLES:
            raise SystemExit(f"the table {name!r} is asked for; known are {', '.join(TABLES)}")
        document = json.loads((RESULTS / f"{_SHARED.get(name, name)}.json").read_text())
        return f"{match[1]}{TABLES[name](document)}\n{match[3]}"

    return _BLOCK.sub(replace, text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only compare")
    check = parser.parse_args().check
    for page in (ROOT / name for name in _PAGES):
        before = page.read_text()
        after = filled(before)
        if check and after != before:
            sys.exit(f"{page.name} does not show the stored results; run: bash bootstrap.sh figures")
        if not check:
            page.write_text(after)


if __name__ == "__main__":
    main()
