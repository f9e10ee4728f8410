"""Configurations, campaign files, their order, and the journal that keeps the records."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from killed_writers import killed_before_step
from perfpass.errors import ArgumentError, FileError, FormatError, LimitError
from perfpass.measure import order
from perfpass.measure.campaign import run
from perfpass.measure.campaign_file import campaign, read_campaign
from perfpass.measure.configuration import Configuration, Protocol
from perfpass.measure.journal import Journal, known, read
from perfpass.measure.pool import Measured

ROOT = Path(__file__).resolve().parents[2]


# Configurations and campaign files


def test_equal_configurations_have_equal_keys_and_every_field_counts():
    base = Configuration(model="timm:resnet18", batch=4)
    assert base.key == Configuration.from_dict(base.to_dict()).key
    changes = {"batch": 8, "mode": "training", "precision": "bf16", "layout": "nhwc", "runtime": "torch.compile"}
    changes |= {"image_size": 160, "threads": 1, "repeat": 1, "model": "timm:resnet34"}
    keys = {Configuration.from_dict(base.to_dict() | {name: value}).key for name, value in changes.items()}
    assert len(keys | {base.key}) == len(changes) + 1


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ({"model": "resnet18"}, "write SOURCE:NAME"),
        ({"model": "pickle:evil"}, "SOURCE one of"),
        ({"model": "timm:resnet18", "batch": 0}, "batch 0"),
        ({"model": "timm:resnet18", "batch": True}, "batch True"),
        ({"model": "timm:resnet18", "batch": "4"}, "batch '4'"),
        ({"model": "timm:resnet18", "precision": "fp4"}, "allowed are fp32"),
        ({"model": "timm:resnet18", "mode": "trainig"}, "did you mean training"),
        ({"model": "timm:resnet18", "device": "gpu"}, "allowed are cpu, cuda"),
        ({"model": "timm:resnet18", "mode": "decode"}, "needs a language model"),
        ({"model": "timm:resnet18", "mode": "training", "runtime": "onnxruntime"}, "no training step"),
        ({"model": "timm:resnet18", "optimizer": "sgd"}, "only training has one"),
        ({"model": "timm:resnet18", "threads": 2, "device": "cuda"}, "only the CPU has them"),
        ({"model": "onnx:a.onnx", "runtime": "tvm"}, "onnxruntime or openvino, not in tvm"),
        ({"model": "timm:resnet18", "colour": "red"}, "unknown field colour"),
        ({}, "needs a model"),
    ],
)
def test_an_impossible_configuration_is_refused_with_what_is_allowed(content, found):
    with pytest.raises(ArgumentError, match=found):
        Configuration.from_dict(content)


def test_a_sweep_is_every_combination_once():
    sweep = {"model": ["timm:a", "timm:b"], "batch": [1, 2], "mode": ["inference", "training"], "optimizer": ["sgd"]}
    found = campaign({"sweep": [sweep, sweep | {"repeats": 2}]})
    assert len(found.configurations) == len(set(found.configurations)) == 2 * 2 * 2 * 2
    assert {c.optimizer for c in found.configurations if c.mode == "inference"} == {None}
    fixed = campaign({"sweep": [sweep | {"device": "cuda"}]}, device="cpu")
    assert {c.device for c in fixed.configurations} == {"cpu"}


@pytest.mark.parametrize(
    ("text", "kind", "found"),
    [
        ("name = ", FormatError, "not a TOML file"),
        ("name = 'a'", ArgumentError, "nothing to measure"),
        ("sweep = 3", ArgumentError, "sweep 3; it is a list"),
        ("[[sweep]]\nbatch = [1]", ArgumentError, "sweep 1: lacks model"),
        ("[[sweep]]\nmodel = []", ArgumentError, "empty list"),
        ("[[sweep]]\nmodel = ['timm:a']\nspeed = 1", ArgumentError, "sweep 1: unknown 'speed'"),
        ("[[sweep]]\nmodel = ['timm:a']\nbatch = [0]", ArgumentError, "batch 0"),
        ("[protocol]\nwarmup = 1\n[[sweep]]\nmodel = ['timm:a']", ArgumentError, "protocol: unknown warmup"),
        ("[protocol]\ntimeout_s = -1\n[[sweep]]\nmodel = ['timm:a']", ArgumentError, "timeout_s -1"),
        ("[[sweep]]\nmodel = ['timm:a']\nrepeats = 0", ArgumentError, "repeats 0"),
        (
            f"[[sweep]]\nmodel = ['timm:a']\nbatch = {list(range(1, 200))}\nthreads = {list(range(1, 600))}",
            LimitError,
            "split",
        ),
    ],
)
def test_a_wrong_campaign_file_names_what_is_wrong(tmp_path, text, kind, found):
    path = tmp_path / "campaign.toml"
    path.write_text(text)
    with pytest.raises(kind, match=found):
        read_campaign(path)
    with pytest.raises(FileError):
        read_campaign(tmp_path / "absent.toml")


@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_the_shipped_campaigns_name_models_that_are_installed(name):
    from perfpass.importers import torchvision_schemas

    torchvision_schemas.define()
    import timm
    import torchvision

    from perfpass.importers.model_sources import CONFIGURATIONS

    found = read_campaign(ROOT / "data" / "campaigns" / f"{name}.toml")
    assert len(found.configurations) >= 300
    names = {
        source: {c.name for c in found.configurations if c.source == source} for source in ("timm", "torchvision", "hf")
    }
    assert names["timm"] <= set(timm.list_models())
    assert names["torchvision"] <= set(torchvision.models.list_models())
    assert names["hf"] <= {path.stem for path in CONFIGURATIONS.glob("*.json")}


# Order

configurations = st.lists(
    st.builds(
        Configuration,
        model=st.sampled_from(["timm:resnet18", "timm:resnet50", "timm:vit_tiny", "hf:bert-tiny"]),
        batch=st.sampled_from([1, 2, 8, 64]),
        precision=st.sampled_from(["fp32", "bf16"]),
        mode=st.sampled_from(["inference", "training"]),
    ),
    unique=True,
    max_size=30,
)


def greedy(wanted: list[Configuration]) -> list[Configuration]:
    """The plain twin of informative_order: every gain computed anew at every step."""
    seen: Counter = Counter()
    waiting: dict = {}
    for configuration in wanted:
        waiting.setdefault(order._build_key(configuration), []).append(configuration)
    found = []
    while waiting:
        key = max(waiting, key=lambda group: max(order._gain(c, seen) for c in waiting[group]))
        for _ in range(min(order.TOGETHER, len(waiting[key]))):
            chosen = max(waiting[key], key=lambda c: order._gain(c, seen))
            waiting[key].remove(chosen)
            found.append(chosen)
            seen.update(order._traits(chosen))
        if not waiting[key]:
            del waiting[key]
    return found


@settings(max_examples=60)
@given(configurations)
def test_the_order_takes_the_greatest_gain_each_time_and_loses_nothing(wanted):
    found = order.informative_order(wanted)
    assert sorted(c.key for c in found) == sorted(c.key for c in wanted)
    assert found == greedy(wanted)


def test_the_first_tenth_of_a_campaign_covers_every_mode_runtime_and_precision():
    wanted = read_campaign(ROOT / "data" / "campaigns" / "gpu.toml").configurations
    first = order.informative_order(wanted)[:750]
    for field in ("mode", "runtime", "precision", "batch", "source"):
        assert {getattr(c, field) for c in first} == {getattr(c, field) for c in wanted}, field
    assert len({c.model for c in first}) >= 150


# Journal


def record(number: int, status: str = "ok") -> dict:
    return {"key": f"key{number}", "environment": "e", "status": status, "configuration": {"model": "timm:a"}}


@settings(max_examples=40)
@given(st.integers(1, 6), st.data())
def test_a_journal_cut_at_any_byte_keeps_the_whole_records_and_goes_on(tmp_path_factory, count, data):
    path = tmp_path_factory.mktemp("journal") / "records.jsonl"
    with Journal(path) as journal:
        for number in range(count):
            journal.append("record", record(number))
    content = path.read_bytes()
    cut = data.draw(st.integers(0, len(content)))
    path.write_bytes(content[:cut])
    whole = content[:cut].count(b"\n")
    assert [r["key"] for r in read(path).records] == [f"key{n}" for n in range(whole)]
    with Journal(path) as journal:
        journal.append("record", record(99))
    assert [r["key"] for r in read(path).records] == [*(f"key{n}" for n in range(whole)), "key99"]
    assert read(path).torn_bytes == 0


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b"{not json}\n", "line 1 is not JSON"),
        (b"[" * 100_000 + b"\n", "line 1 is not JSON"),
        (b'{"kind":"record","schema":7}\n', "schema 7"),
        (b'{"kind":"poem","schema":1}\n', "no record of a campaign"),
        (b'{"kind":"record","schema":1,"key":"a"}\n', "lacks environment"),
        (b"3\n", "no record of a campaign"),
    ],
)
def test_a_file_that_is_no_journal_is_refused_and_left_as_it_is(tmp_path, line, found):
    path = tmp_path / "records.jsonl"
    path.write_bytes(line)
    with pytest.raises(FormatError, match=found):
        Journal(path)
    assert path.read_bytes() == line


def test_two_campaigns_cannot_write_into_one_journal(tmp_path):
    with Journal(tmp_path / "r.jsonl"), pytest.raises(FileError, match="another campaign"):
        Journal(tmp_path / "r.jsonl")
    Journal(tmp_path / "r.jsonl").close()


def test_a_full_disk_is_one_clear_error_and_loses_no_record(tmp_path):
    program = """
        import resource, signal, sys
        from perfpass.errors import FileError
        from perfpass.measure.journal import Journal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (400, 400))
        with Journal(sys.argv[1]) as journal:
            for number in range(20):
                try:
                    journal.append("record", {"key": str(number), "environment": "e", "status": "ok",
                                              "configuration": {}})
                except FileError as error:
                    print(number, error)
                    break
    """
    path = tmp_path / "r.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(path)], capture_output=True, text=True, check=True
    )
    written = int(done.stdout.split()[0])
    assert "are safe" in done.stdout
    assert [r["key"] for r in read(path).records] == [str(n) for n in range(written)]
    assert written > 1
    assert read(path).torn_bytes == 0


def test_what_failed_is_measured_again_only_when_asked(tmp_path):
    with Journal(tmp_path / "r.jsonl") as journal:
        for number, status in enumerate(("ok", "out_of_memory", "unsupported", "failed", "crashed")):
            journal.append("record", record(number, status))
    contents = read(tmp_path / "r.jsonl")
    assert len(known(contents)) == 5
    assert known(contents, retry_failed=True) == {("key0", "e"), ("key1", "e"), ("key2", "e")}


# The whole campaign, killed


def test_a_campaign_killed_before_any_of_its_steps_goes_on_and_ends_the_same(tmp_path):
    wanted = campaign({"sweep": [{"model": "timm:a", "batch": [1, 2, 3]}]})

    class Quick:
        def __init__(self):
            self.waiting = []

        def facts(self):
            return {"cpu": {"id": "here"}}

        def describe(self, name):
            return {"id": "here"}

        def submit(self, name, configuration, protocol):
            self.waiting.append((name, configuration))

        def collect(self):
            name, found = self.waiting.pop()
            about = {"key": found.key, "environment": "here", "status": "ok", "configuration": found.to_dict()}
            return [Measured(name, about)]

        def close(self):
            pass

    for number in range(1, 100):
        folder = tmp_path / str(number)
        killed = killed_before_step(lambda folder=folder: run(wanted, folder, lambda log: Quick()), number)
        before = (folder / "records.jsonl").read_bytes() if (folder / "records.jsonl").exists() else b""
        run(wanted, folder, lambda log: Quick())
        after = (folder / "records.jsonl").read_bytes()
        assert after.startswith(before[: before.rfind(b"\n") + 1]), "a record was lost"
        contents = read(folder / "records.jsonl")
        assert [r["configuration"]["batch"] for r in contents.records] == [1, 2, 3]
        assert after.count(b"\n") == 4 and list(contents.facts) == ["here"]
        if not killed:
            assert number > 8
            return
    pytest.fail("the campaign does not end")


CAMPAIGN_OF_NOTHING = """
    import sys, time
    from pathlib import Path
    from perfpass.measure.campaign import run
    from perfpass.measure.campaign_file import campaign
    from perfpass.measure.pool import Measured

    class Quick:
        def __init__(self): self.waiting = []
        def facts(self): return {"cpu": {"id": "here"}}
        def describe(self, name): return {"id": "here"}
        def submit(self, name, configuration, protocol): self.waiting.append((name, configuration))
        def collect(self):
            name, configuration = self.waiting.pop()
            time.sleep(0.002)
            return [Measured(name, {"key": configuration.key, "environment": "here", "status": "ok",
                                    "configuration": configuration.to_dict(), "message": "x" * 3000})]
        def close(self): pass

    wanted = campaign({"sweep": [{"model": "timm:a", "batch": list(range(1, 401))}]})
    print(run(wanted, sys.argv[1], lambda log: Quick()), flush=True)
"""


@pytest.mark.slow
def test_a_campaign_killed_at_random_moments_doubles_nothing_and_completes(tmp_path):
    command = [sys.executable, "-c", textwrap.dedent(CAMPAIGN_OF_NOTHING), str(tmp_path)]
    before = 0
    for moment in (0, 1, 2, 4, 8, 16, 32, 64):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=os.environ)
        # Wait until it writes, then a little longer each time: the kill falls into another place of its work.
        while process.poll() is None:
            if (tmp_path / "records.jsonl").exists() and (tmp_path / "records.jsonl").stat().st_size > before:
                break
            time.sleep(0.001)
        time.sleep(0.001 * moment)
        process.send_signal(signal.SIGKILL)
        process.wait()
        contents = read(tmp_path / "records.jsonl")
        keys = [r["key"] for r in contents.records]
        assert len(keys) == len(set(keys))
        assert len(contents.facts) == 1
        before = (tmp_path / "records.jsonl").stat().st_size
        if len(keys) == 400:
            break
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    keys = [json.loads(line).get("key") for line in (tmp_path / "records.jsonl").read_text().splitlines()]
    assert len([key for key in keys if key]) == len(set(keys) - {None}) == 400


def test_protocol_bounds_are_checked():
    with pytest.raises(ArgumentError, match="larger than its maximum"):
        Protocol(measure_min_s=9.0, measure_max_s=1.0)
