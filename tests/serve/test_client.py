"""`perfpass.Client` gives what the functions give: equal objects, equal tables, the same errors."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn

import perfpass
from perfpass import Client, Limits
from perfpass.deploy.train_cost import search_layouts
from perfpass.deploy.train_network_advice import search_network_layouts, train_network_advice
from perfpass.errors import ArgumentError, DeviceError, FileError, FormatError, PerfPassError, UnsupportedError
from perfpass.llm import Parallelism
from perfpass.serve import results
from perfpass.serve.app import Application
from perfpass.serve.client import ServerError
from perfpass.serve.process import bound
from perfpass.serve.settings import Settings
from serve.test_answers import network

QUESTIONS = [
    ("predict", (network(), "t4"), {"batch": 8, "precision": "fp16"}),
    ("predict", (network(), "a100-80gb"), {"limits": Limits(latency_ms=0.05, confidence=0.8)}),
    ("predict", (network(), "t4"), {"mode": "training", "optimizer": "adam"}),
    ("fit", (network(), ["t4", "l4"]), {"batch": 64}),
    ("fit", ("llama-3.1-8b", "t4"), {"context": 4096}),
    ("fit", ("llama-3.1-70b",), {}),
    ("choose", (network(), ["t4", "l4"]), {"rate": 100.0, "latency_ms": 50.0}),
    ("advise", (network(), "t4"), {"batch": 8, "target": "throughput"}),
    ("predict_llm", ("llama-3.1-8b", "h100"), {"concurrency": 4}),
    ("predict_llm", ("deepseek-ai/DeepSeek-R1", "b200"), {"tp": 8, "ep": 8, "concurrency": 32}),
    (
        "predict_llm",
        ("deepseek-ai/DeepSeek-R1", "b200"),
        {"prefill": Parallelism.of(4), "prefill_workers": 1, "decode_batch": 2, "dp": 8, "ep": 8, "concurrency": 32},
    ),
    ("predict_llm", ("qwen3-32b", "h100"), {"runtime": "sglang", "concurrency": 64, "equal_answers": True}),
    ("diff", (network(1), network(2, nodes=5), ["t4", "l4"]), {"fail": {"latency": "5%"}, "change": {"batch": 4}}),
    ("diff", (network(1), network(2, nodes=5)), {}),
    ("train_cost", ("llama-3.1-8b", "h100"), {"gpus": 8, "sharding": "zero3", "tokens": 1e10, "lora_rank": 16}),
]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server in a thread."""
    listening = bound("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(Application(Settings(question_seconds=600)), log_level="error"))
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def client(url) -> Iterator[Client]:
    with Client(url, timeout_s=600) as found:
        yield found


@pytest.mark.parametrize(("method", "models", "how"), QUESTIONS)
def test_an_answer_over_http_equals_the_function_s(client, method, models, how):
    found = getattr(client, method)(*models, **how)
    expected = getattr(perfpass, method)(*models, **how)
    assert found == expected and str(found) == str(expected) and found.to_dict() == expected.to_dict()


def test_training_is_answered_of_any_network(client):
    how = {"gpus": 8, "sharding": "zero3", "micro_batch": 8}
    found = client.train_cost("resnet18", "a100", **how)
    expected = perfpass.train_network_cost("resnet18", "a100", **how)
    assert found == expected and str(found) == str(expected) and found.to_dict() == expected.to_dict()
    with pytest.raises(ArgumentError, match="tensor has no meaning"):
        client.train_cost("resnet18", "a100", tensor=2)
    assert client.train_advice("resnet18", "a100", **how).asked == expected


def test_training_is_answered_of_a_file(client, examples):
    path, how = examples / "vit_base_patch16_224.onnx", {"gpus": 8, "micro_batch": 16, "precision": "amp"}
    found, expected = client.train_cost(path, "a100", **how), perfpass.train_network_cost(path, "a100", **how)
    assert found == expected and str(found) == str(expected) and found.to_dict() == expected.to_dict()
    assert client.train_cost(path.read_bytes(), "a100", **how).step_s == expected.step_s
    assert client.train_advice(path, "a100", **how).to_dict() == train_network_advice(path, "a100", **how).to_dict()
    with pytest.raises(ArgumentError, match="tensor has no meaning"):
        client.train_cost(path, "a100", tensor=2)
    with pytest.raises(FormatError, match="GGUF"):
        client.train_cost(b"GGUF" + bytes(60), "a100")


@pytest.mark.parametrize(("model", "search"), [("qwen2.5-0.5b", search_layouts), (None, search_network_layouts)])
def test_layouts_are_searched_over_http_as_here(client, examples, model, search):
    model, how = model or examples / "resnet50.onnx", {"gpus": 2, "global_batch": 16}
    found, expected = client.search_layouts(model, "l4", **how), search(model, "l4", **how)
    assert found.to_dict() == expected.to_dict() and str(found) == str(expected)
    assert (found.fit, found.tried) == (expected.fit, expected.tried) == (len(expected.best), expected.tried)
    assert len(found.best) == 5 < found.fit
    with pytest.raises(ArgumentError, match="give global_batch"):
        client.search_layouts(model, "l4", gpus=2)
    with pytest.raises(ArgumentError, match="give one of them"):
        client.search_layouts(model, "l4", advise=True, **how)


def test_models_are_sent_in_every_form(client, examples, tmp_path):
    path = examples / "resnet50.onnx"
    expected = perfpass.predict(path, "t4")
    assert client.predict(path, "t4") == client.predict(str(path), "t4") == client.predict(path.read_bytes(), "t4")
    assert client.predict(path, "t4").to_dict() == expected.to_dict()
    import onnx

    assert client.predict(onnx.load(path, load_external_data=False), "t4").latency_ms == expected.latency_ms
    config = {
        "model_type": "llama",
        "hidden_size": 512,
        "num_hidden_layers": 2,
        "num_attention_heads": 8,
        "intermediate_size": 1024,
        "vocab_size": 1000,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    figures = perfpass.predict_llm(tmp_path, "h100").ttft_ms
    for form in (config, tmp_path, tmp_path / "config.json", str(tmp_path)):
        assert client.predict_llm(form, "h100").ttft_ms == figures


def test_answers_about_files_have_their_paths(client, examples):
    old, new = (str(examples / name) for name in ("resnet50.onnx", "vit_base_patch16_224.onnx"))
    assert client.diff(old, new, "t4") == perfpass.diff(old, new, "t4")
    assert client.fit(old, "t4") == perfpass.fit(old, "t4")
    assert client.choose(old, ["t4"], latency_ms=50.0) == perfpass.choose(old, ["t4"], latency_ms=50.0)


def test_devices_are_the_devices(client):
    assert client.device("A100 80GB") == perfpass.device("A100 80GB")
    assert client.device("h100:1g.10gb") == perfpass.device("h100:1g.10gb")
    listed = {device.id: device for device in client.devices()}
    assert listed["l4"] == perfpass.device("l4") and client.predict(network(), perfpass.device("l4"))


def test_what_stands_behind_is_told_in_words(client):
    assert "Time by operator class" in client.explain(network(), "t4")


@pytest.mark.parametrize(
    ("error", "question"),
    [
        (DeviceError, lambda c: c.predict(network(), "h1000")),
        (ArgumentError, lambda c: c.predict(network(), "t4", batch=0)),
        (ArgumentError, lambda c: c.predict(network(), "t4", colour="red")),
        (FormatError, lambda c: c.predict(b"no model", "t4")),
        (FileError, lambda c: c.predict("no-such-network", "t4")),
        (FileError, lambda c: c.predict("missing.onnx", "t4")),
        (UnsupportedError, lambda c: c.fit({"model_type": "bert"}, "t4")),
        (ArgumentError, lambda c: c.predict(3.5, "t4")),
        (ArgumentError, lambda c: c.predict(network(), "t4", dims={"a": object()})),
        (DeviceError, lambda c: c.device("no such thing")),
    ],
)  # fmt: skip
def test_errors_are_of_the_classes_of_the_functions(client, error, question):
    with pytest.raises(error):
        question(client)


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8000", "ftp://x", "http://", "http://x:99999", "http://x?y=1", "http://[::1", None, ""]
)
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(ArgumentError, match="address of a server"):
        Client(url)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"token": "a\n"}, "line break"),
        ({"token": "\u20ac"}, "ASCII"),
        ({"timeout_s": 0}, "over 0"),
        ({"timeout_s": -1.0}, "over 0"),
    ],
)
def test_a_token_or_time_that_cannot_be_sent_is_refused(given, said):
    with pytest.raises(ArgumentError, match=said):
        Client("http://127.0.0.1:8000", **given)


def test_no_server_is_told_with_the_way_out():
    with bound("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    client = Client(f"http://127.0.0.1:{port}")
    assert not client.ready()
    with pytest.raises(ServerError, match="perfpass serve") as told:
        client.devices()
    assert isinstance(told.value, PerfPassError) and told.value.status == 0


@pytest.fixture
def other() -> Iterator[Any]:
    """A server that says, one after the other, what `answers` has: a status and a body, or nothing at all."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = server.answers.pop(0)
            if status == 0:
                self.close_connection = True
                return
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Retry-After", "0")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.answers = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_what_a_server_did_not_answer_is_asked_again(other):
    good = json.dumps({"devices": [perfpass.device("l4").to_dict()]}).encode()
    client = Client(f"http://127.0.0.1:{other.server_port}")
    for first in ([(0, b"")], [(503, b"{}")], [(0, b""), (503, b"{}")]):
        other.answers[:] = [*first, (200, good)]
        assert client.devices() == (perfpass.device("l4"),)
    other.answers[:] = [(503, b"{}")] * 3
    with pytest.raises(ServerError) as told:
        client.devices()
    assert told.value.status == 503 and other.answers == []


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b"{}", b'{"devices": [{"id": 1}]}', b"\xff", b'{"devices": 3}']
)
def test_another_server_s_answer_is_an_error_of_one_line(other, body):
    other.answers[:] = [(200, body)]
    with pytest.raises(PerfPassError) as told:
        Client(f"http://127.0.0.1:{other.server_port}").devices()
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    "read",
    [results.prediction, results.fit, results.choice, results.difference, results.train_cost, results.train_advice,
     results.train_layouts],
)  # fmt: skip
@pytest.mark.parametrize("document", [{}, [], None, {"latency_ms": 3}, {"devices": {}, "exact": 1, "answers": 5}])
def test_documents_of_something_else_are_refused(read, document):
    with pytest.raises(FormatError):
        read(document)
