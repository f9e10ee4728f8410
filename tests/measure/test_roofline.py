"""The measured roofline: counts, resuming, roofs, and the picture."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import torch

from perfpass.errors import ArgumentError, FormatError
from perfpass.measure import journal
from perfpass.measure.bench import Bench
from perfpass.measure.operators import Convolution, Copy, Elementwise, Gemm, Triad, from_dict
from perfpass.measure.roofline import figure as roofline_figure
from perfpass.measure.roofline import measurement as roofline
from perfpass.measure.sweeps import sweep

BASE = {"batch": 2, "channels": 6, "height": 9, "width": 7, "filters": 4}
FEW = (Gemm(m=16, n=16, k=16), Gemm(m=1, n=16, k=16), Copy(elements=512), Triad(elements=512), Convolution(**BASE))


@pytest.mark.parametrize(
    ("operator", "flops", "moved"),
    [
        (Gemm(m=2, n=3, k=5), 60, 4 * (10 + 15 + 6)),
        (Gemm(m=2, n=3, k=5, precision="bf16"), 60, 2 * 31),
        (Copy(elements=10), 0, 80),
        (Triad(elements=10), 20, 120),
        (Elementwise(function="relu", elements=10), 10, 80),
        (Elementwise(function="add", elements=10, precision="fp16"), 10, 60),
        (Elementwise(function="multiply_add", elements=10), 20, 160),
        (Convolution(**BASE), 2 * 2 * 4 * 63 * 6 * 9, 4 * (2 * 6 * 63 + 4 * 6 * 9 + 2 * 4 * 63)),
        (Convolution(**BASE | {"stride": 2}), 2 * 2 * 4 * 20 * 6 * 9, 4 * (756 + 216 + 2 * 4 * 20)),
        (Convolution(**BASE | {"filters": 6, "groups": 6}), 2 * 2 * 6 * 63 * 9, 4 * (756 + 54 + 756)),
        (
            Convolution(**BASE | {"kernel": 2, "stride": 2, "transposed": True}),
            2 * 2 * 6 * 63 * 4 * 4,
            4 * (756 + 96 + 2 * 4 * 18 * 14),
        ),
    ],
    ids=str,
)
def test_flops_and_bytes_are_those_of_the_formulas(operator, flops, moved):
    assert (operator.flops, operator.bytes) == (flops, moved)
    assert from_dict(json.loads(json.dumps(operator.to_dict()))) == operator


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"stride": 2},
        {"stride": 3, "kernel": 5},
        {"kernel": 1},
        {"kernel": 2},
        {"filters": 12, "groups": 6},
        {"kernel": 2, "stride": 2, "transposed": True},
        {"kernel": 3, "stride": 2, "transposed": True},
        {"layout": "nhwc"},
    ],
    ids=str,
)
def test_a_convolution_runs_with_the_result_it_states(changes):
    convolution = Convolution(**BASE | changes)
    assert tuple(convolution.call("cpu")().shape) == convolution.result


@pytest.mark.parametrize("changes", [{}, {"stride": 2}, {"groups": 2}, {"kernel": 2, "stride": 2, "transposed": True}])
def test_counts_agree_with_those_of_the_graph(changes):
    from perfpass.graph import costs
    from perfpass.importers.torch import trace

    c = Convolution(**BASE | changes)
    kind = torch.nn.ConvTranspose2d if c.transposed else torch.nn.Conv2d
    padding = 0 if c.transposed else c.kernel // 2
    module = kind(c.channels, c.filters, c.kernel, c.stride, padding, groups=c.groups, bias=False)
    counted = costs.count(trace(module, (c.channels, c.height, c.width), batch=c.batch))
    assert counted.flops.sum() == c.flops
    assert counted.bytes_read.sum() + counted.bytes_written.sum() == c.bytes


@pytest.mark.parametrize("operator", [Gemm(m=3, n=4, k=5), Copy(elements=7), Triad(elements=7)], ids=str)
def test_operators_compute_what_they_are_named_for(operator):
    call = operator.call("cpu")
    operands = {
        name: cell.cell_contents for name, cell in zip(call.__code__.co_freevars, call.__closure__, strict=True)
    }
    call()
    expected = {
        "gemm": lambda o: (o["out"], o["a"] @ o["b"]),
        "copy": lambda o: (o["b"], o["a"]),
        "triad": lambda o: (o["a"], o["b"] + 0.5 * o["c"]),
    }[operator.name]
    torch.testing.assert_close(*expected(operands))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Gemm(m=0, n=1, k=1), "m 0"),
        (lambda: Gemm(m=1, n=1, k=1, precision="fp12"), "fp12"),
        (lambda: Convolution(**BASE | {"groups": 4}), "groups 4"),
        (lambda: Convolution(**BASE | {"layout": "chwn"}), "chwn"),
        (lambda: Elementwise(function="tan", elements=1), "tan"),
        (lambda: from_dict({"operator": "fft"}), "fft"),
        (lambda: from_dict({"operator": "gemm", "m": 1}), "missing"),
        (lambda: Bench("tpu"), "tpu"),
        (lambda: Bench("cpu", threads=0), "threads 0"),
    ],
)
def test_bad_input_is_one_clear_error(make, message):
    with pytest.raises(ArgumentError, match=message):
        make()


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_sweeps_vary_what_they_should_and_name_nothing_twice(kind):
    for quick in (True, False):
        operators = sweep(kind, quick)
        assert len(set(operators)) == len(operators)
        convolutions = [o for o in operators if isinstance(o, Convolution)]
        for axis in ("batch", "stride", "kernel", "filters"):
            assert len({getattr(c, axis) for c in convolutions}) >= 2
        assert any(c.group == "convolution, depthwise" for c in convolutions)
        footprints = [o.bytes for o in operators if isinstance(o, Copy)]
        assert max(footprints) >= 2**28 and max(footprints) >= 2**10 * min(footprints)
    full = {o.precision for o in sweep(kind, False) if isinstance(o, Gemm)}
    assert full == ({"fp32", "bf16"} if kind == "cpu" else {"fp32", "tf32", "fp16", "bf16"})


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("roofline")
    threads = torch.get_num_threads()
    outcome = roofline.characterise("cpu", folder, quick=True, threads=1, operators=FEW)
    torch.set_num_threads(threads)
    assert outcome.measured == {"ok": len(FEW)} and outcome.skipped == 0
    return folder


def test_a_record_says_what_ran_and_how_sure_it_is(measured):
    contents = journal.read(measured / roofline.JOURNAL)
    assert [from_dict(r["configuration"]) for r in contents.records] == list(FEW)
    for record, operator in zip(contents.records, FEW, strict=True):
        assert record["environment"] in contents.facts
        assert (record["flops"], record["bytes"]) == (operator.flops, operator.bytes)
        seconds = record["latency_ms"]["median"] / 1e3
        assert record["flop_s"] == pytest.approx(operator.flops / seconds, rel=1e-4)
        assert record["bytes_s"] == pytest.approx(operator.bytes / seconds, rel=1e-4)
        assert record["iterations"] >= 1 and "median_confidence_share" in record and isinstance(record["flags"], list)


def test_resuming_measures_only_what_is_missing(measured, tmp_path):
    path = tmp_path / roofline.JOURNAL
    lines = (measured / roofline.JOURNAL).read_bytes().splitlines(keepends=True)
    # As a kill leaves it: facts, two records whole and one torn.
    path.write_bytes(b"".join(lines[:3]) + lines[3][:40])
    outcome = roofline.characterise("cpu", tmp_path, quick=True, threads=1, operators=FEW)
    assert (outcome.measured, outcome.skipped) == ({"ok": 3}, 2)
    again = roofline.characterise("cpu", tmp_path, quick=True, threads=1, operators=FEW)
    assert (again.measured, again.skipped) == ({}, 5)
    contents = journal.read(path)
    assert len(contents.records) == 5 and len(contents.facts) == 1 and contents.torn_bytes == 0


def test_exhausted_memory_is_a_finding(monkeypatch, tmp_path):
    def exhausted(self, device):
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes.")

    monkeypatch.setattr(Copy, "call", exhausted)
    outcome = roofline.characterise("cpu", tmp_path, quick=True, threads=1, operators=FEW[:4])
    assert outcome.measured == {"ok": 3, "out_of_memory": 1}
    summary = roofline.summarise(tmp_path)
    assert [(entry["operator"], entry["status"]) for entry in summary["not_measured"]] == [("copy", "out_of_memory")]
    assert "out_of_memory" in roofline_figure.table(summary)


def written(path: Path, rows: list[tuple], cache: int = 1000, environment: str = "e") -> journal.Contents:
    """A journal of made-up times: (operator, seconds[, protocol])."""
    with journal.Journal(path) as file:
        device = {"name": "made up", "kind": "cpu"}
        file.append("facts", {"id": environment, "device": device, "last_level_cache_bytes": cache})
        for number, (operator, seconds, *protocol) in enumerate(rows):
            record = {
                "key": str(number),
                "environment": environment,
                "configuration": operator.to_dict() | {"protocol": (protocol or ["full"])[0]},
                "status": "ok",
                "measured_at": "2026-01-01T00:00:00+00:00",
                "latency_ms": {"median": seconds * 1e3},
                "median_confidence_share": 0.01,
                "flop_s": operator.flops / seconds,
                "bytes_s": operator.bytes / seconds,
                "flags": [],
            }
            file.append("record", record)
    return journal.read(path)


ROWS = [
    (Gemm(m=100, n=100, k=100), 1e-3),  # 2 GFLOP/s
    (Gemm(m=200, n=200, k=200), 4e-3),  # 4 GFLOP/s: the peak
    (Gemm(m=200, n=200, k=200, precision="bf16"), 2e-3),  # 8 GFLOP/s
    (Copy(elements=100), 1e-7),  # 800 B at 8 GB/s: in the cache
    (Copy(elements=1000), 1e-5),  # 8 kB at 0.8 GB/s: beyond four times the cache
    (Copy(elements=10_000), 1e-4),  # 0.8 GB/s
    (Triad(elements=10_000), 1.2e-4),  # 1 GB/s: the roof of memory
    (Convolution(**BASE), 1e-3),
]


def test_roofs_and_ridge_points_are_those_of_the_points(tmp_path):
    summary = roofline.summarise(written(tmp_path / "a.jsonl", ROWS))
    assert summary["peak_flop_s"] == pytest.approx({"fp32": 4e9, "bf16": 8e9})
    assert summary["memory_bytes_s"] == pytest.approx(1e9) and summary["cache_bytes_s"] == pytest.approx(8e9)
    assert summary["ridge_flop_per_byte"]["fp32"] == pytest.approx({"memory": 4, "cache": 0.5})
    assert summary["ridge_flop_per_byte"]["bf16"]["memory"] == pytest.approx(8)
    convolution = Convolution(**BASE)
    point = summary["points"][-1]
    intensity = convolution.flops / convolution.bytes
    assert intensity < 16 and point["flop_per_byte"] == pytest.approx(intensity, rel=1e-5)
    assert point["share_of_roof"] == pytest.approx(convolution.flops / 1e-3 / min(4e9, 1e9 * intensity), rel=1e-4)
    assert roofline.attainable(summary, convolution) == pytest.approx(min(4e9, 1e9 * intensity), rel=1e-4)
    with pytest.raises(ArgumentError, match="tf32"):
        roofline.attainable(summary, Gemm(m=1, n=1, k=1, precision="tf32"))


def test_a_full_record_replaces_a_quick_one_and_not_the_other_way(tmp_path):
    operator = Gemm(m=200, n=200, k=200)
    rows = [(operator, 4e-3, "full"), (operator, 1e-3, "quick"), (Copy(elements=1000), 1e-5)]
    assert roofline.summarise(written(tmp_path / "a.jsonl", rows))["peak_flop_s"]["fp32"] == pytest.approx(4e9)
    rows = [(operator, 1e-3, "quick"), (operator, 4e-3, "full"), (Copy(elements=1000), 1e-5)]
    assert roofline.summarise(written(tmp_path / "b.jsonl", rows))["peak_flop_s"]["fp32"] == pytest.approx(4e9)


def test_a_convolution_counted_exactly_can_be_the_peak_and_another_cannot(tmp_path):
    for exact in ({"kernel": 1}, {"stride": 2}):
        fast = Convolution(**BASE | exact)
        rows = [*ROWS, (fast, fast.flops / 6e9), (Convolution(**BASE | {"kernel": 7}), 1e-9)]
        (tmp_path / "a.jsonl").unlink(missing_ok=True)
        summary = roofline.summarise(written(tmp_path / "a.jsonl", rows))
        assert summary["peak_flop_s"]["fp32"] == pytest.approx(6e9)
    assert summary["gemm_flop_s"]["fp32"] == pytest.approx(4e9)


def test_environments_are_not_mixed(tmp_path):
    written(tmp_path / "a.jsonl", ROWS, environment="old")
    contents = written(
        tmp_path / "a.jsonl", [(Gemm(m=10, n=10, k=10), 1e-6), (Copy(elements=9), 1e-8)], environment="new"
    )
    assert roofline.summarise(contents)["peak_flop_s"] == pytest.approx({"fp32": 2e9})
    assert roofline.summarise(contents, "old")["peak_flop_s"]["fp32"] == pytest.approx(4e9)


def test_no_roof_without_points(tmp_path):
    with pytest.raises(ArgumentError, match="at least one product"):
        roofline.summarise(written(tmp_path / "a.jsonl", ROWS[:3]))
    (tmp_path / "b.jsonl").write_text("")
    with pytest.raises(ArgumentError, match="perfpass roofline"):
        roofline.summarise(tmp_path / "b.jsonl")
    (tmp_path / "c.jsonl").write_text("{}\n")
    with pytest.raises(FormatError, match="line 1"):
        roofline.summarise(tmp_path / "c.jsonl")


def test_the_picture_is_valid_svg_with_every_point_and_the_same_each_time(tmp_path):
    summary = roofline.summarise(written(tmp_path / "a.jsonl", ROWS))
    names = roofline.write(summary, tmp_path / "out")
    assert [path.name for path in names] == ["roofline.json", "roofline.svg", "roofline.md"]
    assert json.loads(names[0].read_text()) == summary
    root = ElementTree.parse(names[1]).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    marks = [e for e in root.iter("{http://www.w3.org/2000/svg}g") if e.get("id", "").startswith("PathCollection")]
    drawn = sum(len(list(e.iter("{http://www.w3.org/2000/svg}use"))) for e in marks)
    assert drawn == sum(p["flops"] > 0 for p in summary["points"])
    roofline_figure.save_figure(summary, tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_bytes() == names[1].read_bytes()
    text = names[2].read_text()
    assert (
        "| fp32 | 4 GFLOP/s | 4 GFLOP/s | 4 FLOP/B |" in text
        and "200 x 200 by 200 x 200" in text
        and "kernel 3" in text
    )


def test_peaks_that_lie_close_share_a_label(tmp_path):
    rows = [*ROWS[:2], (Gemm(m=200, n=200, k=200, precision="bf16"), 3.9e-3), *ROWS[3:]]
    summary = roofline.summarise(written(tmp_path / "a.jsonl", rows))
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    roofline_figure._draw_roofline(axes, summary, [p for p in summary["points"] if p["flops"]])
    assert "fp32 4 GFLOP/s, bf16 4.1 GFLOP/s" in [text.get_text() for text in axes.texts]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "perfpass", "roofline", *arguments], capture_output=True, text=True)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--device", "tpu"), 2, "device 'tpu'"),
        (("--threads", "0"), 2, "threads 0"),
        (("--threads", "many"), 2, "not a whole number"),
        (("-o", "/proc/none"), 3, "/proc/none"),
    ],
)
def test_the_command_fails_in_one_line(arguments, code, message, tmp_path):
    output = () if "-o" in arguments else ("-o", str(tmp_path))
    found = run("--quick", *arguments, *output)
    assert found.returncode == code and message in found.stderr and found.stderr.count("\n") == 1


def test_cuda_where_there_is_none_is_one_line(tmp_path):
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    found = run("--device", "cuda", "-o", str(tmp_path))
    assert found.returncode == 8 and "no CUDA device" in found.stderr and found.stderr.count("\n") == 1
    assert not (tmp_path / roofline.JOURNAL).exists()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_cuda_small_operators_are_replayed_from_a_graph(tmp_path):
    bench = Bench("cuda")
    try:
        small = bench.measure(Copy(elements=2**12), "quick")
        large = bench.measure(Gemm(m=8192, n=8192, k=8192, precision="bf16"), "quick")
        too_large = bench.measure(Copy(elements=2**39), "quick")
    finally:
        bench.close()
    assert (small["status"], small["launch"]) == ("ok", "graph")
    assert (large["status"], large["launch"]) == ("ok", "stream") and large["flop_s"] > 1e13
    assert too_large["status"] == "out_of_memory"


def test_the_study_counts_the_network_as_the_graph_does(monkeypatch):
    import importlib.util

    from perfpass.graph import costs
    from perfpass.importers.torch import trace
    from perfpass.measure import unet

    path = Path(__file__).resolve().parents[2] / "examples" / "downscaling_study.py"
    spec = importlib.util.spec_from_file_location("downscaling_study", path)
    study = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, study)  # where its dataclasses look their module up
    spec.loader.exec_module(study)
    network = unet.UNet(unet.NAMES[study.NAME])
    assert 3.3e6 < sum(p.numel() for p in network.parameters()) < 3.8e6
    counted = costs.count(trace(network, (unet.CHANNELS, unet.HEIGHT, unet.WIDTH), batch=2))
    flops, _ = study.work(2, "fp32")
    assert flops == 2 * counted.macs.sum()
    assert len(study.layers(2, "fp32")) == sum(
        isinstance(m, torch.nn.Conv2d | torch.nn.ConvTranspose2d) for m in network.modules()
    )
