"""What locust asks `perfpass serve` (benchmarks/serving_http.py): files of 500 operators, known to the server or new.

The environment says how: LOAD_CACHED_USERS and LOAD_NEW_USERS, and what each of these users asks a second on average,
LOAD_CACHED_PER_S and LOAD_NEW_PER_S (0: as fast as it is answered). Users ask at random times of their own, none
waiting for another, so that together they are a Poisson stream; a user who is late asks at once.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Callable

from locust import FastHttpUser, task
from serving_files import stamped, variants

PER_S = {"cached": float(os.environ.get("LOAD_CACHED_PER_S", "0")), "new": float(os.environ.get("LOAD_NEW_PER_S", "0"))}
HEADERS = {"Content-Type": "application/octet-stream"}
FILES = variants()
_numbers = itertools.count()
_draw = random.Random(0)


def waits(per_s: float) -> Callable[[_User], float]:
    """The seconds until a user's next question."""

    def wait(user: _User) -> float:
        now = time.perf_counter()
        if not per_s:
            return 0.0
        user.due_s = (now if user.due_s is None else user.due_s) + _draw.expovariate(per_s)
        return max(0.0, user.due_s - now)

    return wait


class _User(FastHttpUser):
    abstract = True
    network_timeout = connection_timeout = 120.0
    due_s: float | None = None  # when the next question should go

    def ask(self, name: str, content: bytes) -> None:
        self.client.post("/predict?device=t4", data=content, headers=HEADERS, name=name)


class Cached(_User):
    """Asks about a file that was asked about before."""

    fixed_count = int(os.environ.get("LOAD_CACHED_USERS", "0"))
    abstract = fixed_count == 0
    wait_time = waits(PER_S["cached"])

    @task
    def question(self) -> None:
        self.ask("cached", FILES[next(_numbers) % len(FILES)])


class New(_User):
    """Asks about a file that nobody asked about before."""

    fixed_count = int(os.environ.get("LOAD_NEW_USERS", "0"))
    abstract = fixed_count == 0
    wait_time = waits(PER_S["new"])

    @task
    def question(self) -> None:
        self.ask("new", stamped(FILES[next(_numbers) % len(FILES)]))
