"""`perfpass diff` as a person and as a pipeline use it: statuses, forms, commits, the action, the hook."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from perfpass import cli

onnx = pytest.importorskip("onnx")
ROOT = Path(__file__).resolve().parents[2]
PERSON = {f"GIT_{who}_{what}": "tests@example.invalid" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def model(path, width):
    """Two layers; ``width`` of the one between."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    weights = {"first": (64, width), "second": (width, 16)}
    nodes = [
        helper.make_node("MatMul", ["x", "first"], ["h"], name="up"),
        helper.make_node("Relu", ["h"], ["r"], name="act"),
        helper.make_node("MatMul", ["r", "second"], ["y"], name="down"),
    ]
    values = [numpy_helper.from_array(np.zeros(shape, np.float32), name) for name, shape in weights.items()]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [8, s]) for n, s in (("x", 64), ("y", 16))]
    made = helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:], values))
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(made, path)


def git(folder, *arguments):
    environment = {**os.environ, **PERSON, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    done = subprocess.run(["git", *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Two commits: the second makes one of two models twice as wide."""
    if shutil.which("git") is None:
        pytest.skip("needs git")
    folder = tmp_path / "repository"
    folder.mkdir()
    monkeypatch.chdir(folder)
    git(folder, "init", "-q", "-b", "main")
    model(folder / "models/a net.onnx", 512)
    model(folder / "models/other.onnx", 64)
    for message, width in (("first", 512), ("second", 1024)):
        model(folder / "models/a net.onnx", width)
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", message)
    return folder


def run(capsys, *arguments):
    code = cli.main(["diff", *map(str, arguments)])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_a_file_and_itself_at_another_commit(repository, capsys):
    pair = ("git:HEAD~1:models/a net.onnx", "models/a net.onnx")
    code, out, _ = run(capsys, *pair, "--device", "t4", "--fail", "parameters=50%")
    assert code == 1 and out.startswith("LIMIT BROKEN: parameters 2x") and "changed MatMul up" in out
    assert run(capsys, *pair, "--device", "t4", "--fail", "parameters=100%")[0] == 0
    assert run(capsys, pair[1], pair[1], "--fail", "parameters=0")[:2][0] == 0
    assert run(capsys, *pair[::-1], "--fail", "parameters=0")[0] == 0


def test_what_cannot_be_said_is_2(repository, capsys):
    pair = ("git:HEAD~1:models/a net.onnx", "models/a net.onnx")
    _, out, _ = run(capsys, *pair, "--device", "t4", "--json")
    rise = 100 * (json.loads(out)["devices"][0]["ratios"]["latency"]["ratio"] - 1)
    limit = ("--device", "t4", "--fail", f"latency={rise + 0.1:.3f}%")
    code, out, _ = run(capsys, *pair, *limit, "--confidence", "0.9")
    assert code == 2 and out.startswith("CANNOT SAY: latency on t4")
    assert run(capsys, *pair, *limit)[0] == 0


def test_files_against_a_commit_in_every_form(repository, capsys, tmp_path):
    forms = {form: tmp_path / f"out.{form}" for form in ("text", "json", "markdown", "junit", "sarif")}
    model(repository / "models/new.onnx", 8)
    writes = [word for form, path in forms.items() for word in ("--write", f"{form}={path}")]
    files = ("models/a net.onnx", "models/other.onnx", "models/new.onnx")
    code, out, err = run(capsys, "--base", "HEAD~1", *files, "--device", "t4", "--fail", "flops=0", *writes)
    assert code == 1 and out.count("no change") == 1 and "new, nothing to compare" in err
    assert out == forms["text"].read_text()
    told = json.loads(forms["json"].read_text())
    assert [one["same"] for one in told] == [False, True]
    assert len(json.loads(forms["sarif"].read_text())["runs"][0]["results"]) == 2
    assert forms["junit"].read_text().count("<testsuite ") == 2 and "**no change**" in forms["markdown"].read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["a.onnx"], 2, "two models, OLD and NEW, and got 1"),
        (["a.onnx", "b.onnx", "c.onnx"], 2, "and got 3"),
        (["a.onnx", "b.onnx"], 3, "no such file"),
        (["--base", "a:b", "a.onnx"], 2, "is not a commit"),
        (["--base", "HEAD~9", "models/other.onnx"], 3, "knows no commit"),
        (["a.onnx", "b.onnx", "--fail", "latency"], 2, "expected NAME=VALUE"),
        (
            ["a.onnx", "b.onnx", "--fail", "latency=5%", "--fail", "latency=6%"],
            2,
            "--fail gives 'latency' more than once",
        ),
        (["a.onnx", "b.onnx", "--write", "html=x"], 2, "unknown form of --write 'html'"),
        (["a.onnx", "b.onnx", "--json", "--markdown"], 2, "two forms of one output"),
        (["a.onnx", "b.onnx", "--predictor", "dippm"], 2, "leave out --predictor"),
        (["a.onnx", "b.onnx", "--device", "t4", "--change", "batch=many"], 2, "batch must be a whole number"),
        (["a.onnx", "b.onnx", "--confidence", "1"], 2, "confidence must be from 0.5"),
    ],
)
def test_an_error_has_its_own_status_and_one_line(repository, capsys, arguments, code, said):
    found, out, err = run(capsys, *arguments)
    assert found == code and out == "" and said in err and err.count("\n") == 1


@pytest.fixture
def action(repository, tmp_path):
    """Runs the step of action.yml as the runner does: its inputs by the names that action.yml gives them."""
    steps = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]
    step = next(s for s in steps if s.get("id") == "diff")

    def act(**inputs):
        names = {
            value.split(".")[1].split(" ")[0].removesuffix("}}").strip(): key for key, value in step["env"].items()
        }
        assert set(names) == set(yaml.safe_load((ROOT / "action.yml").read_text())["inputs"])
        runner = tmp_path / "runner"
        runner.mkdir(exist_ok=True)
        files = {name: runner / name for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        for file in files.values():
            file.write_text("")
        given = {names[name.replace("_", "-")]: value for name, value in {"python": sys.executable, **inputs}.items()}
        environment = {
            **os.environ, **given, **{k: str(v) for k, v in files.items()}, "RUNNER_TEMP": str(runner),
            "GITHUB_ACTION_PATH": str(ROOT),
        }  # fmt: skip
        done = subprocess.run(
            ["bash", "-c", step["run"]], env=environment, cwd=repository, capture_output=True, text=True, check=False
        )
        outputs = dict(line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text().splitlines())
        return done, outputs, files["GITHUB_STEP_SUMMARY"].read_text()

    return act


def test_the_action_fails_a_pull_request_over_its_limits(action, repository):
    base = git(repository, "rev-parse", "HEAD~1")
    done, outputs, summary = action(base=base, device="t4\n\na10\n", fail="parameters=10%\nlatency=500%\n")
    assert done.returncode == 1, done.stderr
    assert "::error::perfpass diff: a limit is broken" in done.stdout and outputs["status"] == "1"
    assert summary.startswith("**LIMIT BROKEN: parameters 2x") and "other.onnx" not in summary
    assert len(json.loads(Path(outputs["sarif"]).read_text())["runs"][0]["results"]) == 3
    done, outputs, _ = action(base=base, fail="parameters=100%", options="--batch=8")
    assert done.returncode == 0 and outputs["status"] == "0", done.stderr


def test_the_action_passes_where_no_model_changed_and_says_what_it_lacks(action, repository):
    done, outputs, summary = action(base=git(repository, "rev-parse", "HEAD~1"), models="*.json")
    assert done.returncode == 0 and outputs == {"status": "0"} and summary == "No model changed.\n"
    assert action(base="0" * 40)[0].returncode == 0
    done, *_ = action(base="f" * 40)
    assert done.returncode == 2 and "fetch-depth: 0" in done.stdout


def test_the_example_workflow_uses_what_the_action_has():
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    workflow = yaml.safe_load((ROOT / "examples" / "pull-request.yml").read_text())
    step = next(s for s in workflow["jobs"]["diff"]["steps"] if s.get("id") == "diff")
    assert set(step["with"]) <= set(action["inputs"])
    assert all(
        f"steps.diff.outputs.{name}" in str(action["outputs"]) for name in ("status", "sarif", "junit", "markdown")
    )


def test_the_hook_calls_the_command_as_it_is(repository, capsys):
    hook = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())[0]
    program, *words = [*hook["entry"].split(), *hook["args"]]
    assert program == "perfpass"
    model(repository / "models/other.onnx", 128)
    assert cli.main([*words, "models/other.onnx"]) == 1
    capsys.readouterr()
    git(repository, "checkout", "-q", "models/other.onnx")
    assert cli.main([*words, "models/other.onnx"]) == 0


def test_devices_stand_with_commas_as_everywhere(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    model(tmp_path / "old.onnx", 32)
    for named in (["--device", "t4,a10"], ["--device", "t4", "--device", "a10"]):
        assert cli.main(["diff", "old.onnx", "old.onnx", *named, "--json"]) == 0
        assert [one["device"] for one in json.loads(capsys.readouterr().out)["devices"]] == ["t4", "a10"]
