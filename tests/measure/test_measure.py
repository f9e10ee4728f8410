"""The collector: timing, probes, runners, workers, and whole campaigns on this machine's CPU."""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from perfpass.errors import DeviceError
from perfpass.measure import host, timing
from perfpass.measure.campaign import JOURNAL, run
from perfpass.measure.campaign_file import campaign
from perfpass.measure.collector import Collector, requested_bytes
from perfpass.measure.configuration import Configuration, Protocol
from perfpass.measure.journal import read
from perfpass.measure.local import LocalPool
from perfpass.measure.sampler import Ring, Sample, Sampler, conditions, mean_power, sample_into

ROOT = Path(__file__).resolve().parents[2]
FAKE_NVML = ROOT / "tests" / "fakes" / "nvml"
QUICK = {"warmup_max_s": 0.2, "measure_min_s": 0.02, "measure_max_s": 0.2}


# Timing


def replay(values):
    """A lap that takes no time and gives the values one after another, the last for ever."""
    waiting = iter(values)
    state = {"last": 1.0}

    def lap() -> float:
        state["last"] = next(waiting, state["last"])
        return state["last"]

    return lap


def test_the_confidence_interval_of_the_median_covers_it_in_95_of_100_cases():
    generator = np.random.default_rng(0)
    inside = 0
    for _ in range(1000):
        laps = generator.lognormal(0.0, 0.3, 41)
        ordered = np.sort(laps)
        reach = timing.median_confidence_share(laps) * np.median(laps) * 2
        # The share is half the width; the interval itself is between the same order statistics.
        low, high = ordered[math.floor(41 / 2 - 0.98 * 41**0.5)], ordered[math.ceil(41 / 2 + 0.98 * 41**0.5)]
        assert reach == pytest.approx(high - low)
        inside += low <= 1.0 <= high
    assert 930 <= inside <= 985


def test_fewer_than_six_iterations_promise_no_confidence():
    assert timing.median_confidence_share([1.0, 1.0, 1.0, 1.0, 1.0]) == math.inf
    assert timing.median_confidence_share([1.0] * 6) == 0.0


def test_warm_up_lasts_until_the_latency_stands_still():
    falling = [5.0 * 0.97**n for n in range(100)]
    result = timing.measure(replay([100.0, *falling, *[0.2] * 5000]), Protocol(warmup_max_s=5.0, measure_min_s=0.001))
    assert result.steady
    assert result.first_ms == 100.0
    assert result.warmup_iterations > 90
    assert np.median(result.laps_ms) == 0.2


def test_what_is_odd_is_flagged_and_kept():
    drifting = timing.Timing(np.linspace(1.0, 1.2, 90), 1.0, 5, True, 0, 10**9)
    assert "drift" in drifting.flags(Protocol())
    spiky = timing.Timing(np.array([1.0, 1.01] * 45 + [9.0] * 10), 1.0, 5, False, 0, 10**9)
    assert {"many_outliers", "not_steady"} <= set(spiky.flags(Protocol()))
    assert spiky.to_dict()["latency_ms"]["max"] == 9.0
    assert spiky.to_dict()["outliers"] == 10


def test_iterations_go_on_until_the_median_is_known_well_enough():
    generator = np.random.default_rng(1)
    noisy = [1.0, *generator.lognormal(0, 0.2, 20_000)]
    protocol = Protocol(warmup_max_s=0.001, measure_min_s=0.0001, measure_max_s=20.0)
    result = timing.measure(replay(noisy), protocol)
    assert timing.median_confidence_share(result.laps_ms) <= 0.01
    assert len(result.laps_ms) > 500
    assert len(timing.measure(replay([1.0]), protocol).laps_ms) < len(result.laps_ms)


# Probes


def test_peak_resident_memory_is_that_of_the_configuration():
    if not host.reset_peak_rss():
        pytest.skip("the kernel does not let a process reset its peak (/proc/self/clear_refs)")
    # In a process of its own: what other tests left may be freed at any moment.
    code = (
        "import numpy as np\nfrom perfpass.measure import host\n"
        "host.reset_peak_rss()\nbefore = host.peak_rss_bytes()\n"
        "block = np.ones(60_000_000, np.uint8)\nwith_block = host.peak_rss_bytes()\n"
        "del block\nhost.reset_peak_rss()\nprint(with_block - before, host.peak_rss_bytes() - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    rise, left = map(int, done.stdout.split())
    assert rise == pytest.approx(60_000_000, rel=0.1)
    assert left < 30_000_000


def zone(root: Path, name: str, label: str, energy: int, span: int = 2**32) -> Path:
    folder = root / name
    folder.mkdir()
    (folder / "name").write_text(label)
    (folder / "energy_uj").write_text(str(energy))
    (folder / "max_energy_range_uj").write_text(str(span))
    return folder


def test_rapl_adds_packages_and_memory_and_unwraps(tmp_path):
    package = zone(tmp_path, "intel-rapl:0", "package-0", 4_000_000_000)
    zone(tmp_path, "intel-rapl:0:0", "core", 10)
    memory = zone(tmp_path, "intel-rapl:0:1", "dram", 1_000_000)
    rapl = host.Rapl(tmp_path)
    before = rapl.read_uj()
    (package / "energy_uj").write_text(str(4_000_000_000 + 5_000_000 - 2**32))
    (memory / "energy_uj").write_text("3000000")
    assert rapl.joules_between(before, rapl.read_uj()) == pytest.approx(7.0)
    assert not host.Rapl(tmp_path / "absent").available


def test_work_of_others_is_flagged():
    probe = host.HostProbe()
    before = probe.state()
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        time.sleep(0.5)
    finally:
        other.kill()
        other.wait()
    between = probe.between(before, probe.state())
    assert between["cpu_share_of_others"] > 0.2 / (os.cpu_count() or 1)
    assert host.HostProbe.flags(between) == ["contended"]


@pytest.fixture
def fake_nvml(monkeypatch):
    monkeypatch.syspath_prepend(str(FAKE_NVML))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(FAKE_NVML), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    yield
    sys.modules.pop("pynvml", None)


def test_energy_comes_from_the_counter_between_its_steps(fake_nvml):
    sampler = Sampler("GPU-0")
    try:
        start = time.monotonic_ns()
        time.sleep(0.6)
        end = time.monotonic_ns()
        rows = sampler.ring.window(start, end)
    finally:
        sampler.close()
    power = mean_power(rows, start, end)
    assert power.method == "energy_counter"
    assert power.mean_w == pytest.approx(300.0, rel=0.05)
    seen = conditions(rows)
    assert seen["throttle_reasons"] == ["power_cap"]
    assert seen["sm_clock_hz"] == {"min": 1980e6, "median": 1980e6}
    assert seen["device_memory_peak_bytes"] == 3 * 2**30


def test_a_board_without_counter_is_integrated_from_power_and_a_slice_has_none(fake_nvml, tmp_path):
    from perfpass.measure.nvml import Gpu

    def sampled(uuid: str):
        ring = Ring(tmp_path / uuid, create=True)
        start = time.monotonic_ns()
        sample_into(ring, Gpu(uuid).sample, lambda: len(ring) < 20, period_s=0.002)
        end = time.monotonic_ns()
        return mean_power(ring.window(start, end), start, end)

    limited = sampled("GPU-limited")
    assert (limited.method, limited.mean_w) == ("power_samples", pytest.approx(300.0))
    assert sampled("MIG-1").method == "none"
    slice_ = Gpu("MIG-1")
    assert slice_.is_mig
    assert slice_.facts()["mig_name"].endswith("MIG 1g.10gb")
    assert slice_.facts()["power_limit_w"] == 700.0
    assert slice_.facts()["memory_bytes"] == 10 * 2**30
    assert Gpu("GPU-0").process_memory_bytes(1) == 2**30
    assert Gpu("GPU-limited").process_memory_bytes(1) is None


def test_an_absent_gpu_is_one_clear_error(fake_nvml):
    from perfpass.measure.nvml import Gpu

    with pytest.raises(DeviceError, match="GPU-absent"):
        Gpu("GPU-absent")
    with pytest.raises(DeviceError, match="GPU-absent"):
        Sampler("GPU-absent")


def test_the_ring_keeps_the_newest_samples(tmp_path, monkeypatch):
    monkeypatch.setattr("perfpass.measure.sampler.ROWS", 8)
    ring = Ring(tmp_path / "ring", create=True)
    for moment in range(20):
        ring.write(moment, Sample(moment, 1.0, 1.0, 1.0, 1.0, 0))
    assert ring.window(0, 100)[:, 0].tolist() == list(range(12, 20))
    assert ring.window(14, 16)[:, 0].tolist() == [14, 15, 16]


def test_the_size_in_an_allocators_message_is_read():
    assert requested_bytes("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has ...") == int(2.5 * 2**30)
    assert (
        requested_bytes("can't allocate memory: you tried to allocate 60211200000 bytes. Error code 12") == 60211200000
    )
    assert requested_bytes("out of memory") is None


# Collector and campaigns


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """One small campaign over every runtime and mode, run once, then resumed."""
    folder = tmp_path_factory.mktemp("campaign")
    unet, bert = "unet:temperature-downscaling", "hf:bert-tiny"
    wanted = campaign(
        {
            "name": "small",
            "protocol": QUICK,
            # One thread each: two that wait for one another crawl where tests run side by side.
            "sweep": [
                {"threads": 1, "model": unet, "mode": ["inference", "training"], "optimizer": ["sgd", "adamw"]},
                {"threads": 1, "model": ["timm:resnet10t", bert], "runtime": ["torch", "onnxruntime"], "batch": [1, 2]},
                {
                    "threads": 1,
                    "model": "timm:resnet10t",
                    "precision": ["bf16", "amp_bf16"],
                    "layout": "nhwc",
                    "image_size": 96,
                },
                {"threads": 1, "model": "hf:pythia-70m", "mode": ["prefill", "decode"], "sequence_length": 16},
                {"model": "timm:no_such_model"},
                {"model": "timm:resnet10t", "batch": 2_000_000},
                {"model": "timm:resnet10t", "precision": "tf32"},
            ],
        }
    )
    outcome = run(wanted, folder, lambda log: LocalPool(["cpu"], log))
    return wanted, folder, outcome, read(folder / JOURNAL)


def by_model(measured, status="ok", **fields):
    found = [r for r in measured[3].records if r["status"] == status]
    return [r for r in found if all(r["configuration"].get(name) == value for name, value in fields.items())]


def test_every_runtime_and_mode_gives_a_record(measured):
    wanted, _, outcome, contents = measured
    assert len(contents.records) == len(wanted.configurations)
    assert outcome.measured == {"ok": 15, "unsupported": 2, "out_of_memory": 1}
    for record in by_model(measured):
        latency = record["latency_ms"]
        assert 0 < latency["min"] <= latency["p10"] <= latency["median"] <= latency["p90"] <= latency["max"]
        assert record["throughput_per_s"] == pytest.approx(
            record["configuration"]["batch"] / latency["median"] * 1e3, rel=1e-4
        )
        assert record["memory"]["host_peak_rss_bytes"] > 0
        assert record["ran"]["parameters"] > 0
        assert 0 < record["host"]["cpu_share"] <= 1.05
        assert record["environment"] in contents.facts
    facts = next(iter(contents.facts.values()))
    assert facts["capability"]["gemm_flop_s"]["fp32"] > 1e9
    assert facts["capability"]["copy_bytes_s"] > 1e8
    assert facts["software"]["torch"]


def test_a_training_step_needs_more_memory_than_inference(measured):
    inference = by_model(measured, model="unet:temperature-downscaling", mode="inference")[0]
    steps = {
        r["configuration"]["optimizer"]: r
        for r in by_model(measured, model="unet:temperature-downscaling", mode="training")
    }
    assert set(steps) == {"sgd", "adamw"}
    assert all(s["memory"]["host_peak_rss_bytes"] > inference["memory"]["host_peak_rss_bytes"] for s in steps.values())
    assert inference["ran"]["parameters"] == pytest.approx(3.5e6, rel=0.02)


def test_a_decoder_is_measured_reading_and_writing(measured):
    prefill, decode = (by_model(measured, mode=mode)[0] for mode in ("prefill", "decode"))
    assert prefill["ran"]["sequence_length"] == decode["ran"]["sequence_length"] == 16
    assert prefill["ran"]["parameters"] == decode["ran"]["parameters"]


def test_memory_that_is_not_there_is_a_finding_with_its_size(measured):
    found = by_model(measured, status="out_of_memory")[0]
    assert found["requested_bytes"] >= 2_000_000 * 3 * 176 * 176 * 4
    assert "latency_ms" not in found


def test_what_cannot_run_here_says_why(measured):
    messages = {r["configuration"]["precision"]: r["message"] for r in by_model(measured, status="unsupported")}
    assert "no_such_model" in messages["fp32"]
    assert "no TF32" in messages["tf32"]


def test_a_campaign_that_is_complete_measures_nothing(measured):
    wanted, folder, _, contents = measured
    again = run(wanted, folder, lambda log: LocalPool(["cpu"], log))
    assert again.skipped == len(wanted.configurations)
    assert not again.measured
    assert read(folder / JOURNAL).records == contents.records


def test_a_budget_stops_in_time_and_the_rest_is_left(tmp_path):
    wanted = campaign(
        {
            "protocol": QUICK,
            "sweep": [{"threads": 1, "model": "unet:temperature-downscaling", "batch": list(range(1, 200))}],
        }
    )
    outcome = run(wanted, tmp_path, lambda log: LocalPool(["cpu"], log), budget_s=20.0)
    done = sum(outcome.measured.values())
    assert outcome.elapsed_s < 25.0
    assert done + outcome.left == 199
    assert outcome.left > 0


def test_a_worker_killed_once_loses_nothing_and_killed_twice_is_a_finding(tmp_path):
    wanted = campaign(
        {"protocol": QUICK, "sweep": [{"threads": 1, "model": "unet:temperature-downscaling", "batch": [1, 2]}]}
    )

    class Killing(LocalPool):
        kills = 3  # of the first configuration once, of the second twice

        def submit(self, name, configuration, protocol):
            super().submit(name, configuration, protocol)
            if self.kills:
                self.kills -= 1
                os.kill(self._workers[name].process.pid, signal.SIGKILL)

    outcome = run(wanted, tmp_path, lambda log: Killing(["cpu"], log))
    records = {r["configuration"]["batch"]: r["status"] for r in read(tmp_path / JOURNAL).records}
    assert sorted(records.values()) == ["crashed", "ok"]
    assert outcome.measured == {"ok": 1, "crashed": 1}
    assert "SIGKILL" in outcome.problems[0][2]


def test_a_measurement_that_hangs_is_ended(tmp_path):
    protocol = QUICK | {"timeout_s": 0.05}
    wanted = campaign({"protocol": protocol, "sweep": [{"threads": 1, "model": "unet:temperature-downscaling"}]})
    outcome = run(wanted, tmp_path, lambda log: LocalPool(["cpu"], log))
    assert outcome.measured == {"timed_out": 1}


def test_no_process_outlives_a_killed_campaign(tmp_path):
    command = [sys.executable, "-m", "perfpass", "measure", "unet:temperature-downscaling", "--batch"]
    command += [",".join(map(str, range(1, 100))), "-o", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and len(_records(tmp_path)) < 2:
        time.sleep(0.05)
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    assert children  # the worker, and its measuring child unless it is between two configurations
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive
    records = _records(tmp_path)
    assert len({r["key"] for r in records}) == len(records) >= 1


def _records(folder: Path) -> list[dict]:
    return read(folder / JOURNAL).records if (folder / JOURNAL).exists() else []


def test_measuring_needs_no_compiled_core(tmp_path):
    shutil.copytree(
        ROOT / "python" / "perfpass",
        tmp_path / "perfpass",
        ignore=shutil.ignore_patterns("*.so", "__pycache__", "artefacts"),
    )
    program = (
        "import sys; from perfpass.cli import main; code = main(sys.argv[1:]); "
        "assert 'perfpass._core' not in sys.modules; sys.exit(code)"
    )
    command = [sys.executable, "-c", program, "measure", "unet:temperature-downscaling", "-o", str(tmp_path / "out")]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "1 configurations" in done.stdout
    assert "(1 ok)" in done.stdout


def test_a_collector_measures_its_own_device_only():
    record = Collector("cpu").measure(Configuration(model="unet:temperature-downscaling", device="cuda"), Protocol())
    assert record["status"] == "unsupported"
    assert "measures cpu" in record["message"]


def test_an_onnx_file_is_measured_with_its_weights_and_refused_without(tmp_path):
    import onnx
    from onnx import TensorProto, helper

    weight = helper.make_tensor("w", TensorProto.FLOAT, [8, 4], np.ones(32, np.float32))
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "matmul.onnx"
    onnx.save(model, path)
    wanted = [
        Configuration(model=f"onnx:{path}", runtime="onnxruntime", batch=3),
        Configuration(model=f"onnx:{tmp_path / 'absent.onnx'}", runtime="onnxruntime"),
        Configuration(model=f"onnx:{_without_weights(model, tmp_path)}", runtime="onnxruntime"),
    ]
    with_weights, absent, without = (Collector("cpu").measure(c, Protocol(**QUICK)) for c in wanted)
    assert with_weights["status"] == "ok"
    assert (absent["status"], without["status"]) == ("unsupported", "unsupported")
    assert "no such file" in absent["message"]
    assert "cannot load it" in without["message"]


def _without_weights(model, folder: Path) -> Path:
    for tensor in model.graph.initializer:
        tensor.ClearField("float_data")
        tensor.ClearField("raw_data")
    path = folder / "structure.onnx"
    path.write_bytes(model.SerializeToString())
    return path


# The cluster


def test_a_cluster_loses_and_doubles_nothing_when_a_worker_is_killed(tmp_path):
    pytest.importorskip("ray", reason="Ray is not installed")
    from perfpass.measure.cluster import RayPool

    wanted = campaign(
        {
            "protocol": QUICK,
            "sweep": [{"threads": 1, "model": "unet:temperature-downscaling", "batch": list(range(1, 9))}],
        }
    )
    killed = []

    class Killing(RayPool):
        def collect(self):
            answers = super().collect()
            if not killed and self._running:
                # A worker in the middle of a measurement: the process that Ray started for it.
                name = next(iter(self._running.values()))
                process = self._ray.get(self._pids[name])
                os.kill(process, signal.SIGKILL)
                killed.append(process)
            return answers

        def _start(self, workers):
            actors = super()._start(workers)
            self._pids = {name: actor.pid.remote() for name, actor in actors.items()}
            return actors

    outcome = run(wanted, tmp_path, lambda log: Killing("local", ["cpu"], workers=2))
    records = read(tmp_path / JOURNAL).records
    assert killed
    assert sorted(r["configuration"]["batch"] for r in records if r["status"] == "ok") == list(range(1, 9))
    assert len(records) == 8
    assert outcome.left == 0


# The command line


def perfpass(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "perfpass", *arguments], capture_output=True, text=True, check=False, cwd=cwd
    )


@pytest.mark.parametrize(
    ("arguments", "code", "found"),
    [
        (["measure"], 2, "models to measure or --campaign"),
        (["measure", "timm:resnet18", "--campaign", "x.toml"], 2, "models to measure or --campaign"),
        (["measure", "--campaign", "absent.toml"], 3, "absent.toml"),
        (["measure", "--campaign", "absent.toml", "--batch", "2"], 2, "set in the campaign file"),
        (["measure", "resnet18"], 2, "SOURCE:NAME"),
        (["measure", "timm:resnet18", "--budget", "soon"], 2, "not a time"),
        (["measure", "timm:resnet18", "--device", "cuda"], 8, "no CUDA device"),
        (["measure", "timm:resnet18", "--device", "cuda:0", "--ray", "local"], 2, "Ray hands out the GPUs"),
    ],
)
def test_wrong_arguments_of_measure_are_one_line(tmp_path, arguments, code, found):
    import torch

    if "cuda" in arguments and torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    done = perfpass(*arguments, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert found in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_order_can_be_seen_before_measuring(tmp_path):
    done = perfpass("measure", "timm:a", "hf:b", "--batch", "1,2", "--list", cwd=tmp_path)
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 4
    assert not list(tmp_path.iterdir())


def test_a_child_maps_the_library_pages_of_its_parent_before_it_measures():
    pages = host.mapped_file_pages()
    if not pages:
        pytest.skip("this kernel does not tell which pages are mapped")
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        before = _file_pages()
        host.map_pages(pages)
        os.write(there, f"{before} {_file_pages()}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    before, after = map(int, os.read(here, 100).split())
    if after == before:
        pytest.skip("this kernel cannot map pages on request (MADV_POPULATE_READ, Linux 5.14)")
    assert after > sum(size for _, size in pages) / 1024 * 0.9
    assert after - before > 1000


def _file_pages() -> int:
    """Resident file pages of this process, KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("RssFile")).split()[1])
