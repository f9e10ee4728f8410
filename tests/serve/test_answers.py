"""What `perfpass serve` answers is what the functions answer; what it does not answer is a problem with a reason."""

from __future__ import annotations

import inspect
import itertools
import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from starlette.testclient import TestClient

import perfpass
from hostile_files import FLOAT, field, node, value
from perfpass import errors
from perfpass.serve import questions
from perfpass.serve.app import Application
from perfpass.serve.kinds import KINDS
from perfpass.serve.problems import TYPES
from perfpass.serve.settings import Settings

FILE = {"content-type": "application/octet-stream"}


def network(seed: int = 0, nodes: int = 3) -> bytes:
    """A chain of Relus; ``seed`` makes it another file."""
    names = [f"t{i}" for i in range(nodes + 1)]
    chain = b"".join(field(1, node("Relu", [a], [b], f"n{seed}_{a}")) for a, b in itertools.pairwise(names))
    graph = (
        chain + field(2, "g") + field(11, value(names[0], [1, 64], FLOAT)) + field(12, value(names[-1], [1, 64], FLOAT))
    )
    return field(1, 8) + field(8, field(2, 17)) + field(7, graph)


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(Application(Settings(question_seconds=600, body_mib=1))) as found:
        yield found


def document(answer: Any, status: int = 200) -> Any:
    assert answer.status_code == status, answer.text[:500]
    assert answer.headers["content-type"] == ("application/json" if status == 200 else "application/problem+json")
    return answer.json()


def form(models: dict[str, bytes], question: Any) -> dict[str, Any]:
    files = {name: (f"../../../tmp/{name}", content) for name, content in models.items()}
    return {"files": files, "data": {"question": json.dumps(question)}}


def test_a_file_is_answered_as_by_the_function_however_it_comes(client, examples):
    content = (examples / "resnet50.onnx").read_bytes()
    expected = perfpass.predict(content, "t4", batch=8, precision="fp16").to_dict()
    asked = {"device": "t4", "batch": 8, "precision": "fp16"}
    raw = client.post("/predict?device=t4&batch=8&precision=fp16", content=content, headers=FILE)
    assert document(raw) == expected and raw.headers["x-cache"] == "miss"
    of_form = client.post("/predict", **form({"model": content}, asked))
    assert document(of_form) == expected and of_form.headers["x-cache"] == "hit"


@pytest.mark.parametrize("name", sorted(KINDS))
def test_every_example_of_the_description_is_answered(client, name):
    for example in KINDS[name].examples.values():
        found = document(client.post(f"/{name}", json=example))
        jsonschema.validate(found, KINDS[name].answer_schema)


@pytest.mark.parametrize("name", sorted(name for name, kind in KINDS.items() if kind.file is not None))
def test_every_question_about_files_is_answered(client, examples, name):
    kind = KINDS[name]
    models = {upload: network(number) for number, upload in enumerate(kind.asked.uploads)}
    if name == "train-cost":  # what is trained has parameters
        models["model"] = (examples / "resnet50.onnx").read_bytes()
    found = document(client.post(f"/{name}", **form(models, kind.file)))
    assert set(kind.required) <= set(found)


def test_a_configuration_is_answered_as_by_its_name(client):
    from perfpass.importers.model_sources import read_configuration

    asked = {"device": "h100", "concurrency": 4}
    named = document(client.post("/llm", json={"model": "llama-3.1-8b", **asked}))
    content = read_configuration("llama-3.1-8b")
    given = document(client.post("/llm", json={"model": content, **asked}))
    assert given["ttft_ms"] == named["ttft_ms"] and given["memory"] == named["memory"]


def test_a_model_that_one_gpu_does_not_hold_gets_the_fewest_that_do(client):
    found = document(client.post("/llm", json={"model": "llama-3.1-70b", "device": "h100"}))
    # Two hold the weights, 65.7 of 72 GiB, and what vLLM has beside them.
    assert found["assumed"]["tp"] == 2 and found["memory_verdict"]["fits"] == "yes"
    held = document(client.post("/llm", json={"model": "llama-3.1-70b", "device": "h100", "tp": 1}))
    assert "tp" not in held["assumed"] and held["memory_verdict"]["fits"] == "no"


def test_lists_and_tables_in_an_address_are_json(client):
    answer = client.post('/predict?device=t4&assume={}&limits={"latency_ms": 5}', content=network(), headers=FILE)
    assert document(answer)["decision"]["limits"]["latency_ms"] == 5


def test_devices_are_listed_and_found_by_any_name(client):
    every = document(client.get("/devices"))["devices"]
    one = document(client.get("/devices/A100 80GB"))["device"]
    assert one["id"] in {device["id"] for device in every} and one == perfpass.device("A100 80GB").to_dict()
    slice_ = document(client.get("/devices/a100-80gb:1g.10gb"))["device"]
    assert slice_["mig_profile"] == "1g.10gb"


def refused(client: TestClient, path: str, **how: Any) -> dict[str, Any]:
    answer = client.post(path, **how)
    found = document(answer, answer.status_code)
    assert found["status"] == answer.status_code and found["type"] == f"/problems/{found['type'].rpartition('/')[2]}"
    assert document(client.get(found["type"]))["title"] == found["title"]
    assert found["request_id"] == answer.headers["x-request-id"]
    return found


@pytest.mark.parametrize(
    ("question", "error"),
    [
        ({"model": "resnet50", "device": "no-such-device"}, "DeviceError"),
        ({"model": "resnet50", "device": "t4", "batch": 0}, "ArgumentError"),
        ({"model": "resnet50", "device": "t4", "batch": "8"}, "ArgumentError"),
        ({"model": "resnet50", "device": "t4", "precision": "fp17"}, "ArgumentError"),
        ({"model": "resnet50", "device": "t4", "colour": "red"}, "ArgumentError"),
        ({"model": "resnet50"}, "ArgumentError"),
        ({"device": "t4"}, "ArgumentError"),
        (["resnet50", "t4"], "ArgumentError"),
        ({"model": "no-such-network", "device": "t4"}, "FileError"),
        ({"model": {"model_type": "no-such-type"}, "device": "t4"}, "UnsupportedError"),
        ({"model": {"model_type": "bert", "auto_map": {"AutoModel": "a.B"}}, "device": "t4"}, "UnsupportedError"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_by_the_product_s_own_error(client, question, error):
    found = refused(client, "/predict", json=question)
    assert found["error"] == error and found["exit_code"] == getattr(errors, error).exit_code
    assert 400 <= found["status"] < 500 and found["detail"]


@pytest.mark.parametrize(
    "name",
    ["/etc/passwd", "../secret.onnx", "etc/passwd", "net.onnx", "config.json", ".", "", "a/../b", "git:HEAD:net.onnx",
     "file:///etc/passwd", "http://127.0.0.1/x", "onnx:/etc/passwd", "hf:/etc", "~/x", "a\x00b", "pyproject.toml",
     "docs"],
)  # fmt: skip
def test_no_name_reads_a_file_of_the_server(client, name, root, monkeypatch):
    monkeypatch.chdir(root)
    for path, question in (
        ("/predict", {"model": name, "device": "t4"}),
        ("/fit", {"model": name}),
        ("/llm", {"model": name, "device": "h100"}),
        ("/diff", {"old": name, "new": "resnet18"}),
    ):
        found = refused(client, path, json=question)
        assert found["error"] in ("FileError", "ArgumentError") and str(root) not in found["detail"], found


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", "ArgumentError"),
        (b"PK\x03\x04 zip", "FormatError"),
        (b"\x80\x05 pickle", "FormatError"),
        (network()[:-5], "FormatError"),
        (b"\x00" * 4096, "FormatError"),
    ],
)
def test_what_is_no_onnx_file_is_refused_by_the_hardened_reader(client, content, error):
    assert refused(client, "/predict?device=t4", content=content, headers=FILE)["error"] == error


def test_bodies_of_other_types_and_packed_ones_are_refused(client):
    assert refused(client, "/predict", content=b"{}", headers={"content-type": "text/plain"})["status"] == 415
    packed = {"content-type": "application/json", "content-encoding": "gzip"}
    assert refused(client, "/predict", content=b"\x1f\x8b" + bytes(100), headers=packed)["status"] == 415
    assert refused(client, "/llm", content=network(), headers=FILE)["status"] == 415
    assert refused(client, "/diff", content=network(), headers=FILE)["error"] == "ArgumentError"


@pytest.mark.parametrize(
    "content",
    [b"{", b'{"model": NaN}', b'{"a": 1, "a": 2}', b"\xff\xfe", b"[" * 100_000, b'{"model": {"a":' * 99, b"", b"null"],
)
def test_what_is_no_question_is_refused(client, content):
    found = refused(client, "/predict", content=content, headers={"content-type": "application/json"})
    assert found["status"] in (400, 422)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"--x\r\n", b"no form at all", b"--x\r\nContent-Disposition: form-data\r\n\r\nx\r\n--x--\r\n",
        b'--x\r\nContent-Disposition: form-data; name="other"\r\n\r\nx\r\n--x--\r\n',
        b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\nresnet50\r\n--x--\r\n',
        b"--x\r\n" + b"A: b\r\n" * 10_000,
    ],
)  # fmt: skip
def test_damaged_forms_are_refused(client, content):
    kind = {"content-type": "multipart/form-data; boundary=x"}
    assert refused(client, "/predict", content=content, headers=kind)["status"] in (400, 422)
    assert (
        refused(client, "/predict", content=content, headers={"content-type": "multipart/form-data"})["status"] == 400
    )


def test_a_body_over_the_limit_is_refused_with_the_way_out(client):
    for headers in (FILE, {"content-type": "application/json"}):
        found = refused(client, "/predict?device=t4", content=bytes(2 << 20), headers=headers)
        assert found["status"] == 413 and "external data" in found["detail"]
    parts = (bytes(1 << 18) for _ in range(8))  # without a stated length
    assert refused(client, "/predict?device=t4", content=parts, headers=FILE)["status"] == 413


def test_every_class_of_error_is_a_type_of_problem(client):
    listed = {one["type"].rpartition("/")[2] for one in document(client.get("/problems"))["problems"]}
    classes = {
        name for name, one in vars(errors).items() if isinstance(one, type) and issubclass(one, errors.PerfPassError)
    }
    assert classes <= listed == set(TYPES)
    assert document(client.get("/problems/nothing"), 404)["type"] == "/problems/not-found"
    assert document(client.get("/nothing"), 404) and document(client.get("/predict"), 405)


def test_a_request_keeps_its_id_if_it_is_one(client):
    given = {"x-request-id": "build-17.3"}
    assert client.get("/health", headers=given).headers["x-request-id"] == "build-17.3"
    for wrong in ("a b", "x" * 65, '"', ""):
        assert client.get("/health", headers={"x-request-id": wrong}).headers["x-request-id"] != wrong


def test_who_has_the_token_may_ask_and_who_has_not_learns_nothing():
    token = "long-enough-to-be-one"
    with TestClient(Application(Settings(token=token))) as guarded:
        for path in ("/devices", "/metrics", "/openapi.json", "/nothing"):
            for wrong in ({}, {"authorization": "Bearer wrong"}, {"authorization": f"Basic {token}"}):
                answer = guarded.get(path, headers=wrong)
                assert document(answer, 401)["type"] == "/problems/token"
                assert answer.headers["www-authenticate"] == "Bearer"
        assert guarded.get("/health").status_code == 200
        assert guarded.get("/devices", auth=("anyone", token)).status_code == 200  # as a browser sends it
        for wrong in ("wrong", "", f"x{token}"):
            assert guarded.get("/devices", auth=("anyone", wrong)).status_code == 401
        given = {"authorization": f"Bearer {token}"}
        description = guarded.get("/openapi.json", headers=given).json()
        assert description["security"] == [{"token": []}] and not description["paths"]["/health"]["get"]["security"]


@pytest.mark.parametrize(
    "wrong", [{"token": "short"}, {"token": "x" * 15 + "\n"}, {"body_mib": 0}, {"queue": 1.5}, {"question_seconds": -1}]
)
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(errors.ArgumentError):
        Settings(**wrong)


def test_the_description_is_openapi_3_1_and_its_examples_are_questions(client):
    import jsonschema

    found = client.get("/openapi.json").json()
    assert found["openapi"].startswith("3.1")
    for name, kind in KINDS.items():
        operation = found["paths"][f"/{name}"]["post"]
        content = operation["requestBody"]["content"]["application/json"]
        assert {one["value"]["device"] for one in content["examples"].values() if "device" in one["value"]} or name
        schema = {**content["schema"], "components": found["components"]}
        for example in content["examples"].values():
            jsonschema.validate(example["value"], schema, jsonschema.Draft202012Validator)
        assert operation["responses"].keys() == {"200", "4XX", "5XX"} and operation["summary"] == kind.summary


def test_files_of_the_server_stay_as_they_are(client, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    document(client.post("/predict", **form({"model": network(8)}, {"device": "t4"})))
    assert list(tmp_path.iterdir()) == []


# What only Python can give: functions' own objects, paths of this machine, what prints while it works.
_NOT_ASKED = {
    "Predict": {"calibration", "predictor"},
    "Fit": set(),
    "Choose": {"progress", "where"},
    "Advise": {"calibration", "output", "rewrites", "tolerance"},
    "Llm": {"switches"},
    "Diff": {"calibration"},
    "TrainCost": {"calibration", "price_table"},
}
# How `perfpass train-cost` asks for what the functions say.
_BESIDE = {"TrainCost": {"advise", "epochs", "search"}}


@pytest.mark.parametrize(
    ("kind", "functions"),
    [
        ("Predict", (perfpass.predict,)),
        ("Fit", (perfpass.fit,)),
        ("Choose", (perfpass.choose,)),
        ("Advise", (perfpass.advise,)),
        ("Llm", (perfpass.predict_llm,)),
        ("Diff", (perfpass.diff,)),
        ("TrainCost", (perfpass.train_cost, perfpass.train_network_cost)),
    ],
)
def test_a_question_has_every_argument_of_the_functions_that_answer(kind, functions):
    arguments = {name for function in functions for name in inspect.signature(function).parameters}
    asked = set(getattr(questions, kind).model_fields) - _BESIDE.get(kind, set())
    assert arguments - asked == _NOT_ASKED[kind]
    assert asked <= arguments
