"""Training is answered over HTTP as by the command: the same request, the same document."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from perfpass.cli import main
from perfpass.deploy.train_advice import train_advice
from perfpass.deploy.train_network_advice import train_network_advice
from perfpass.serve import results
from perfpass.serve.app import Application
from perfpass.serve.settings import Settings

NETWORK = {"model": "resnet18", "device": "a100", "gpus": 2, "micro_batch": 16, "precision": "amp"}
DECODER = {"model": "qwen2.5-0.5b", "device": "rtx-4090", "sequence": 1024}
SAME: list[dict[str, Any]] = [
    NETWORK | {"samples": 1281167, "epochs": 90, "layout": "nhwc", "region": "FR"},
    NETWORK | {"sharding": "zero3", "recompute": "full", "advise": True},
    NETWORK | {"gpus": 1, "micro_batch": 4096, "precision": "fp32"},  # does not fit: advice unasked
    NETWORK | {"dims": {"image_size": 96}, "micro_batch": 4},
    DECODER | {"samples": 1e5, "epochs": 3},
    DECODER | {"model": "qwen2.5-7b", "framework": "torch", "precision": "bf16_true", "micro_batch": 4},
    DECODER | {"lora_rank": 8, "lora_targets": ["query", "value"], "advise": True},
]
SEARCHED: list[dict[str, Any]] = [
    {name: NETWORK[name] for name in ("model", "device", "gpus", "precision")} | {"global_batch": 32, "search": True},
    DECODER | {"gpus": 4, "global_batch": 16, "recompute": "full", "search": True},
    DECODER | {"model": "llama-3.1-70b", "global_batch": 1, "search": True},  # none fits
]
WRONG: list[tuple[dict[str, Any], str]] = [
    (NETWORK | {"tensor": 2}, "tensor has no meaning"),
    (NETWORK | {"samples": 10.0, "tokens": 10.0}, "both say how long"),
    (NETWORK | {"epochs": 2.0}, "epochs are of samples"),
    (NETWORK | {"samples": 5.0, "epochs": 0.0}, "above 0"),
    (DECODER | {"layout": "nhwc"}, "layout has no meaning"),
    (DECODER | {"dims": {"batch": 4}}, "dims has no meaning"),
    (DECODER | {"search": True}, "give global_batch"),
    (NETWORK | {"search": True}, "give global_batch"),
    (NETWORK | {"search": True, "advise": True, "global_batch": 32}, "give one of them"),
    (SEARCHED[0] | {"gpus": 0}, "gpus 0; it is a whole number"),
    (SEARCHED[0] | {"micro_batch": 0}, "micro_batch 0; it is a whole number"),
    (SEARCHED[0] | {"sharding": ""}, "sharding ''; allowed are"),
    (SEARCHED[1] | {"gpus": 0}, "gpus 0; it is a whole number"),
    (SEARCHED[1] | {"tensor": 0}, "tensor 0; it is a whole number"),
    (SEARCHED[1] | {"context": 0}, "context 0; it is a whole number"),
    (SEARCHED[1] | {"pipeline": 3}, "what is given does not divide them"),
]


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(Application(Settings(question_seconds=600))) as found:
        yield found


def command(asked: dict[str, Any]) -> list[str]:
    """The same request, as typed."""
    typed = ["train-cost", asked["model"], "--json"]
    for name, given in asked.items():
        flag = f"--{name.replace('_', '-')}"
        if name == "dims":
            typed += [part for key, size in given.items() for part in ("--dim", f"{key}={size}")]
        elif given is True:
            typed.append(flag)
        elif name != "model":
            typed += [flag, ",".join(given) if isinstance(given, list) else f"{given}"]
    return typed


@pytest.mark.parametrize("asked", SAME)
def test_the_server_says_what_the_command_says(client, capsys, asked):
    answer = client.post("/train-cost", json=asked)
    status = main(command(asked))
    told = json.loads(capsys.readouterr().out)
    assert answer.status_code == 200, answer.text[:300]
    assert answer.json() == told
    assert status == (0 if told["fits_probability"] >= 0.9 else 1)
    assert ("advice" in told) == (status == 1 or asked.get("advise", False))
    assert "samples" not in asked or told["hours"]["median"] > 0


@pytest.mark.parametrize("asked", SEARCHED)
def test_layouts_are_searched_as_by_the_command(client, capsys, asked):
    answer = client.post("/train-cost", json=asked)
    status = main(command(asked))
    told = json.loads(capsys.readouterr().out)
    assert answer.status_code == 200, answer.text[:300]
    assert answer.json() == told and told["tried"] > 1
    assert status == (0 if told["fit"] else 1) and bool(told["best"]) == bool(told["fit"])


@pytest.mark.parametrize("more", [{}, {"advise": True}, {"search": True, "global_batch": 32}])
def test_an_uploaded_file_is_answered_as_by_its_path(client, capsys, examples, more):
    path = examples / "resnet50.onnx"
    asked: dict[str, Any] = {"device": "a100", "gpus": 2, "precision": "amp"} | (more or {"micro_batch": 8})
    form = {"files": {"model": ("a.onnx", path.read_bytes())}, "data": {"question": json.dumps(asked)}}
    answer = client.post("/train-cost", **form)
    main(command({"model": str(path)} | asked))
    told = capsys.readouterr().out.replace(json.dumps(str(path)), '"bytes"')
    assert answer.status_code == 200, answer.text[:300]
    assert answer.json() == json.loads(told)


@pytest.mark.parametrize(("asked", "said"), WRONG)
def test_what_has_no_meaning_is_refused_in_the_question_s_words(client, asked, said):
    answer = client.post("/train-cost", json=asked)
    assert answer.status_code == 422 and said in answer.json()["detail"]


@pytest.mark.parametrize("asked", [NETWORK, DECODER])
def test_advice_comes_back_as_it_was_found(client, asked):
    how = dict(asked)
    model, device = how.pop("model"), how.pop("device")
    found = results.train_advice(client.post("/train-cost", json=asked | {"advise": True}).json())
    expected = (train_advice if asked is DECODER else train_network_advice)(model, device, **how)
    assert found.changes and found.to_dict() == expected.to_dict() and str(found) == str(expected)
