"""Real servers: stopped under load, with a worker killed, and with hostile sockets; none of it is timed tightly."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator

import pytest

from perfpass import Client
from perfpass.scratch import held
from perfpass.serve.client import ServerError
from serve.servers import PATIENCE_S, Running, said_to, serving, status
from serve.test_answers import network

QUESTION = b'{"model": "llama-3.1-8b", "device": "h100"}'


def post(body: bytes, *headers: str, path: str = "/predict?device=t4") -> bytes:
    lines = (f"POST {path} HTTP/1.1", "Host: x", *headers, "", "")
    return "\r\n".join(lines).encode("latin-1") + body


FILE = "Content-Type: application/octet-stream"


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Running]:
    limits = (
        "--head-seconds",
        "1",
        "--body-seconds",
        "1",
        "--body-mib",
        "1",
        "--connections",
        "40",
        "--idle-seconds",
        "2",
    )
    with serving(tmp_path_factory.mktemp("server"), *limits) as found:
        yield found


@pytest.fixture(autouse=True)
def still_answers(request) -> Iterator[None]:
    """Whatever was said to the server that the tests share, it answers the next question."""
    yield
    if "server" in request.fixturenames:
        with Client(request.getfixturevalue("server").url) as client:
            assert client.predict(network(int(time.time_ns() % 1_000_000)), "t4").latency_ms.median > 0


@pytest.mark.parametrize(
    "parts",
    [
        (b"",),  # half open: nothing comes
        (b"POST /predict HTTP/1.1\r\nHost: x\r\n",),  # headers do not end
        (b"POST", b" /pre", b"dict", b" HTTP", b"/1.1\r\n", b"Ho", b"st: ", b"x\r\n"),  # slow headers
        (post(b"abc", FILE, "Content-Length: 1000"),),  # a body that is cut off, its socket open
        (post(b"5\r\nabcde\r\n", FILE, "Transfer-Encoding: chunked"),),  # chunks that do not end
    ],
)
def test_what_does_not_come_is_closed_after_its_time(server, parts):
    begin = time.monotonic()
    answer = said_to(server.port, *parts, pause_s=0.05)
    assert status(answer) == 408 and json.loads(answer.partition(b"\r\n\r\n")[2])["type"] == "/problems/slow"
    assert time.monotonic() - begin < PATIENCE_S / 2


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (post(b"", *(f"X-{i}: y" for i in range(10_000)), "Content-Length: 0"), 431),
        (post(b"", "X-Long: " + "y" * 100_000), 431),
        (post(b"", "Content-Length: 0", path="/" + "x" * 100_000), 431),
        (b"GET / HTTP/9.9\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(200, 232)), 400),  # TLS
        (b"\x00" * 1000, 400),
        (post(b"", FILE, "Content-Length: 99999999999"), 413),
        (post(b"x", FILE, "Content-Length: -1"), 400),
        (post(b"x", FILE, "Content-Length: 1", "Content-Length: 2"), 400),
        (post(b"x", FILE, "Content-Length: 1", "Transfer-Encoding: chunked"), 400),
        (post(b"zz\r\n", FILE, "Transfer-Encoding: chunked"), 400),
        (post(b"\x1f\x8b" + b"\x00" * 98, FILE, "Content-Encoding: gzip", "Content-Length: 100"), 415),
        (post(b"x", "Content-Type: ../../etc/passwd", "Content-Length: 1", "Connection: close"), 415),
    ],
)  # fmt: skip
def test_hostile_requests_are_refused(server, content, expected):
    answer = said_to(server.port, content)
    assert status(answer) == expected, answer[:300]


def test_a_chunked_body_over_the_limit_is_refused_before_its_end(server):
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    answer = said_to(server.port, post(b"", FILE, "Transfer-Encoding: chunked"), *(chunk for _ in range(64)))
    assert status(answer) in (0, 413)  # 0: reset while it was still sent
    assert server.said("request")[-1]["status"] == 413


def test_more_connections_than_the_limit_are_refused_and_the_others_go_on(server):
    held = []
    try:
        for _ in range(60):
            held.append(socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S))
        answers = [one.recv(1 << 12) for one in held]  # the first are closed for their silence, with 408
        assert {status(answer) for answer in answers} == {408, 503}
    finally:
        for one in held:
            one.close()


def test_a_token_comes_from_a_file_and_is_never_in_the_log(tmp_path):
    token = "the-token-of-this-test"
    (tmp_path / "token").write_text(f"{token}\n")
    with serving(tmp_path, "--token-file", str(tmp_path / "token")) as found:
        with pytest.raises(ServerError, match="token") as refused:
            Client(found.url).devices()
        assert refused.value.status == 401
        assert Client(found.url, token).device("h100").id
        assert found.stop() == 0
        assert token not in found.log.read_text()
        said = found.said("request")
        assert [one["status"] for one in said if one["route"] != "/ready"] == [401, 200]
        assert all(one["request_id"] and one["ms"] >= 0 for one in said)


def test_what_was_accepted_is_answered_after_sigterm(tmp_path):
    """Clients that ask all the time lose nothing; a connection that is refused was not accepted."""
    lost: list[str] = []
    counts = {"answered": 0, "refused": 0}
    stopping = threading.Event()

    def ask(seed: int) -> None:
        number = 0
        while True:
            number += 1
            body = network(seed * 100_000 + number)
            try:
                connection = socket.create_connection(("127.0.0.1", found.port), timeout=PATIENCE_S)
            except OSError:
                counts["refused"] += 1
                if stopping.is_set():
                    return
                lost.append("refused while it ran")
                return
            with connection:
                try:
                    connection.sendall(post(body, FILE, f"Content-Length: {len(body)}", "Connection: close"))
                    answer = b""
                    while block := connection.recv(1 << 16):
                        answer += block
                except OSError as error:
                    if not stopping.is_set():
                        lost.append(f"{error}")
                    return  # reset in the queue of the system: the server never had it
                if status(answer) != 200:
                    lost.append(repr(answer[:200]))
                    return
                counts["answered"] += 1

    with serving(tmp_path, workers=2) as found:
        threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        while counts["answered"] < 20:
            time.sleep(0.01)
        stopping.set()
        assert found.stop() == 0
        for thread in threads:
            thread.join(PATIENCE_S)
        assert lost == []
        answered = [one for one in found.said("request") if one["route"] == "/predict"]
        assert len(answered) == counts["answered"] and {one["status"] for one in answered} == {200}


def test_a_killed_worker_is_replaced_and_the_other_answers_meanwhile(tmp_path):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with serving(tmp_path, workers=2, environment={"TMPDIR": str(temporary)}) as found:
        assert list(temporary.glob("perfpass-serve-*"))
        first, second = (one["worker"] for one in found.said("ready"))
        os.kill(first, signal.SIGKILL)
        client = Client(found.url)
        while len(found.said("ready")) < 3:
            assert client.predict(network(time.time_ns() % 1_000_000), "t4")
        third = found.said("ready")[-1]["worker"]
        assert third not in (first, second)
        for _ in range(3):
            with urllib.request.urlopen(f"{found.url}/metrics", timeout=PATIENCE_S) as answer:
                text = answer.read().decode()
        assert 'perfpass_http_requests_total{method="POST",route="/predict",status="200"}' in text
        assert found.stop() == 0 and found.process.returncode == 0
    assert not list(temporary.glob("perfpass-serve-*"))


def test_only_folders_that_nobody_holds_any_more_are_cleared_by_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    killed, new, other, alive = (tmp_path / name for name in ("p-killed", "p-new", "q-killed", "p-alive"))
    for folder in (killed, new, other, alive):
        (folder / "empty").mkdir(parents=True)
    for folder in (killed, other, alive):
        os.utime(folder, (0, 0))
    worker = subprocess.Popen(
        [sys.executable, "-c", f"from perfpass.scratch import hold; hold({str(alive)!r}); print(); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    worker.stdout.readline()
    with held("p-") as own:
        assert own.is_dir() and not killed.exists()
        assert all(folder.exists() for folder in (new, other, alive))
    assert not own.exists()
    worker.kill()
    worker.wait()
    with held("p-"):
        assert not alive.exists()


def test_a_lost_thread_stops_its_worker_within_bounds(tmp_path):
    """`choose` over the whole catalogue takes far longer than a tenth of a second, ten times that, too."""
    with serving(tmp_path, "--question-seconds", "0.1", "--drain-seconds", "0") as found:
        with pytest.raises(ServerError, match="limit"):
            Client(found.url)._json("POST", "/choose", b'{"model": "llama-3.1-70b"}', "application/json", tries=1)
        found.process.wait(PATIENCE_S)
        assert found.said("a thread is lost to a question; the worker stops")


def test_an_address_that_is_taken_is_an_error_of_one_line(capsys):
    from perfpass import cli

    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert cli.main(["serve", "--port", str(taken.getsockname()[1])]) == 2
    assert "cannot be served on" in capsys.readouterr().err
