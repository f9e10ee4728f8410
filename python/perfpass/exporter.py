"""Prometheus metrics of what a served language model takes at its present load, for autoscalers.

The load is an engine's own (`/metrics` of vLLM or SGLang), read at every scrape, or a stated one. Names of the engines'
metrics: vLLM, docs/usage/metrics.md; SGLang, docs/references/production_metrics.md. What is exposed:
docs/guides/simulators.md.
"""

from __future__ import annotations

import logging
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING, Any

from perfpass.errors import ArgumentError, FileError, PerfPassError, needs
from perfpass.prediction import Interval
from perfpass.predictors.serving.base import RUNTIMES
from perfpass.predictors.serving.prediction import LlmPrediction
from perfpass.predictors.serving.predictor import ServingPredictor

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

_TIMEOUT_S = 2.0
_MOST_BYTES = 16 * 2**20
_MS = 1e-3
_UP = "Whether the load is known and predicted for"


@dataclass(frozen=True)
class Load:
    """Requests of a deployment now, and mean tokens of a prompt and of an answer."""

    running: float
    waiting: float
    prompt_tokens: float
    answer_tokens: float


@dataclass(frozen=True)
class _Names:
    """An engine's names: gauges of requests; tokens of prompts and of answers so far, and of how many requests."""

    running: str
    waiting: str
    prompt: tuple[str, str]
    answer: tuple[str, str]


_PROMPTS, _ANSWERS = "request_prompt_tokens", "request_generation_tokens"
ENGINES: tuple[_Names, ...] = (
    _Names(
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        (f"vllm:{_PROMPTS}_sum", f"vllm:{_PROMPTS}_count"),
        (f"vllm:{_ANSWERS}_sum", f"vllm:{_ANSWERS}_count"),
    ),
    _Names(
        "sglang:num_running_reqs",
        "sglang:num_queue_reqs",
        ("sglang:prompt_tokens_total", "sglang:num_requests_total"),
        ("sglang:generation_tokens_total", "sglang:num_requests_total"),
    ),
)


class EngineLoad:
    """The load that one or more replicas' metrics tell, each call anew.

    Mean tokens are of the requests that ended since the last call; where none did, of all; before any did, ``stated``.
    """

    def __init__(self, stated: Load, replicas: Sequence[Callable[[], str]]) -> None:
        """``replicas``: each gives the text of an endpoint. ``stated``: what holds until requests have ended."""
        self._stated, self._replicas = stated, replicas
        self._before: Mapping[str, float] = {}

    def __call__(self) -> Load:
        """The load now. Raises FileError where the endpoint does not answer, ArgumentError for another engine's."""
        now = _sums(read() for read in self._replicas)
        names = next((names for names in ENGINES if names.running in now), None)
        if names is None:
            raise ArgumentError(
                f"the metrics hold no {' or '.join(one.running for one in ENGINES)}; give the address of vLLM's or of "
                "SGLang's metrics (SGLang: --enable-metrics)"
            )
        prompt = self._mean(now, names.prompt, self._stated.prompt_tokens)
        answer = self._mean(now, names.answer, self._stated.answer_tokens)
        self._before = now
        return Load(now[names.running], now.get(names.waiting, 0.0), prompt, answer)

    def _mean(self, now: Mapping[str, float], names: tuple[str, str], stated: float) -> float:
        tokens, requests = (now.get(name, 0.0) for name in names)
        new = requests - self._before.get(names[1], requests)
        if new > 0:
            return max((tokens - self._before[names[0]]) / new, 1.0)
        return max(tokens / requests, 1.0) if requests > 0 else stated


def fetched(address: str) -> Callable[[], str]:
    """Reads an HTTP address. Raises ArgumentError for another scheme; the reading raises FileError."""
    if not address.startswith(("http://", "https://")):
        raise ArgumentError(f"{address!r} is no HTTP address; give one as http://127.0.0.1:8000/metrics")

    def read() -> str:
        try:
            with urllib.request.urlopen(address, timeout=_TIMEOUT_S) as answer:
                content = answer.read(_MOST_BYTES + 1)
        except (OSError, ValueError, urllib.error.URLError) as error:
            raise FileError(f"{address} does not answer ({error}); is the engine running?") from error
        if len(content) > _MOST_BYTES:
            raise FileError(f"{address} answers with more than {_MOST_BYTES >> 20} MiB, which no engine's metrics are")
        return bytes(content).decode(errors="replace")

    return read


def _sums(texts: Iterable[str]) -> dict[str, float]:
    """Every sample's name with the sum over its labels and over ``texts``. Raises ArgumentError for other text."""
    with needs("metrics", "reading an engine's metrics"):
        from prometheus_client.parser import text_string_to_metric_families
    found: dict[str, float] = {}
    try:
        for text in texts:
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    found[sample.name] = found.get(sample.name, 0.0) + float(sample.value)
    except (ValueError, KeyError) as error:
        raise ArgumentError(f"the engine's answer is no text of Prometheus ({error})") from error
    return found


class Exporter:
    """A collector of `prometheus_client`: a prediction at the present load for every scrape."""

    def __init__(self, load: Callable[[], Load], predict: Callable[[Load], LlmPrediction]) -> None:
        """``predict``: the deployment's figures at a load, as of `perfpass.predict_llm`."""
        self._load, self._predict = load, predict
        self._lock, self._said = Lock(), ""

    def collect(self) -> Iterator[Metric]:
        """The metrics now. Where the engine does not answer or nothing is predicted, `perfpass_up` is 0 and alone."""
        with needs("metrics", "metrics of Prometheus"):
            from prometheus_client.core import GaugeMetricFamily as Gauge
        # Scrapes may overlap, and each load is told by what ended since the one before.
        with self._lock:
            try:
                load = self._load()
                found = self._predict(load)
            except PerfPassError as error:
                if str(error) != self._said:
                    logging.getLogger(__name__).warning("no prediction: %s", error)
                self._said = str(error)
                yield _gauge(Gauge("perfpass_up", _UP), 0.0)
                return
            self._said = ""
        yield _gauge(Gauge("perfpass_up", _UP), 1.0)
        for name, text, value, scale in (
            ("ttft_seconds", "Time to first token at the present load", found.ttft_ms, _MS),
            ("tpot_seconds", "Time per output token at the present load", found.tpot_ms, _MS),
            ("request_seconds", "Time of a whole request at the present load", found.request_ms, _MS),
            ("output_tokens_per_second", "Output of all GPUs at the present load", found.output_tokens_per_s, 1.0),
        ):
            yield _interval(Gauge(f"perfpass_predicted_{name}", text, labels=["bound"]), value, scale)
        requests = Gauge("perfpass_requests", "Requests of the deployment", labels=["state"])
        requests.add_metric(["running"], load.running)
        requests.add_metric(["waiting"], load.waiting)
        yield requests
        tokens = Gauge("perfpass_request_tokens", "Mean tokens of a request", labels=["part"])
        tokens.add_metric(["prompt"], load.prompt_tokens)
        tokens.add_metric(["answer"], load.answer_tokens)
        yield tokens
        yield _gauge(Gauge("perfpass_requests_that_fit", "Requests that the cache holds"), found.memory.most_requests)


def _gauge(gauge: Any, value: float) -> Metric:
    gauge.add_metric([], value)
    return gauge


def _interval(gauge: Any, value: Interval, scale: float) -> Metric:
    for bound in ("low", "median", "high"):
        gauge.add_metric([bound], scale * getattr(value, bound))
    return gauge


def at_load(of: LlmPrediction) -> Callable[[Load], LlmPrediction]:
    """The same deployment as of a prediction, under other loads; at least one request is in flight.

    Raises ArgumentError for a runtime that is predicted from other records (tgis).
    """
    asked = of.asked
    if asked.serving.runtime not in RUNTIMES:
        raise ArgumentError(f"metrics are predicted for {', '.join(RUNTIMES)}, not for {asked.serving.runtime}")

    def predict(load: Load) -> LlmPrediction:
        serving = replace(
            asked.serving,
            concurrency=max(load.running + load.waiting, 1.0),
            input_length=max(round(load.prompt_tokens), 1),
            output_length=max(round(load.answer_tokens), 1),
        )
        return ServingPredictor.load().predict(asked.model, asked.device, serving)

    return predict


def serve(exporter: Exporter, port: int, host: str = "127.0.0.1") -> tuple[Any, Any]:
    """Answers http://``host``:``port``/metrics from a thread; gives the server and its thread (port 0: any free one).

    Raises ArgumentError for a port that is not free.
    """
    with needs("metrics", "metrics of Prometheus"):
        from prometheus_client import CollectorRegistry, start_http_server
    registry = CollectorRegistry(auto_describe=False)
    registry.register(exporter)  # type: ignore[arg-type]
    try:
        return start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        raise ArgumentError(f"{host}:{port} cannot be served on ({error}); choose another port") from error
