"""`perfpass serve` on loopback under load by locust: questions a second, the tail, memory, errors, and a stop.

    python benchmarks/serving_http.py [--seconds N] [--workers N] [--json FILE]

In turn: cached questions as fast as they are answered, new files of 500 operators likewise, both together at half
of what is aimed at (an open loop, two thirds of the time), and all that goes during which the server is told to stop.
What the server says that it answered is compared with what locust has.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from report import publish

AIMS = {"cached": 500.0, "new": 60.0}  # questions a second
SHARE = {"cached": 1 / 6, "new": 1 / 6, "half": 2 / 3}  # of the time
_PATIENCE_S = 120.0


class Server:
    """`perfpass serve`, its log and its processes."""

    def __init__(self, folder: Path, workers: int) -> None:
        self.log = folder / "serve.log"
        command = [sys.executable, "-m", "perfpass", "serve", "--port", "0", "--workers", str(workers)]
        with self.log.open("wb") as file:
            self.process = subprocess.Popen(command, stderr=file)
        self.url = self._await("listening", 1)[0]["url"]
        self._await("ready", workers)
        self._parent = psutil.Process(self.process.pid)

    def _await(self, event: str, count: int) -> list[dict[str, Any]]:
        deadline = time.monotonic() + _PATIENCE_S
        while len(found := list(self.said(event))) < count:
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise RuntimeError(f"no {event}: {self.log.read_text()[-2000:]}")
            time.sleep(0.1)
        return found

    def said(self, event: str, start: int = 0) -> Iterator[dict[str, Any]]:
        """Lines of the log from a position on."""
        with self.log.open("rb") as file:
            file.seek(start)
            for line in file:
                if line.startswith(b"{") and (found := json.loads(line))["event"] == event:
                    yield found

    def resident_mib(self) -> float:
        """Of the supervisor and the workers together."""
        everyone = [self._parent, *self._parent.children(recursive=True)]
        return sum(one.memory_info().rss for one in everyone) / 2**20

    def processor_s(self) -> float:
        """What they have taken of processors; those that ended are not among them."""
        times = [one.cpu_times() for one in (self._parent, *self._parent.children(recursive=True))]
        return sum(one.user + one.system for one in times)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(_PATIENCE_S)


def load(url: str, seconds: float, how: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """What locust measures of each kind of question in so many seconds."""
    users = sum(int(value) for name, value in how.items() if name.endswith("USERS"))
    command = [sys.executable, "-m", "locust", "-f", str(Path(__file__).with_name("serving_load.py")), "--headless"]
    command += ["--host", url, "-u", str(users), "-r", str(users), "-t", f"{seconds:.0f}s", "--json", "-L", "ERROR"]
    environment = {**os.environ, **{f"LOAD_{name}": str(value) for name, value in how.items()}}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    found = json.loads(run.stdout[run.stdout.index("[") :])
    return {one["name"]: _read(one, seconds) for one in found}


def _read(stats: Mapping[str, Any], seconds: float) -> dict[str, float]:
    times = sorted((float(ms), count) for ms, count in stats["response_times"].items())
    total = sum(count for _, count in times)
    return {
        "questions": stats["num_requests"],
        "errors": stats["num_failures"],
        "per_s": (stats["num_requests"] - stats["num_failures"]) / seconds,
        "p50_ms": _percentile(times, 0.5 * total),
        "p99_ms": _percentile(times, 0.99 * total),
        "most_ms": stats["max_response_time"],
    }


def _percentile(times: list[tuple[float, int]], place: float) -> float:
    passed = 0
    for ms, count in times:
        passed += count
        if passed >= place:
            return ms
    return 0.0


@contextmanager
def sampled(server: Server) -> Iterator[list[float]]:
    """Inside, the server's resident MiB are taken every second."""
    found: list[float] = []
    ended = threading.Event()

    def sample() -> None:
        while not ended.wait(1.0):
            found.append(server.resident_mib())

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


def stopped_under_load(server: Server, seconds: float) -> dict[str, Any]:
    """Tells the server to stop while locust asks; what it answered and what locust has must be the same."""
    start = server.log.stat().st_size
    code: list[int] = []

    def stop() -> None:
        time.sleep(seconds / 2)
        code.append(server.stop())

    thread = threading.Thread(target=stop)
    thread.start()
    found = load(server.url, seconds, {"CACHED_USERS": 8, "NEW_USERS": 4})
    thread.join()
    answered = sum(1 for one in server.said("request", start) if one["route"] == "/predict" and one["status"] == 200)
    had = sum(one["questions"] - one["errors"] for one in found.values())
    return {"answered": answered, "received": int(had), "lost": answered - int(had), "exit_code": code[0]}


def measure(seconds: float, workers: int) -> dict[str, Any]:
    """All phases."""
    kinds = {
        "cached": {"CACHED_USERS": 8},
        "new": {"NEW_USERS": 4},
        "half": {
            "CACHED_USERS": 25,
            "CACHED_PER_S": AIMS["cached"] / 2 / 25,
            "NEW_USERS": 10,
            "NEW_PER_S": AIMS["new"] / 2 / 10,
        },
    }
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder), workers)
        try:
            rows = []
            load(server.url, 5, kinds["cached"])  # what the caches hold, and the first use of everything
            for name, how in kinds.items():
                with sampled(server) as resident:
                    found = load(server.url, max(10.0, SHARE[name] * seconds), how)
                tenth = max(1, len(resident) // 10)
                memory = {
                    "begin_mib": sum(resident[tenth : 2 * tenth]) / tenth,
                    "end_mib": sum(resident[-tenth:]) / tenth,
                }
                rows += [{"load": name, "kind": kind, **one, **memory} for kind, one in sorted(found.items())]
                print(rows[-1], flush=True)
            stop = stopped_under_load(server, 12.0)
        finally:
            if server.process.poll() is None:
                server.process.kill()
    return {"seconds": seconds, "workers": workers, "operators": 500, "rows": rows, "stop": stop, "aims": AIMS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, metavar="N", help="of all phases (default: 60)")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="of the server (default: 2)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the figures go")
    options = parser.parse_args()
    found = measure(options.seconds, options.workers)
    found["load_average"] = os.getloadavg()[1]
    errors = sum(row["errors"] for row in found["rows"])
    publish("serving_http", found, ("fastapi", "uvicorn", "locust", "numpy"), options.json)
    assert errors == 0 and found["stop"]["lost"] == 0 and found["stop"]["exit_code"] == 0, found


if __name__ == "__main__":
    main()
