"""OpenVINO and LiteRT of a GPU are one clear refusal, by whatever door the question comes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

import perfpass
from perfpass.calibrate import plan
from perfpass.cli import main
from perfpass.errors import ArgumentError, UnsupportedError
from perfpass.importers import load
from perfpass.predictors import predict_graph
from perfpass.predictors.core_bundle import core_bundle
from perfpass.predictors.way import STANDING_IN
from perfpass.search import Scorer

ROOT = Path(__file__).resolve().parents[2]
MODEL = str(ROOT / "examples" / "resnet50.onnx")
GPU = "t4"


def said(runtime: str) -> str:
    return (
        f"{runtime} is predicted on CPUs in fp32 and int8, not on {perfpass.device(GPU).name} in fp32; ask for a CPU "
        "in one of these (a quantised file keeps its types), or for another runtime: torch, torch.compile, "
        "onnxruntime, tensorrt, tvm, relax"
    )


@pytest.mark.parametrize("runtime", STANDING_IN)
@pytest.mark.parametrize(
    "command",
    [
        "predict {model} --device t4 --runtime {runtime}",
        "predict {model} --device t4 --runtime {runtime} --explain",
        "predict {model} --device t4 --runtime {runtime} --mode training",
        "diff {model} {model} --device t4 --runtime {runtime}",
        "diff {model} {model} --device t4 --change runtime={runtime}",
        "advise {model} --device t4 --runtime {runtime}",
        "annotate {model} --device t4 --runtime {runtime} -o {folder}/out.onnx",
        "report {model} --device t4 --runtime {runtime} -o {folder}/out.html",
        "export-core --device t4 --runtime {runtime} -o {folder}/out.json",
    ],
)
def test_a_command_of_one_device_says_so_and_writes_nothing(command, runtime, tmp_path, capsys):
    assert main(command.format(model=MODEL, folder=tmp_path, runtime=runtime).split()) == UnsupportedError.exit_code
    told = capsys.readouterr()
    assert told.err == f"perfpass: error: {said(runtime)}\n" and told.out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("runtime", STANDING_IN)
@pytest.mark.parametrize("command", ["sweep", "choose", "evidence", "predict --dim batch=1,2"])
def test_a_command_of_many_points_gives_it_as_their_reason(command, runtime, capsys):
    main([*command.split(), MODEL, "--device", GPU, "--runtime", runtime])
    told = capsys.readouterr()
    assert " ".join(told.out.split()).count(said(runtime)) == 1 and told.err == ""


@pytest.mark.parametrize("runtime", STANDING_IN)
@pytest.mark.parametrize(
    "ask",
    [
        lambda runtime: perfpass.predict(MODEL, GPU, runtime=runtime),
        lambda runtime: perfpass.diff(MODEL, MODEL, GPU, runtime=runtime),
        lambda runtime: perfpass.advise(MODEL, GPU, runtime=runtime),
        lambda runtime: predict_graph(load(MODEL), GPU, runtime=runtime),
        lambda runtime: core_bundle(perfpass.device(GPU), runtime=runtime),
        lambda runtime: Scorer(GPU, runtime=runtime),
    ],
    ids=["predict", "difference", "advise", "predict_graph", "core_bundle", "Scorer"],
)
def test_a_function_raises_it(ask: Callable[[str], Any], runtime: str) -> None:
    with pytest.raises(UnsupportedError) as raised:
        ask(runtime)
    assert str(raised.value) == said(runtime)


@pytest.mark.parametrize("runtime", STANDING_IN)
def test_points_beside_it_have_their_figures(runtime: str) -> None:
    found = perfpass.sweep(MODEL, [GPU, "xeon-platinum-8380"], runtimes=[runtime, "onnxruntime"])
    problems = {(point["device"], point["runtime"]): point["problem"] for point in found.rows()}
    assert problems.pop((GPU, runtime)) == said(runtime)
    assert list(problems.values()) == ["", "", ""]


@pytest.mark.parametrize("runtime", STANDING_IN)
def test_no_plan_of_a_calibration_asks_for_what_cannot_be_measured(runtime: str) -> None:
    with pytest.raises(ArgumentError, match=runtime):
        plan(GPU, 2, runtime=runtime)


def test_a_server_and_the_page_answer_it() -> None:
    from starlette.testclient import TestClient

    from perfpass.serve.app import Application
    from perfpass.serve.settings import Settings
    from perfpass.ui.app import Pages

    settings = Settings(question_seconds=600)
    with TestClient(Application(settings)) as server, TestClient(Pages(settings)) as page:
        for runtime in STANDING_IN:
            fields = {"device": GPU, "runtime": runtime, "model": "mobilenet_v2"}
            for question in ("predict", "explain"):
                answer = server.post(f"/{question}", json=fields)
                assert answer.status_code == 422 and answer.json()["detail"] == said(runtime)
            form = {"question": urlencode({"device": GPU, "runtime": runtime})}
            answer = page.post("/ask/predict", data=form, files={"model": ("net.onnx", Path(MODEL).read_bytes())})
            assert json.loads(answer.text.splitlines()[-1])["problem"]["detail"] == said(runtime)
