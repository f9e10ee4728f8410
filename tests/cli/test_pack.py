"""`perfpass pack`: exit status, files, JSON that comes back as today's layout, and predictions that files carry."""

from __future__ import annotations

import json
import shutil

import pytest

from perfpass.cli import main
from perfpass.errors import ArgumentError, FormatError

FLEET = """
[[gpu]]
device = "a30"
count = 1
[[model]]
name = "vision"
model = "resnet50.onnx"
batch = 8
latency_ms = {target}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    shutil.copy("examples/resnet50.onnx", tmp_path / "resnet50.onnx")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fleet.toml").write_text(FLEET.format(target=900))
    (tmp_path / "tight.toml").write_text(FLEET.format(target=0.01))
    return tmp_path


def test_a_layout_is_printed_written_and_read_back_as_todays(folder, capsys):
    assert main(["pack", "fleet.toml", "--time-limit", "5", "--json", "--format", "mig-parted,k8s", "-o", "out"]) == 0
    printed = capsys.readouterr().out
    found = json.loads(printed)
    assert found["status"] == "optimal" and found["gpus"][0]["instances"][0]["model"] == "vision"
    assert sorted(found["files"])[0] == "out/k8s/vision.yaml" and (folder / "out/mig-parted/config.yaml").exists()
    (folder / "layout.json").write_text(printed)
    assert main(["pack", "fleet.toml", "--time-limit", "5", "--today", "layout.json"]) == 0
    assert "from today's layout" not in capsys.readouterr().out


def test_what_cannot_be_packed_exits_with_1_and_says_what_would_do(folder, capsys):
    assert main(["pack", "tight.toml", "--time-limit", "5"]) == 1
    printed = capsys.readouterr().out
    assert (
        printed.startswith("CANNOT BE PACKED: vision: meets latency_ms = 0.01 on no instance") and "would do" in printed
    )


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], ArgumentError.exit_code, "give FLEET.toml, or --from"),
        (["fleet.toml", "--from", "x"], ArgumentError.exit_code, "not both"),
        (["fleet.toml", "--format", "k8s"], ArgumentError.exit_code, "-o go together"),
        (["fleet.toml", "--format", "k9s", "-o", "x"], ArgumentError.exit_code, "did you mean k8s"),
        (["fleet.toml", "--objective", "joy"], ArgumentError.exit_code, "allowed are gpus, price"),
        (["--from", "resnet50.onnx"], FormatError.exit_code, "perfpass annotate"),
        (["--from", "empty.so"], FormatError.exit_code, "is empty"),
        (["--from", "other.so"], FormatError.exit_code, "tvm_perfpass.build"),
        (["--from", "broken.so"], FormatError.exit_code, "damaged"),
        (["--from", "partial.so"], FormatError.exit_code, "lacks"),
        (["fleet.toml", "--today", "bad.json"], FormatError.exit_code, "lacks gpus"),
    ],
)
def test_wrong_arguments_and_files_are_one_line(folder, capsys, arguments, code, message):
    (folder / "empty.so").write_bytes(b"")
    (folder / "other.so").write_bytes(b"\x7fELF nothing of ours")
    (folder / "broken.so").write_bytes(b'\x7fELF "perfpass.prediction": {"latency_ms": [')
    (folder / "partial.so").write_bytes(b'\x7fELF "perfpass.prediction": {"latency_ms": {}}')
    (folder / "bad.json").write_text("{}")
    assert main(["pack", *arguments]) == code
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_what_a_file_carries_becomes_a_pod(folder, capsys):
    assert main(["annotate", "resnet50.onnx", "--batch", "8", "--device", "a100-80gb"]) == 0
    import perfpass

    carried = perfpass.predict("resnet50.onnx", "a100-80gb", batch=8).to_dict()
    graph = json.dumps({"nodes": [], "metadata": {"perfpass.prediction": carried}})
    (folder / "lib.so").write_bytes(b"\x7fELF\0" + graph.encode() + b"\0rest")
    capsys.readouterr()
    assert main(["pack", "--from", "resnet50.onnx", "lib.so", "--copies", "2", "--format", "k8s", "-o", "out"]) == 0
    printed = capsys.readouterr().out
    assert "2 models on 1 GPU" in printed and "lib carries no figures of slices" in printed
    assert "no target was stated" in " ".join(printed.split())
    assert carried["mig"]["profile"] in (folder / "out/k8s/lib.yaml").read_text()


def test_a_file_that_states_a_target_is_placed_by_the_time_on_the_slice(folder, capsys):
    import perfpass

    stated = ["annotate", "resnet50.onnx", "--batch", "8", "--device", "a100-80gb", "--latency", "11"]
    assert main([*stated, "--json"]) == 0
    (carried,) = json.loads(capsys.readouterr().out)["predictions"].values()
    decision = perfpass.Decision.from_dict(carried["decision"])
    assert decision.smallest.profile == "3g.40gb" and carried["mig"]["profile"] == "1g.10gb"
    assert main(["inspect", "resnet50.onnx", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["decisions"] == {"a100-sxm4-80gb": carried["decision"]}
    assert main(["pack", "--from", "resnet50.onnx", "--json"]) == 0
    layout = json.loads(capsys.readouterr().out)
    assert [one["profile"] for one in layout["gpus"][0]["instances"]] == ["3g.40gb"]
    # A looser target at the time of packing takes the place of the file's, more confidence is beside it.
    assert main(["pack", "--from", "resnet50.onnx", "--latency", "47", "--confidence", "0.93", "--json"]) == 0
    layout = json.loads(capsys.readouterr().out)
    assert [one["profile"] for one in layout["gpus"][0]["instances"]] == ["1g.10gb"]
    assert main(["pack", "--from", "resnet50.onnx", "--latency", "1"]) == 1
    assert "meets" in capsys.readouterr().out


def test_a_damaged_decision_is_one_error(folder, capsys):
    import perfpass

    carried = perfpass.predict("resnet50.onnx", "a100-80gb", batch=8, limits=perfpass.Limits()).to_dict()
    carried["decision"]["slices"][0]["latency_ms"] = None
    graph = json.dumps({"nodes": [], "metadata": {"perfpass.prediction": carried}})
    (folder / "lib.so").write_bytes(b"\x7fELF\0" + graph.encode() + b"\0rest")
    assert main(["pack", "--from", "lib.so"]) == FormatError.exit_code
    error = capsys.readouterr().err
    assert "without times" in error and error.count("\n") == 1
