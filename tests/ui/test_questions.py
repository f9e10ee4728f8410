"""What the page asks is what the functions answer, and what it may be asked is bounded."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

import perfpass
from perfpass.cli import main
from perfpass.errors import ArgumentError, PerfPassError
from perfpass.predictors.workload import RUNTIMES
from perfpass.serve.settings import Settings
from perfpass.ui.answers import ANSWERS, Asked, Model, Progress
from perfpass.ui.app import OnlyHere, Pages
from perfpass.ui.fields import _RUNTIMES, QUESTIONS
from perfpass.ui.questions import nested


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(Pages(Settings(question_seconds=600, body_mib=1))) as found:
        yield found


def asked(client: TestClient, question: str, fields: dict[str, str], **parts: bytes) -> list[dict[str, Any]]:
    """The lines that answer a form."""
    files = {name.replace("_", "."): ("net.onnx", content) for name, content in parts.items()}
    answer = client.post(f"/ask/{question}", data={"question": urlencode(fields)}, files=files or {"x": b""})
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def test_an_answer_is_that_of_the_function(client, examples):
    content = (examples / "resnet50.onnx").read_bytes()
    last = asked(client, "predict", {"device": "t4", "batch": "4", "limits.latency_ms": "20"}, model=content)[-1]
    found = client.get(f"/answers/{last['key']}.json").json()
    expected = perfpass.predict(content, "t4", batch=4, limits=perfpass.Limits(latency_ms=20)).to_dict()
    assert found == expected


LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 2048, "intermediate_size": 5632,
    "num_attention_heads": 32, "num_key_value_heads": 4, "num_hidden_layers": 22, "vocab_size": 32000,
    "torch_dtype": "bfloat16", "max_position_embeddings": 2048, "hidden_act": "silu",
}  # fmt: skip


@pytest.mark.parametrize(
    ("question", "fields"),
    [("fit", {}), ("serve", {}), ("train", {"gpus": "8"}), ("train", {"gpus": "8", "search": "true"})],
)
def test_a_pasted_configuration_is_answered(client, question, fields):
    link = urlencode({"device": "h100", "file": "config.json", **fields})  # as the page sends it
    form = {"question": (None, link), "config": (None, json.dumps(LLAMA))}
    assert "fragment" in json.loads(client.post(f"/ask/{question}", files=form).text.splitlines()[-1])


def test_the_page_offers_every_runtime():
    assert _RUNTIMES == RUNTIMES


def test_labels_are_words():
    """Names of fields are for programs: an abbreviation is written as one, and a unit stands behind a comma."""
    from perfpass.ui.fields import _LABELS

    shown = [field for question in QUESTIONS for field in (*question.fields, *question.more)]
    assert set(_LABELS) <= {field.name for field in shown}
    short = {
        field.label
        for field in shown
        if re.search(r"\b([Kk]v|[Tt]p|[Pp]p|[Dd]p|[Ee]p|[Gg]pu|gib|gb|Pue|Dora|Lora)\b", field.label)
    }
    assert short == set()


def test_each_question_of_the_page_is_answered():
    assert {question.name for question in QUESTIONS} == set(ANSWERS)


CHOICES = [
    (question, field.name, value)
    for question in QUESTIONS
    for field in (*question.fields, *question.more)
    for value, _ in field.choices
]
FIRST = {
    **{question: {"device": "h100"} for question in ("fit", "predict", "compare", "serve")},
    "train": {"device": "b200-sxm-180gb"}, "fleet": {"gpu.0.device": "a30", "gpu.0.count": "1"},
}  # fmt: skip


@pytest.mark.parametrize(("question", "name", "value"), CHOICES, ids=lambda one: getattr(one, "name", str(one)))
def test_every_choice_of_a_list_is_one_that_the_function_knows(question, name, value, examples):
    served = question.name in ("serve", "train") or value in ("vllm", "sglang", "trtllm", "llama.cpp", "transformers")
    given = Model("llama-3.1-8b" if served else (examples / "resnet50.onnx").read_bytes(), "it")
    fields = {**FIRST[question.name], name: value}
    models = {"model.0" if question.name == "fleet" else "model": given}
    if question.name == "fleet":
        pytest.importorskip("ortools")
        fields["model.0.file"] = "it"
    try:
        assert ANSWERS[question.name](Asked(question.name, fields, models), Progress())[1]
    except PerfPassError as error:  # refused for a reason other than that nobody knows the word
        assert "unknown" not in str(error) and "did you mean" not in str(error)


def test_a_file_of_this_machine_is_no_model(client, tmp_path):
    (tmp_path / "secret.onnx").write_bytes(b"x")
    for name in (str(tmp_path / "secret.onnx"), "../x.onnx", "/etc/passwd"):
        answer = client.post("/ask/predict", data={"question": urlencode({"device": "t4", "model": name})}, files={})
        assert answer.status_code in (404, 415), answer.text
        fleet = {"gpu.0.device": "a30", "gpu.0.count": "1", "model.0.model": name}
        assert asked(client, "fleet", fleet, model_1=b"x")[-1]["problem"]["status"] == 404


@pytest.mark.parametrize(
    ("question", "fields", "said"),
    [
        ("predict", {"device": "h1000"}, "h1000"),
        ("predict", {"device": "t4", "batch": "many"}, "batch"),
        ("predict", {"device": "t4", "bach": "8"}, "bach"),
        ("predict", {"device": ""}, "choose from 1"),
        ("compare", {"device": ",".join(f"d{i}" for i in range(40))}, "40 devices"),
        ("predict", {"device": "t4", "dims": "{"}, "JSON"),
        ("fit", {}, "name one device"),
        ("serve", {"device": "h100"}, "not of a file"),
        ("train", {"device": "h100", "search": "true"}, "not of a file"),
        ("train", {"device": "h100"}, "not of a file"),
    ],
)
def test_what_is_wrong_is_one_sentence(client, examples, question, fields, said):
    files = {"model": ("net.onnx", (examples / "resnet50.onnx").read_bytes())}
    answer = client.post(f"/ask/{question}", data={"question": urlencode(fields)}, files=files)
    lines = [json.loads(line) for line in answer.text.splitlines()]
    problem = lines[-1] if answer.status_code != 200 else lines[-1]["problem"]
    assert said in problem["detail"] and 400 <= problem["status"] < 500 and "\n" not in problem["detail"]


@pytest.mark.parametrize("search", [{}, {"search": "true", "global_batch": "8"}])
def test_layouts_are_drawn_of_language_models_alone(client, search):
    """A Whisper trains as a network, whose answer has no layout to draw."""
    form = {"question": (None, urlencode({"device": "h100", "model": "whisper-tiny", **search}))}
    problem = json.loads(client.post("/ask/train", files=form).text.splitlines()[-1])["problem"]
    assert "no language model whose layouts are known" in problem["detail"] and 400 <= problem["status"] < 500


def test_a_model_is_asked_for_where_none_is_given(client):
    for fields, said in (({"device": "t4"}, "no model"), ({"device": "t4", "file": "a.onnx"}, "choose a.onnx again")):
        form = {"question": (None, urlencode(fields))}
        assert said in json.loads(client.post("/ask/predict", files=form).text.splitlines()[-1])["problem"]["detail"]


def test_only_this_machine_is_answered_and_no_page_of_another_site():
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    for host, headers, status in (
        ("127.0.0.1:7860", {}, 204),
        ("localhost", {}, 204),
        ("[::1]:7860", {}, 204),
        ("LOCALHOST:1", {"sec-fetch-site": "same-origin"}, 204),
        ("127.0.0.1", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 204),
        ("127.0.0.1", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"}, 403),
        ("evil.example", {}, 403),
        ("127.0.0.1.evil.example", {}, 403),
        ("", {}, 403),
    ):
        answer = TestClient(OnlyHere(app)).get("/", headers={"host": host, **headers})
        assert answer.status_code == status, (host, headers)


def test_a_page_with_a_password_shows_nothing_without_it():
    with TestClient(Pages(Settings(token="long-enough-to-be-one"))) as guarded:
        for path in ("/", "/answers/x.json"):
            refused = guarded.get(path, headers={"accept": "text/html,*/*"})
            assert refused.status_code == 401 and refused.headers["www-authenticate"].startswith("Basic ")
        assert guarded.get("/", auth=("me", "long-enough-to-be-one")).status_code == 200


def test_sharing_is_off_and_says_why(capsys):
    assert main(["ui", "--share"]) == ArgumentError.exit_code
    assert "somebody else's server" in capsys.readouterr().err


@given(st.lists(st.dictionaries(st.sampled_from(["a", "b"]), st.text(max_size=3), min_size=1), max_size=5))
def test_rows_of_a_form_are_the_lists_that_they_were_made_of(rows):
    flat = {f"row.{i}.{name}": value for i, row in enumerate(rows) for name, value in row.items()}
    assert nested(flat) == ({"row": rows} if rows else {})
