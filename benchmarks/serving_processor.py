"""Processor time of a question to `perfpass serve`, which depends less than its wall time on what else a machine does.

    python benchmarks/serving_processor.py [--json FILE]

One worker, one connection, one question after the other: answers that are kept, and new files of 500 operators.
"""

from __future__ import annotations

import argparse
import http.client
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from report import publish, table
from serving_files import OPERATORS, stamped, variants
from serving_http import Server

ROUNDS = 5
QUESTIONS = {"cached": 400, "new": 60}
_HEADERS = {"Content-Type": "application/octet-stream"}


def measure() -> dict[str, Any]:
    """Milliseconds of processor for a question of each kind, of every round."""
    files = variants(16)
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder), 1)
        connection = http.client.HTTPConnection(server.url.removeprefix("http://"))
        try:
            ask(connection, files)
            found: dict[str, list[float]] = {kind: [] for kind in QUESTIONS}
            for _ in range(ROUNDS):
                for kind, count in QUESTIONS.items():
                    asked = [files[i % len(files)] for i in range(count)]
                    before = server.processor_s()
                    ask(connection, (stamped(one) for one in asked) if kind == "new" else asked)
                    found[kind].append(1e3 * (server.processor_s() - before) / count)
        finally:
            connection.close()
            server.stop()
    return {"operators": OPERATORS, "rounds": ROUNDS, "processor_ms": {kind: sorted(ms) for kind, ms in found.items()}}


def ask(connection: http.client.HTTPConnection, files: Iterable[bytes]) -> None:
    """One question after the other, all answered."""
    for content in files:
        connection.request("POST", "/predict?device=t4", content, _HEADERS)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        answer.read()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the figures go")
    options = parser.parse_args()
    found = measure()
    rows = [
        [kind, f"{ms[ROUNDS // 2]:.2f}", f"{ms[0]:.2f} to {ms[-1]:.2f}"] for kind, ms in found["processor_ms"].items()
    ]
    print(table(["question", "processor ms", "rounds"], rows))
    publish("serving_processor", found, ("fastapi", "uvicorn", "numpy"), options.json)


if __name__ == "__main__":
    main()
