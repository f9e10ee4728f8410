"""The command line, as a process: tables, JSON, errors on one line, exit codes, quick start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from perfpass.cli import main

MINE = """
[[device]]
id = "my-gpu"
name = "My GPU 16GB"
peak_tflops = { fp32 = 10, fp16 = 20 }
memory_gib = 16
bandwidth_gb_s = 500
sm_count = 40
power_limit_w = 200
"""


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "XDG_CONFIG_HOME": "/nonexistent", **environment}
    return subprocess.run(
        [sys.executable, "-m", "perfpass", *map(str, arguments)], capture_output=True, text=True, env=env, timeout=1800
    )


def ok(*arguments: str, **environment: str) -> str:
    done = run(*arguments, **environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def refused(code: int, *arguments: str, **environment: str) -> str:
    """The one line on stderr of a command that fails with ``code``."""
    done = run(*arguments, **environment)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return one_line(done.stderr)


def refused_here(code: int, capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """As `refused`, in this process: for what is decided behind the start of one."""
    assert main([str(argument) for argument in arguments]) == code, capsys.readouterr()
    return one_line(capsys.readouterr().err)


def one_line(said: str) -> str:
    assert said.startswith("perfpass: error: ") and said.count("\n") == 1, said
    return said


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    """A folder with a fixed and a symbolic ONNX model, a damaged one, and one with escape codes in its names."""
    import onnx
    from onnx import TensorProto, helper

    folder = tmp_path_factory.mktemp("models")

    def save(name: str, shape: list, prefix: str = "") -> None:
        w = helper.make_tensor(f"{prefix}w", TensorProto.FLOAT, [8, 3, 3, 3], np.zeros(216, np.float32))
        nodes = [
            helper.make_node("Conv", ["x", f"{prefix}w"], [f"{prefix}y"], f"{prefix}conv", pads=[1, 1, 1, 1]),
            helper.make_node("Relu", [f"{prefix}y"], ["z"], f"{prefix}relu"),
        ]
        graph = helper.make_graph(
            nodes,
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info("z", TensorProto.FLOAT, [shape[0], 8, *shape[2:]])],
            [w],
        )
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), folder / name)

    save("fixed.onnx", [2, 3, 32, 32])
    save("symbolic.onnx", ["batch", 3, "side", 32])
    save("escape.onnx", [1, 3, 32, 32], prefix="\x1b[31mred\n")
    (folder / "broken.onnx").write_bytes(b"\xff" * 100)
    (folder / "empty.onnx").write_bytes(b"")
    return folder


def test_predict_prints_an_aligned_table(models):
    text = ok("predict", models / "fixed.onnx", "--device", "a100")
    assert text.startswith(
        "fixed.onnx on NVIDIA A100-SXM4-40GB (a100-sxm4-40gb)\nbatch 2, fp32, inference, torch, nchw\n"
    )
    for word in ("latency", "throughput", "memory in use", "energy", "power", "MIG profile", "support", "90% interval"):
        assert word in text
    assert max(map(len, text.splitlines())) <= 100


def test_predict_json_is_pure_strict_json(models):
    text = ok("predict", models / "fixed.onnx", "--device", "t4", "--json")
    found = json.loads(text, parse_constant=lambda c: pytest.fail(f"{c} is not JSON"))
    assert found["schema_version"] == 1 and found["workload"]["device"] == "t4"
    assert found["provenance"]["graph"]["macs"] == 2 * 8 * 3 * 9 * 32 * 32
    assert text.isascii()


def test_predict_takes_every_option(models, tmp_path):
    device_file = tmp_path / "mine.toml"
    device_file.write_text(MINE)
    options = ["--device", "my-gpu", "--device-file", device_file, "--dim", "batch=4", "--dim", "side=16"]
    options += ["--precision", "amp", "--layout", "nhwc", "--compiled", "--json"]
    found = json.loads(ok("predict", models / "symbolic.onnx", *options))
    assert found["workload"] == {
        "device": "my-gpu",
        "batch": 4,
        "precision": "amp",
        "mode": "inference",
        "runtime": "torch.compile",
        "layout": "nhwc",
        "inputs": [{"name": "x", "shape": [4, 3, 16, 32], "dtype": "float32"}],
        "assumed": [],
    }
    shaped = ["--input-shape", "x=4x3x16x32", "--device", "t4", "--json"]
    assert json.loads(ok("predict", models / "symbolic.onnx", *shaped))["workload"]["batch"] == 4


def test_explain_shows_what_time_and_memory_are_made_of(models):
    text = ok("predict", models / "fixed.onnx", "--device", "a100", "--explain")
    for word in (
        "Time by operator class",
        "convolution",
        "Memory at the peak",
        "weights",
        "Where the figures come from",
    ):
        assert word in text
    assert "conv " in text and max(map(len, text.splitlines())) <= 100


def test_control_characters_of_a_model_never_reach_the_terminal(models):
    explained = ok("predict", models / "escape.onnx", "--device", "a100", "--explain")
    assert "\\x1b[31mred" in explained
    assert "\x1b" not in explained + ok("inspect", models / "escape.onnx")


def test_inspect_shows_operators_totals_and_symbols(models):
    text = ok("inspect", models / "symbolic.onnx", "--batch", "2", "--dim", "side=32")
    assert "symbolic.onnx: 2 nodes" in text and "batchx3xsidex32" in text and "Conv" in text
    found = json.loads(ok("inspect", models / "fixed.onnx", "--json"))
    assert found["nodes"] == 2 and found["totals"]["parameters"] == 216
    assert found["inputs"] == [{"name": "x", "dtype": "float32", "shape": [2, 3, 32, 32], "declared": [2, 3, 32, 32]}]
    assert found["operators"][0]["operator"] == "conv" and found["operators"][0]["macs"] == found["totals"]["macs"]


def test_inspect_shows_what_to_set_when_a_dimension_is_missing(models):
    done = run("inspect", models / "symbolic.onnx")
    assert done.returncode == 7 and "--dim batch=N, --dim side=N" in done.stdout
    assert done.stderr.startswith("perfpass: error: ") and done.stderr.count("\n") == 1


def test_features_writes_a_file_that_numpy_reads(models, tmp_path):
    output = tmp_path / "model.npz"
    text = ok("features", models / "fixed.onnx", "--schema", "dippm", "-o", output)
    assert "2 nodes x 32 features" in text
    with np.load(output, allow_pickle=False) as arrays:
        assert arrays["nodes"].shape == (2, 32) and arrays["edge_index"].shape[0] == 2


def test_devices_lists_all_and_shows_one():
    text = ok("devices")
    assert "a100-sxm4-80gb" in text and "rtx-4090" in text and max(map(len, text.splitlines())) <= 100
    one = ok("devices", "h100")
    assert "1g.10gb" in one and "whitepaper" in one and max(map(len, one.splitlines())) <= 100
    assert {d["id"] for d in json.loads(ok("devices", "--json"))} >= {"t4", "h200-sxm-141gb"}
    assert json.loads(ok("devices", "a100:2g.10gb", "--json"))["mig_profile"] == "2g.10gb"


def test_device_files_come_by_option_and_by_environment(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(MINE)
    assert "My GPU 16GB" in ok("devices", "my-gpu", "--device-file", path)
    assert "my-gpu" in ok("devices", PERFPASS_DEVICES=str(path))


def test_help_explains_options_examples_and_exit_codes():
    text = ok("--help")
    assert "examples:" in text and "exit codes:" in text and "PERFPASS_DEBUG" in text
    for command in ("predict", "inspect", "features", "devices", "records", "train", "evaluate", "completion"):
        assert command in text
        assert "usage: perfpass " + command in ok(command, "--help")
    assert ok("--version").startswith("perfpass ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completion_scripts_know_commands_and_devices(shell):
    text = ok("completion", shell)
    assert "predict" in text and "a100-sxm4-80gb" in text
    assert ok("--print-completion", shell) == text


def test_the_bash_completion_script_is_valid_bash():
    script = ok("completion", "bash")
    assert subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True).returncode == 0


@pytest.mark.parametrize(
    ("code", "arguments", "message"),
    [
        (2, ["predict", "{}/fixed.onnx"], "--device"),
        (2, ["predict"], "MODEL"),
        (2, [], "COMMAND"),
        (2, ["forecast"], "forecast"),
        (2, ["predict", "{}/fixed.onnx", "--device", "a100", "--batch", "many"], "'many' is not a whole number"),
        (2, ["predict", "{}/fixed.onnx", "--device", "a100", "--batch", "0"], "batch must be 1 to"),
        (2, ["predict", "{}/fixed.onnx", "--device", "a100", "--dim", "batch"], "NAME=N"),
        (2, ["predict", "{}/fixed.onnx", "--device", "a100", "--dim", "b=-1"], "NAME=N"),
        (2, ["predict", "{}/symbolic.onnx", "--device", "a100", "--dim", "b=1", "--dim", "b=2"], "more than once"),
        (2, ["predict", "{}/fixed.onnx", "--device", "a100", "--input-shape", "x=1,3"], "NAME=SIZExSIZE"),
        (2, ["predict", "{}/fixed.onnx", "--device", "a100", "--precision", "fp42"], "unknown precision 'fp42'"),
        (2, ["predict", "{}/fixed.onnx", "--device", "a100", "--layout", "x"], "unknown layout"),
        (2, ["predict", "{}/fixed.onnx", "--device", "a100", "--runtime", "x"], "unknown runtime"),
        (2, ["predict", "{}/fixed.onnx", "--device", "a100", "--compiled", "--runtime", "tvm"], "--compiled"),
        (2, ["predict", "{}/fixed.onnx", "--device", "a100", "--dim", "sides=3"], "sides"),
        (2, ["features", "{}/fixed.onnx", "--schema", "x", "-o", "x.npz"], "schema"),
        (2, ["features", "{}/fixed.onnx", "--schema", "dippm", "-o", "x.txt"], "x.txt"),
        (2, ["completion", "fish"], "fish"),
        (2, ["evaluate", "--area", "kind"], "unknown area 'kind'"),
        (3, ["predict", "{}/none.onnx", "--device", "a100"], "none.onnx"),
        (3, ["inspect", "{}/none.onnx"], "none.onnx"),
        (3, ["features", "{}/fixed.onnx", "--schema", "dippm", "-o", "/nonexistent/x.npz"], "/nonexistent"),
        (3, ["devices", "--device-file", "{}/none.toml"], "none.toml"),
        (4, ["predict", "{}/broken.onnx", "--device", "a100"], "broken.onnx: "),
        (4, ["inspect", "{}/empty.onnx"], "empty.onnx"),
        (4, ["devices", "--device-file", "{}/fixed.onnx"], "fixed.onnx"),
        (7, ["predict", "{}/symbolic.onnx", "--device", "a100", "--batch", "1"], "side"),
        (8, ["predict", "{}/fixed.onnx", "--device", "h100", "--mode", "training", "--precision", "fp8"], "training"),
        (8, ["predict", "{}/model.pt", "--device", "a100"], "never unpickled"),
        (9, ["predict", "{}/fixed.onnx", "--device", "a1000"], "did you mean rtx-a1000 or"),
        (9, ["predict", "{}/fixed.onnx", "--device", "v100", "--precision", "bf16"], "no bf16"),
        (9, ["predict", "{}/fixed.onnx", "--device", "t4:1g.5gb"], "does not support MIG"),
        (9, ["devices", "nonsense-9000"], "nothing has a similar name"),
    ],
    ids=lambda value: " ".join(value).replace("{}/", "") if isinstance(value, list) else None,
)
def test_every_failure_is_one_line_and_its_exit_code(models, capsys, code, arguments, message):
    assert message in refused_here(code, capsys, *(a.format(models) for a in arguments))


def test_debug_shows_the_traceback(models):
    done = run("predict", models / "none.onnx", "--device", "a100", PERFPASS_DEBUG="1")
    assert done.returncode != 0 and "Traceback" in done.stderr and "FileError" in done.stderr


def test_an_internal_error_asks_to_be_reported_without_a_traceback(models):
    code = (
        "import sys, perfpass.predictors as p, perfpass.cli as c\n"
        "def broken(*a, **k): raise ZeroDivisionError('two\\nlines')\n"
        "p.predict = broken\n"
        f"sys.exit(c.main(['predict', {str(models / 'fixed.onnx')!r}, '--device', 'a100']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 70 and done.stderr.count("\n") == 1
    assert "ZeroDivisionError: two lines" in done.stderr and "PERFPASS_DEBUG=1" in done.stderr


@pytest.mark.parametrize("arguments", ["devices", "devices --json", "--help", "predict {}/fixed.onnx --device a100"])
@pytest.mark.parametrize(("place", "says"), [("> /dev/full", "No space left"), (">&-", "output is closed")])
def test_output_that_cannot_be_written_is_an_error_of_one_line(models, arguments, place, says):
    command = f"{sys.executable} -m perfpass {arguments.format(models)} {place}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.returncode == 74 and done.stderr.count("\n") == 1 and says in done.stderr, done.stderr


def test_an_error_stays_one_when_nobody_can_read_it(models):
    for place in ("2>&-", "2>/dev/full", ">/dev/full 2>&-"):
        command = f"{sys.executable} -m perfpass predict {models}/none.onnx --device a100 {place}"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (3, "", "")


def test_paths_that_the_system_refuses_are_errors_of_one_line(models, capsys):
    long = "x" * 5000
    for arguments in (
        ["predict", long, "--device", "a100"],
        ["predict", f"{long}.onnx", "--device", "a100"],
        ["inspect", f"{long}.onnx"],
        ["llm", long, "--device", "h100", *["--input-length", "8", "--output-length", "8", "--concurrency", "1"]],
        ["annotate", f"{long}.onnx", "--remove"],
        ["annotate", models / "fixed.onnx", "--device", "a100", "-o", f"{long}.onnx"],
        ["features", models / "fixed.onnx", "--schema", "dippm", "-o", f"{long}.npz"],
        ["devices", "--device-file", long],
        ["measure", "timm:resnet18", "-o", long],
        ["predict", models / "fixed.onnx", "--device", "a100", "--device-file", long],
    ):
        assert "name too long" in refused_here(3, capsys, *arguments).lower(), arguments


def test_an_error_is_headed_by_the_file_that_it_is_about(models, tmp_path):
    (tmp_path / "bad.toml").write_text("[[device]]\nid = 3\n")
    for path in (tmp_path / "bad.toml", tmp_path / "none.toml", "/dev/zero"):
        code = 4 if path == tmp_path / "bad.toml" else 3
        said = refused(code, "predict", models / "fixed.onnx", "--device", "a100", "--device-file", path)
        assert said.startswith(f"perfpass: error: {path}") and "fixed.onnx" not in said


def test_a_reader_that_leaves_is_no_error_message():
    command = f"{sys.executable} -m perfpass devices --json | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stderr == "" and done.stdout.splitlines()[0] == "["
    assert done.stdout.splitlines()[1] in ("0", "141")


def test_an_interrupt_exits_with_130_and_no_traceback():
    code = (
        "import signal, sys, time, perfpass.cli.devices as k, perfpass.cli as c\n"
        # A shell that starts a job in the background has it ignore interrupts, and its children inherit that.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def wait(options): print('ready', flush=True); time.sleep(3600)\n"
        "k.run = wait\n"
        "sys.exit(c.main(['devices']))"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=600) == 130
        assert process.stderr.read() == b"perfpass: interrupted\n"


def test_predict_starts_without_heavy_packages(models):
    """How long it takes is measured by benchmarks/cold_start.py."""
    heavy = ("torch", "onnx", "onnxruntime", "tvm", "pandas", "scipy", "xgboost", "networkx", "shtab", "pyarrow")
    code = (
        "import sys, perfpass.cli as c\n"
        f"code = c.main(['predict', {str(models / 'fixed.onnx')!r}, '--device', 'a100', '--json'])\n"
        f"print([m for m in {heavy!r} if m in sys.modules], file=sys.stderr)\n"
        "sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "[]\n"
