"""What a server says of itself: metrics of Prometheus, and a line of JSON for every request and event."""

from __future__ import annotations

import json
import logging
import os
import re
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from perfpass.errors import needs

if TYPE_CHECKING:
    from perfpass.serve.work import Work

LOG = logging.getLogger("perfpass.serve")
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SHARED = "PROMETHEUS_MULTIPROC_DIR"  # prometheus_client's own: workers sum through files in it


class Metrics:
    """Counters of one app; of several workers together, where `_SHARED` names a folder."""

    def __init__(self, work: Work) -> None:
        """``work``: whose queue and cache are shown. Raises UnsupportedError without prometheus_client."""
        with needs("serve", "`perfpass serve`"):
            from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
        if _SHARED in os.environ:
            _forget_dead()
        self._work = work
        self._registry = own = CollectorRegistry()
        labels = ["route", "method", "status"]
        self.requests = Counter("perfpass_http_requests", "Requests answered", labels, registry=own)
        self.seconds = Histogram(
            "perfpass_http_request_seconds", "Time of a request", ["route"], buckets=_SECONDS, registry=own
        )
        self.answers = Counter("perfpass_answers", "Answers, and where from", ["question", "how"], registry=own)
        self.refused = Counter("perfpass_problems", "Problems by type", ["type"], registry=own)
        self.received = Counter("perfpass_body_bytes", "Bytes of bodies", registry=own)
        summed: dict[str, Any] = {"registry": own, "multiprocess_mode": "livesum"}
        self.active = Gauge("perfpass_http_requests_active", "Requests in progress", **summed)
        self._waiting = Gauge("perfpass_questions_waiting", "Questions in a lane", ["lane"], **summed)
        self._cached = Gauge("perfpass_cache_bytes", "Bytes of answers that are kept", **summed)

    def levels(self) -> None:
        """Takes over what the work's levels are now."""
        for name, lane in self._work.lanes.items():
            self._waiting.labels(name).set(lane.waiting)
        self._cached.set(self._work.cache.bytes)

    def text(self) -> tuple[bytes, str]:
        """Everything in the form of Prometheus, and its media type."""
        from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest, multiprocess

        self.levels()
        registry = self._registry
        if _SHARED in os.environ:
            registry = CollectorRegistry()
            multiprocess.MultiProcessCollector(registry)
        return generate_latest(registry), CONTENT_TYPE_LATEST


def _forget_dead() -> None:
    """Levels of workers that died: a new worker is there in their place."""
    from prometheus_client import multiprocess

    for name in os.listdir(os.environ[_SHARED]):
        if (found := re.search(r"^gauge_live\w*_(\d+)\.db$", name)) and not _is_alive(int(found[1])):
            multiprocess.mark_process_dead(int(found[1]))


def _is_alive(process: int) -> bool:
    if os.name != "posix":  # elsewhere signal 0 is none
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class JsonLines(logging.Formatter):
    """A record as one line of JSON; what `facts` in ``extra`` has are keys of their own."""

    def format(self, record: logging.LogRecord) -> str:
        """As `logging.Formatter.format`."""
        said: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            "worker": record.process,
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            said["traceback"] = self.formatException(record.exc_info)
        return json.dumps(said)


def log_config(level: str) -> dict[str, Any]:
    """For `logging.config`: all lines on stderr, uvicorn's among them."""
    line = {"handlers": ["lines"], "level": level.upper(), "propagate": False}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"json": {"()": f"{JsonLines.__module__}.{JsonLines.__qualname__}"}},
        "handlers": {"lines": {"class": "logging.StreamHandler", "formatter": "json", "stream": "ext://sys.stderr"}},
        "loggers": dict.fromkeys(("perfpass", "uvicorn", "uvicorn.error", "mcp"), line),
    }


def event(name: str, level: int = logging.INFO, **facts: Any) -> None:
    """One line of the log."""
    LOG.log(level, name, extra={"facts": facts})


def milliseconds_since(start: float) -> float:
    """Of `time.perf_counter`."""
    return round(1e3 * (time.perf_counter() - start), 3)
