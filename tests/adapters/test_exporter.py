"""Prometheus metrics of predicted times: scraped over HTTP, read by the package's own parser."""

from __future__ import annotations

import http.server
import threading
import urllib.request

import prometheus_client
import pytest
from prometheus_client.parser import text_string_to_metric_families

from perfpass import PerfPassError, predict_llm
from perfpass.cli import main
from perfpass.exporter import EngineLoad, Exporter, Load, at_load, fetched, serve

STATED = Load(8.0, 0.0, 1024.0, 128.0)


def vllm(running, waiting, requests, prompt, answer):
    """An engine's own exposition, by the package that vLLM makes it with."""
    registry = prometheus_client.CollectorRegistry()
    for name, value in (("running", running), ("waiting", waiting)):
        prometheus_client.Gauge(f"vllm:num_requests_{name}", "requests", ["model_name"], registry=registry).labels(
            "llama"
        ).set(value)
    for name, value in (("prompt", prompt), ("generation", answer)):
        counts = prometheus_client.Histogram(f"vllm:request_{name}_tokens", "tokens", ["model_name"], registry=registry)
        for _ in range(requests):
            counts.labels("llama").observe(value)
    return prometheus_client.generate_latest(registry).decode()


SGLANG = """# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{model_name="m"} 5.0
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{model_name="m"} 2.0
# TYPE sglang:prompt_tokens_total counter
sglang:prompt_tokens_total{model_name="m"} 8000.0
# TYPE sglang:generation_tokens_total counter
sglang:generation_tokens_total{model_name="m"} 1000.0
# TYPE sglang:num_requests_total counter
sglang:num_requests_total{model_name="m"} 10.0
"""


@pytest.fixture(scope="module")
def of():
    return predict_llm("llama-3.1-8b", "h100", input_length=1024, output_length=128, concurrency=8)


@pytest.fixture
def engine():
    """An HTTP server whose text a test sets."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(self.server.text.encode())

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.text = vllm(30, 4, 6, 500, 90)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def scraped(exporter):
    """A real scrape: samples by name and labels."""
    server, thread = serve(exporter, 0)
    try:
        host, port = server.server_address[:2]
        assert host == "127.0.0.1"
        text = urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=10).read().decode()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_scrape_tells_the_predicted_times_at_the_engines_load(of, engine):
    load = EngineLoad(STATED, [fetched(f"http://127.0.0.1:{engine.server_address[1]}/metrics")])
    found = scraped(Exporter(load, at_load(of)))
    expected = predict_llm("llama-3.1-8b", "h100", input_length=500, output_length=90, concurrency=34)
    assert found["perfpass_up",] == 1
    for name, value in (("ttft", expected.ttft_ms), ("tpot", expected.tpot_ms), ("request", expected.request_ms)):
        for bound in ("low", "median", "high"):
            assert found[f"perfpass_predicted_{name}_seconds", bound] == pytest.approx(getattr(value, bound) / 1e3)
    assert found["perfpass_requests", "running"] == 30 and found["perfpass_requests", "waiting"] == 4
    assert found["perfpass_request_tokens", "prompt"] == 500 and found["perfpass_request_tokens", "answer"] == 90


def test_lengths_are_of_the_requests_since_the_last_scrape():
    texts = [vllm(1, 0, 0, 0, 0), vllm(1, 0, 10, 100, 10), vllm(1, 0, 10, 100, 10), vllm(2, 0, 30, 300, 40)]
    load = EngineLoad(STATED, [lambda: texts.pop(0)])
    assert [load().prompt_tokens for _ in range(3)] == [1024, 100, 100]
    assert load().answer_tokens == pytest.approx((30 * 40 - 10 * 10) / 20)


def test_a_restarted_engine_starts_its_lengths_anew():
    texts = [vllm(1, 0, 30, 300, 40), vllm(1, 0, 5, 50, 20)]
    load = EngineLoad(STATED, [lambda: texts.pop(0)])
    load()
    assert load() == Load(1.0, 0.0, 50.0, 20.0)


def test_sglang_is_read_and_replicas_add_up():
    load = EngineLoad(STATED, [lambda: SGLANG, lambda: SGLANG])
    assert load() == Load(10.0, 4.0, 800.0, 100.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "give the address of vLLM's"), ("a{ 1", "no text of Prometheus"), ("up 1\n", "give the address of vLLM's")],
)
def test_what_is_no_engine_is_refused(text, said):
    with pytest.raises(PerfPassError, match=said):
        EngineLoad(STATED, [lambda: text])()


def test_without_an_engine_a_scrape_says_that_it_is_down_and_predicts_nothing(of, engine):
    address = f"http://127.0.0.1:{engine.server_address[1]}/metrics"
    engine.text = "nothing 1\n"
    assert scraped(Exporter(EngineLoad(STATED, [fetched(address)]), at_load(of))) == {("perfpass_up",): 0.0}


def test_wrong_addresses_ports_and_runtimes_are_refused(of):
    with pytest.raises(PerfPassError, match="HTTP address"):
        fetched("file:///etc/hostname")
    with pytest.raises(PerfPassError, match="is the engine running"):
        fetched("http://127.0.0.1:9/metrics")()
    with pytest.raises(PerfPassError, match="not for tgis"):
        at_load(predict_llm("llama-2-7b", "a100-80gb", runtime="tgis"))
    exporter = Exporter(lambda: STATED, at_load(of))
    server, thread = serve(exporter, 0)
    with pytest.raises(PerfPassError, match="choose another port"):
        serve(exporter, server.server_address[1])
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--engine", "http://127.0.0.1:1/metrics"], "give --metrics too"),
        (["--out", "folder"], "give --simulator too"),
        (["--metrics", "9:x"], "is no port"),
        (["--metrics", "70000"], "is no port"),
        (["--metrics", "9400", "--offline"], "leave out --metrics"),
        (["--simulator", "sglang", "--prefix-hit", "0.5"], "of a plain engine"),
    ],
)
def test_options_that_say_nothing_are_refused(options, said, capsys):
    assert main(["llm", "llama-3.1-8b", "--device", "h100", *options]) == 2
    assert said in capsys.readouterr().err
