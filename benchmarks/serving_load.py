"""What locust asks `perfpass serve` (benchmarks/serving_http.py): files of 500 operators, known to the server or new.

The environment says how: LOAD_KIND cached, new or both; LOAD_PER_S of each user (0: as fast as it is answered).
"""

from __future__ import annotations

import itertools
import os

from locust import FastHttpUser, constant_pacing, constant_throughput, task
from serving_files import stamped, variants

KIND = os.environ.get("LOAD_KIND", "cached")
PER_S = {"cached": float(os.environ.get("LOAD_CACHED_PER_S", "0")), "new": float(os.environ.get("LOAD_NEW_PER_S", "0"))}
HEADERS = {"Content-Type": "application/octet-stream"}
FILES = variants()
_numbers = itertools.count()


class _User(FastHttpUser):
    abstract = True
    network_timeout = connection_timeout = 120.0

    def ask(self, name: str, content: bytes) -> None:
        self.client.post("/predict?device=t4", data=content, headers=HEADERS, name=name)


class Cached(_User):
    """Asks about a file that was asked about before."""

    fixed_count = int(os.environ.get("LOAD_CACHED_USERS", "0"))
    abstract = fixed_count == 0
    wait_time = constant_throughput(PER_S["cached"]) if PER_S["cached"] else constant_pacing(0)

    @task
    def question(self) -> None:
        self.ask("cached", FILES[next(_numbers) % len(FILES)])


class New(_User):
    """Asks about a file that nobody asked about before."""

    fixed_count = int(os.environ.get("LOAD_NEW_USERS", "0"))
    abstract = fixed_count == 0
    wait_time = constant_throughput(PER_S["new"]) if PER_S["new"] else constant_pacing(0)

    @task
    def question(self) -> None:
        self.ask("new", stamped(FILES[next(_numbers) % len(FILES)]))
