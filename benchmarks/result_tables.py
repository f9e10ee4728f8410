"""Tables of `benchmarks/results`, each from the JSON that its program wrote; a row has at most 140 columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from report import figure, table


def _median(timing: dict[str, float]) -> str:
    return figure(timing["median_ms"])


def _spread(timing: dict[str, float]) -> str:
    return f"{figure(timing['median_ms'])} ({figure(timing['low_ms'])} to {figure(timing['high_ms'])})"


def _setting(document: dict[str, Any]) -> str:
    machine = document["machine"]
    cores = f"{machine['cores']} core{'' if machine['cores'] == 1 else 's'}"
    return f"{machine['processor']}, {cores}, {machine['system']}, Python {machine['python']}; " + ", ".join(
        f"{name} {version}" for name, version in document["versions"].items()
    )


def _short(case: str) -> str:
    return case.replace("structure only", "no weights").replace("shapes present", "given").replace("shapes ", "")


def featurize(document: dict[str, Any]) -> str:
    """Model to features: ours and every peer, each with its ratio."""
    columns = {
        "Python, same": ("onnx.load + Python, same features",),
        "Python, fewer": ("onnx.load + Python", "post_order_visit + networkx"),
        "onnx-tool": ("onnx-tool",),
    }
    measured = {peer for row in document["rows"] for peer in row["peers"]}
    columns = {title: peers for title, peers in columns.items() if measured.intersection(peers)}
    rows = []
    for row in document["rows"]:
        cells = [_short(row["case"]), f"{row['nodes']:,}", _spread(row["perfpass"])]
        for peers in columns.values():
            name = next((peer for peer in peers if peer in row["peers"]), None)
            cells.append(f"{figure(row['peers'][name]['median_ms'])} ({row['ratios'][name]:,.0f}x)" if name else "")
        cells.append(_median(row["prediction"]))
        cells.append(f"{row['peak_resident_mb']:.0f}" if "peak_resident_mb" in row else "")
        rows.append(cells)
    header = [
        "model",
        "nodes",
        "perfpass ms",
        *columns,
        "all metrics",
        "peak MB",
    ]
    runs = document["rows"][0]["perfpass"]["runs"]
    return (
        f"{table(header, rows)}\n\nMilliseconds, medians of {runs} runs (10th to 90th percentile, or times ours). "
        "Python, same: onnx.load and plain Python to the very same features. Python, fewer: the customary way to fewer "
        "features, post_order_visit and networkx for Relay. Given, inferred: where the shapes come from. All metrics: "
        "from features to a prediction. Peak MB: resident memory of "
        f"a fresh process, {document['imports_resident_mb']:.0f} of it for the imports. {_setting(document)}."
    )


def cold_start(document: dict[str, Any]) -> str:
    """Wall time of whole processes."""
    rows = [[f"`{row['command']}`", _spread(row["wall"])] for row in document["rows"]]
    runs = document["rows"][0]["wall"]["runs"]
    note = f"Medians of {runs} processes (10th to 90th percentile). {_setting(document)}."
    return f"{table(['process', 'wall ms'], rows)}\n\n{note}"


def reader_table(rows: list[dict[str, Any]]) -> str:
    """Files of many operators read, beside each format's own library."""
    header = ["format", "operators", "MiB", "load ms", "to features ms", "of 10,000", "its own library", "ms"]
    header.append("ours over its")
    cells = [
        [
            *(row["format"], f"{row['operators']:,}", figure(row["mib"]), _median(row["load"]), _median(row["ours"])),
            figure(1e4 * row["ours"]["median_ms"] / row["operators"]),
            *(row["peer_name"], _median(row["peer"]), f"{row['ours']['median_ms'] / row['peer']['median_ms']:.2f}"),
        ]
        for row in rows
    ]
    return table(header, cells)


def format_readers(document: dict[str, Any]) -> str:
    """The same, with how it was measured."""
    runs = sorted({row["ours"]["runs"] for row in document["rows"]})
    counted = str(runs[0]) if len(runs) == 1 else f"{runs[0]} to {runs[-1]}"
    note = f"Milliseconds of processor, medians of {counted} readings in turns. {_setting(document)}."
    return f"{reader_table(document['rows'])}\n\n{note}"


def cpu_runtimes(document: dict[str, Any]) -> str:
    """Runtimes on a CPU, predicted beside measured, before and after ten networks calibrated each."""
    header = ["runtime", "calibrated by", "judged on", "MAPE", "median", "covered", "upper over lower"]
    header.append("predicted over measured")
    rows = []
    for runtime in ("onnxruntime", "openvino", "litert"):
        found = document[runtime]
        for which, by in (("before", "-"), ("after", f"{found['calibrating']} networks")):
            of = found[which]
            errors = [f"{of[name]:.0f}%" for name in ("mape_pct", "median_error_pct", "coverage_pct")]
            rows.append([runtime, by, str(found["networks"]), *errors, f"{of['width']:.1f}", f"{of['ratio']:.2f}"])
    return f"{table(header, rows)}\n\n{_setting(document)}."


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


def faults(document: dict[str, Any]) -> str:
    """A campaign that was killed, and one on a file system without room."""
    killed = document["killed"]
    ways = ", ".join(f"{way} {count}" for way, count in killed["by_way"].items())
    said = [row["said"].removeprefix("perfpass: error: DIR/records/records.jsonl: ") for row in document["full"]]
    rows = [[str(r["free_pages"]), str(r["records_then"]), s] for r, s in zip(document["full"], said, strict=True)]
    rows += [["read-only", "", row["said"].rpartition(": ")[2]] for row in document["read_only"]]
    return (
        f"{table(['free pages', 'records then', 'what is said, exit code 3'], rows)}\n\n{killed['kills']} kills of one "
        f"campaign after its first record ({ways}), {killed['torn_ends']} ends of the journal torn: of "
        f"{killed['records']} records {killed['lost']} lost, {killed['doubled']} doubled. With room again the same "
        f"command completes every campaign. {_setting(document)}."
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
    header = ["model", "nodes", "session ms", "creation ratio", "idle plug-in", "run ratio", "walk, ns a node"]
    return (
        f"{table(header, rows)}\n\nTimes with the observer over times without, of neighbours in "
        "alternating order, medians (10th to "
        "90th percentile), creation in processor time; outputs bit-identical. Idle plug-in: "
        "the same ratio for a plug-in that is there and does nothing, which is onnxruntime's own share. "
        f"{_setting(document)}."
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
    header = ["refused model", "nodes", "weights GB", "budget GB", "running process, ms", "new process, ms"]
    ways = ("native", "file", "target", "ignore")
    creations = [
        [
            row["model"],
            str(row["nodes"]),
            _spread(row["onnxruntime"]),
            *(_spread(row[way]) for way in ways[:-1]),
            _median(row["ignore"]),
        ]
        for row in document["creations"]
    ]
    titles = ["model", "nodes", "session", "both readers", "file reader", "target", "ignore"]
    return (
        f"{table(header, refusals)}\n\n{table(titles, creations)}\n\nSession: what creating "
        "onnxruntime's own takes, in ms. The last four columns are the milliseconds that creating ours takes more, in "
        f"processor time; target: with a latency target. {_setting(document)}."
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
    header = [
        "graph",
        "nodes",
        "layers",
        "classes",
        "PyG, whole graph, ms",
        "on classes, ms",
        "with reading, ms",
        "ratio",
    ]
    shipped = " and ".join(f"{figure(row['prediction']['median_ms'])} ms" for row in document["shipped"])
    threads = document["threads"]
    return (
        f"{table(header, rows)}\n\nGraphSAGE, {document['hidden']} wide, outputs equal to 1e-5; PyG is PyTorch "
        "Geometric. With reading: from the operator graph, features and classes included. The ratio is over finding "
        f"the classes and running on them. DIPPM as it ships answers in {shipped}. "
        f"{threads} thread{'' if threads == 1 else 's'}; {_setting(document)}."
    )


def packing(document: dict[str, Any]) -> str:
    """Fleets packed: small ones against trying every packing, large ones with their gap."""
    small = document["small"]
    rows = [
        [f"{r['models']:,}", f"{r['used']:,} of {r['gpus']:,}", f"{r['gap_pct']:.2f}", figure(r["seconds"])]
        for r in document["rows"]
    ]
    head = ["models", "GPUs used", "gap %", "seconds"]
    return (
        f"{table(head, rows)}\n\n{small['fleets']} fleets of up to three models: {small['proven']} proven optimal and "
        f"{small['unsatisfiable']} without a packing, {small['wrong']} other than trying every packing found. "
        f"{_setting(document)}."
    )


def serving_http(document: dict[str, Any]) -> str:
    """`perfpass serve` under load: each phase, what was asked, and how it went."""
    named = {
        ("cached", "cached"): "cached files, as fast as answered",
        ("new", "new"): "new files, as fast as answered",
        ("half", "cached"): "both at half of the aims: cached",
        ("half", "new"): "both at half of the aims: new",
    }
    rows = [
        [
            named[row["load"], row["kind"]],
            f"{row['questions']:,}",
            f"{row['errors']:,}",
            figure(row["per_s"]),
            figure(row["p50_ms"]),
            figure(row["p99_ms"]),
            f"{row['begin_mib']:.0f} to {row['end_mib']:.0f}",
        ]
        for row in document["rows"]
    ]
    stop, aims = document["stop"], document["aims"]
    head = ["load", "questions", "errors", "a second", "p50 ms", "p99 ms", "MiB"]
    return (
        f"{table(head, rows)}\n\n{document['seconds']:.0f} seconds on loopback, files of {document['operators']} "
        f"operators, {document['workers']} workers, locust on the same cores; aims: {aims['cached']:.0f} cached and "
        f"{aims['new']:.0f} new a second, p99 under 60 ms at half of both. MiB: resident, all workers, as the phase "
        f"begins and ends. Load average, other programs in it: {figure(document['load_average'])}. Told to stop "
        f"under load, the server answered {stop['answered']:,} questions, of which locust has {stop['received']:,}. "
        f"{_setting(document)}."
    )


def serving_processor(document: dict[str, Any]) -> str:
    """Processor time of a question to `perfpass serve`."""
    named = {"cached": "an answer that is kept", "new": f"a new file of {document['operators']} operators"}
    rows = [
        [
            named[kind],
            figure(ms[len(ms) // 2]),
            f"{figure(ms[0])} to {figure(ms[-1])}",
            f"{1e3 / ms[len(ms) // 2]:,.0f}",
        ]
        for kind, ms in document["processor_ms"].items()
    ]
    head = ["question", "processor ms", "rounds", "a second and core"]
    return f"{table(head, rows)}\n\nMedians of {document['rounds']} rounds, one worker. {_setting(document)}."


def advice_onnx(document: dict[str, Any]) -> str:
    """Changes that `perfpass advise` tries: the time predicted and measured, relative to what was."""
    none, found = document["none"], document["rows"]

    def sign(ratio: float) -> int:
        return 0 if abs(ratio - 1) <= none else 1 if ratio > 1 else -1

    kinds = {"tidy": "folded", "fp16": "16 bits", "int8": "products in 8 bits", "batch": f"batch {document['batch']}"}
    kinds["from torch"] = "from torch"
    cells = {}
    for row in found:
        cell = f"{row['predicted']:.2f}, {row['measured']:.2f}"
        cells[row["model"], row["change"]] = f"**{cell}**" if row["advised"] else cell
    models = list(dict.fromkeys(row["model"] for row in found))
    rows = [[model, *(cells.get((model, kind), "") for kind in kinds)] for model in models]
    summary = []
    parts = {
        "in ONNX Runtime": [row for row in found if row["change"] != "from torch"],
        f"of these, measured over {100 * none:g} %": [
            row for row in found if row["change"] != "from torch" and sign(row["measured"])
        ],
        "in ONNX Runtime, advised": [row for row in found if row["change"] != "from torch" and row["advised"]],
        "from torch, all advised": [row for row in found if row["change"] == "from torch"],
        "all": found,
        "all advised": [row for row in found if row["advised"]],
    }
    for words, part in parts.items():
        right = sum(sign(row["predicted"]) == sign(row["measured"]) for row in part)
        errors = sorted(100 * abs(row["predicted"] / row["measured"] - 1) for row in part)
        known = [row for row in part if row["high"] > row["low"] * 1.001]
        inside = sum(row["low"] <= row["measured"] <= row["high"] for row in known)
        middle = (errors[(len(errors) - 1) // 2] + errors[len(errors) // 2]) / 2
        summary.append([words, f"{len(part)}", f"{right}", figure(middle), f"{inside} of {len(known)}"])
    noise = max(abs(row["noise"]) for row in found)
    head = ["changes", "number", "sign right", "median error %", "inside the interval"]
    return (
        f"{table(['network', *kinds.values()], rows)}\n\n"
        "Time of a sample relative to what was: predicted, measured; bold: advised. Medians of "
        f"{document['opened']} times that all was opened anew, {document['seconds']:g} s each "
        f"in turn; the original beside itself differs by up to {100 * noise:.1f} %.\n\n{table(head, summary)}\n\n"
        f"Signs: faster, slower, or none within {100 * none:g} %. Intervals: of changes that have one. "
        f"{_setting(document)}."
    )


def training_advice(document: dict[str, Any]) -> str:
    """Changes to a training step: memory and time, measured and predicted, relative to the step as it is."""
    none, found = document["none"], document["rows"]
    models = list(dict.fromkeys(row["model"] for row in found))
    base = {row["model"]: row for row in found if row["change"] == "as it is"}
    changes = [c for c in dict.fromkeys(row["change"] for row in found) if c != "as it is"]

    def moved(row: dict[str, Any]) -> dict[str, tuple[float, float]]:
        first = base[row["model"]]
        memory = tuple(row[f"{how}_bytes"] / first[f"{how}_bytes"] - 1 for how in ("measured", "predicted"))
        return {"memory": memory, "time": (row["measured_time"] - 1, row["predicted_time"] - 1)}

    def sign(change: float) -> int:
        return 0 if abs(change) <= none else 1 if change > 0 else -1

    cells = {
        (row["change"], what, row["model"]): f"{100 * a:+.0f} / {100 * b:+.0f}"
        for row in found
        for what, (a, b) in moved(row).items()
    }
    rows = [
        [change if what == "memory" else "", what, *(cells.get((change, what, m), "") for m in models)]
        for change in changes
        for what in ("memory", "time")
    ]
    summary = []
    for what in ("memory", "time"):
        for words in ("advised, 32 bits", "advised, 16 bits", "beside"):
            part = [
                (row, *moved(row)[what])
                for row in found
                if row["change"] != "as it is"
                and words
                == ("beside" if not row["advised"] else f"advised, {16 if '16' in row['change'] else 32} bits")
            ]
            right = sum(sign(a) == sign(b) for _, a, b in part)
            told = [abs(b / a - 1) for _, a, b in part if sign(a)]
            left = max(abs((1 + b) / (1 + a) - 1) for _, a, b in part)
            near = sum(size <= 0.2 for size in told)
            inside = sum(row["low"] <= 1 + a <= row["high"] for row, a, _ in part) if what == "time" else 0
            spoken = f"{inside} of {len(part)}" if what == "time" and words != "beside" else ""
            summary.append(
                [what, words, f"{right} of {len(part)}", f"{near} of {len(told)}", f"{100 * left:.0f}", spoken]
            )
    head = ["", "changes", "sign right", "size within 20 %", "what is left, at most % off", "inside the interval"]
    return (
        f"{table(['change', '', *models], rows)}\n\n"
        f"In %, measured / predicted. Medians of {document['rounds']} rounds of processor time, steps in turn, batch "
        f"{document['batch']}, one thread; predicted for one core.\n\n{table(head, summary)}\n\n"
        f"Signs: more, less, or none within {100 * none:g} %; sizes: of changes measured beyond. {_setting(document)}."
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
    "format_readers": format_readers,
    "collector": collector,
    "cpu_runtimes": cpu_runtimes,
    "faults": faults,
    "own_device": own_device,
    "advice_onnx": advice_onnx,
    "training_advice": training_advice,
    "packing": packing,
    "serving_http": serving_http,
    "serving_processor": serving_processor,
}
# Tables made of another table's results.
SHARED = {"tuning_workloads": "tuning"}
