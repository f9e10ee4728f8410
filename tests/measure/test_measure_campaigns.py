"""Whole campaigns on this machine's CPU: runners, workers, budgets, and processes that die."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from perfpass.errors import FileError, UnsupportedError
from perfpass.measure import collector
from perfpass.measure.campaign import JOURNAL, run
from perfpass.measure.campaign_file import campaign
from perfpass.measure.collector import Collector
from perfpass.measure.configuration import Configuration, Protocol
from perfpass.measure.journal import read
from perfpass.measure.local import LocalPool
from perfpass.measure.pool import Measured

ROOT = Path(__file__).resolve().parents[2]
QUICK = {"warmup_max_s": 0.2, "measure_min_s": 0.02, "measure_max_s": 0.2}


class Undescribed:
    """A pool whose facts lack the measured capability: it takes ten seconds, and the fixture's campaign has it."""

    def describe(self, name):
        return self.facts()[name]


class Undelayed(Undescribed, LocalPool):
    """Workers on this machine that measure what they are asked and nothing beside."""


@pytest.fixture
def torch_alone(tmp_path, monkeypatch):
    """Workers find torch and nothing else to load beforehand: two thirds of their start, where starting is the test."""
    for name in ("timm", "transformers", "onnxruntime"):
        (tmp_path / "absent" / name).mkdir(parents=True)
        (tmp_path / "absent" / name / "__init__.py").write_text('raise ImportError("absent")')
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "absent"))


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


@pytest.mark.slow
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
    assert facts["capability"]["gemm_flop_s"]["fp32"] > 0
    assert facts["capability"]["copy_bytes_s"] > 0
    assert facts["software"]["torch"]


@pytest.mark.slow
def test_a_training_step_needs_more_memory_than_inference(measured):
    inference = by_model(measured, model="unet:temperature-downscaling", mode="inference")[0]
    steps = {
        r["configuration"]["optimizer"]: r
        for r in by_model(measured, model="unet:temperature-downscaling", mode="training")
    }
    assert set(steps) == {"sgd", "adamw"}
    assert all(s["memory"]["host_peak_rss_bytes"] > inference["memory"]["host_peak_rss_bytes"] for s in steps.values())
    assert inference["ran"]["parameters"] == pytest.approx(3.5e6, rel=0.02)


@pytest.mark.slow
def test_a_decoder_is_measured_reading_and_writing(measured):
    prefill, decode = (by_model(measured, mode=mode)[0] for mode in ("prefill", "decode"))
    assert prefill["ran"]["sequence_length"] == decode["ran"]["sequence_length"] == 16
    assert prefill["ran"]["parameters"] == decode["ran"]["parameters"]


@pytest.mark.slow
def test_memory_that_is_not_there_is_a_finding_with_its_size(measured):
    found = by_model(measured, status="out_of_memory")[0]
    assert found["requested_bytes"] >= 2_000_000 * 3 * 176 * 176 * 4
    assert "latency_ms" not in found


@pytest.mark.slow
def test_what_cannot_run_here_says_why(measured):
    messages = {r["configuration"]["precision"]: r["message"] for r in by_model(measured, status="unsupported")}
    assert "no_such_model" in messages["fp32"]
    assert "no TF32" in messages["tf32"]


@pytest.mark.slow
def test_a_campaign_that_is_complete_measures_nothing(measured):
    wanted, folder, _, contents = measured
    again = run(wanted, folder, lambda log: LocalPool(["cpu"], log))
    assert again.skipped == len(wanted.configurations)
    assert not again.measured
    assert read(folder / JOURNAL).records == contents.records


def test_a_budget_stops_in_time_and_the_rest_is_left(tmp_path, monkeypatch):
    """On a clock that a measurement moves by ten seconds: nothing starts that would end after the budget."""
    now, started = [0.0], []

    class TenSeconds:
        def facts(self):
            return {"cpu": {"id": "here"}}

        def describe(self, name):
            return {"id": "here"}

        def submit(self, name, configuration, protocol):
            started.append(now[0])
            now[0] += 10.0
            self.answer = Measured(
                name, {"key": configuration.key, "environment": "here", "status": "ok", "elapsed_s": 10.0}
            )

        def collect(self):
            return [self.answer]

        def close(self):
            pass

    wanted = campaign({"protocol": QUICK, "sweep": [{"model": "timm:a", "batch": [*range(1, 50)]}]})
    with monkeypatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: now[0])
        outcome = run(wanted, tmp_path, lambda log: TenSeconds(), budget_s=105.0)
    assert sum(outcome.measured.values()) + outcome.left == 49
    assert started == [10.0 * i for i in range(10)] and outcome.elapsed_s == 100.0


@pytest.mark.slow
def test_a_worker_killed_once_loses_nothing_and_killed_twice_is_a_finding(tmp_path, torch_alone):
    wanted = campaign(
        {"protocol": QUICK, "sweep": [{"threads": 1, "model": "unet:temperature-downscaling", "batch": [1, 2]}]}
    )

    class Killing(Undelayed):
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


@pytest.mark.slow
def test_a_measurement_that_hangs_is_ended(tmp_path, torch_alone):
    protocol = QUICK | {"timeout_s": 0.05}
    wanted = campaign({"protocol": protocol, "sweep": [{"threads": 1, "model": "unet:temperature-downscaling"}]})
    outcome = run(wanted, tmp_path, lambda log: Undelayed(["cpu"], log))
    assert outcome.measured == {"timed_out": 1}


@pytest.mark.slow
def test_no_process_outlives_a_killed_campaign(tmp_path, torch_alone):
    wanted = tmp_path / "wanted.toml"
    protocol = "\n".join(f"{name} = {value}" for name, value in QUICK.items())
    sweep = f'threads = 1\nmodel = "unet:temperature-downscaling"\nbatch = {list(range(1, 100))}'
    wanted.write_text(f"[protocol]\n{protocol}\n[[sweep]]\n{sweep}\n")
    command = [sys.executable, "-m", "perfpass", "measure", "--campaign", str(wanted), "-o", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and len(_records(tmp_path)) < 2:
        time.sleep(0.05)
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    assert children  # the worker, and its measuring child unless it is between two configurations
    _, alive = psutil.wait_procs(children, timeout=600)
    assert not alive
    records = _records(tmp_path)
    assert len({r["key"] for r in records}) == len(records) >= 1


def _records(folder: Path) -> list[dict]:
    return read(folder / JOURNAL).records if (folder / JOURNAL).exists() else []


@pytest.mark.slow
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
    with Collector("cpu") as one:
        record = one.measure(Configuration(model="unet:temperature-downscaling", device="cuda"), Protocol())
    assert record["status"] == "unsupported"
    assert "measures cpu" in record["message"]


def test_a_full_disk_is_no_finding_about_the_model_that_was_measured(monkeypatch):
    """Else "cannot be exported" would be recorded, and the question never asked again."""

    def full(configuration, device):
        try:
            raise OSError(errno.ENOSPC, "No space left on device", "/tmp/model.onnx")
        except OSError as error:
            raise UnsupportedError("cannot be exported to ONNX") from error

    monkeypatch.setattr(collector, "build", full)
    refused = pytest.raises(FileError, match="No space left on device while hf:bert-tiny was measured; make room")
    with Collector("cpu") as one, refused:
        one.measure(Configuration(model="hf:bert-tiny"), Protocol())


def test_a_collector_limits_the_memory_of_its_process_and_lifts_that_when_it_ends():
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with Collector("cpu"):
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        assert soft != resource.RLIM_INFINITY and hard == before[1]
        with Collector("cpu"):
            assert resource.getrlimit(resource.RLIMIT_DATA)[0] <= soft  # a lower limit that is set already stays
        assert resource.getrlimit(resource.RLIMIT_DATA) == (soft, hard)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


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
    with Collector("cpu") as one:
        with_weights, absent, without = (one.measure(c, Protocol(**QUICK)) for c in wanted)
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


@pytest.mark.slow
def test_a_cluster_loses_and_doubles_nothing_when_a_worker_is_killed(tmp_path):
    from perfpass.measure.cluster import RayPool

    wanted = campaign(
        {
            "protocol": QUICK,
            "sweep": [{"threads": 1, "model": "unet:temperature-downscaling", "batch": list(range(1, 9))}],
        }
    )
    killed = []

    class Killing(Undescribed, RayPool):
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
        (["measure", "resnet18x"], 3, "resnet18"),
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
    done = perfpass("measure", "timm:a", "gpt2", "--batch", "1,2", "--list", cwd=tmp_path)
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 4
    assert not list(tmp_path.iterdir())
