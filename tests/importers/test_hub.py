"""Repositories of a hub, against a small one on this machine: what is fetched, what is not, and what is said."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from importers.test_gguf import KEYS, packed, tensors
from perfpass.errors import ArgumentError, FileError
from perfpass.importers import hub
from perfpass.importers.model_argument import understood

LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "intermediate_size": 1376,
    "vocab_size": 32000,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
}
REPOSITORIES = {
    "lab/small-model": json.dumps(LLAMA).encode(),
    "lab/with-code": json.dumps({**LLAMA, "auto_map": {"AutoModel": "modeling.Evil"}}).encode(),
    "lab/large-config": b"{" + b" " * (17 * 2**20) + b"}",
    "lab/damaged": b'{"model_type": ',
}


def weights(*offsets: int) -> bytes:
    """A safetensors file of a tensor at ``offsets``; its data is a megabyte that nobody asks for."""
    header = {"model.embed_tokens.weight": {"dtype": "BF16", "shape": [32000, 512], "data_offsets": list(offsets)}}
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(2**20)


FILES = {
    "lab/small-model/model.safetensors": weights(0, 2 * 32000 * 512),
    "lab/lying-header/model.safetensors": weights(0, 7),
}
# A file of another type, in two parts, and what is no model; the weights are 64 MiB that nobody asks for.
LISTED = tensors()
PARTS = {"split.count": 2}
FILES |= {
    "lab/packed/tiny-Q4_K_M.gguf": packed() + bytes(2**26),
    "lab/packed/tiny-Q8_0-00001-of-00002.gguf": packed(KEYS | PARTS, LISTED[:5]) + bytes(2**26),
    "lab/packed/tiny-Q8_0-00002-of-00002.gguf": packed(PARTS, LISTED[5:]) + bytes(2**26),
    "lab/packed/mmproj-Q4_K_M.gguf": b"no model",
    "lab/damaged-packed/only.gguf": b"GGUF" + bytes(40),
}
PACKED = {name.rpartition("/")[0] for name in FILES if name.endswith(".gguf")}
REPOSITORIES["lab/lying-header"] = REPOSITORIES["lab/small-model"]


class Hub(BaseHTTPRequestHandler):
    """The hub's paths /OWNER/NAME/resolve/main/FILE, by ranges too, and /api/models/OWNER/NAME."""

    asked: ClassVar[list[str]] = []
    sent: ClassVar[int] = 0  # bytes of weights' files

    def _answer(self, with_body: bool) -> None:
        path = self.path.partition("?")[0].strip("/")
        Hub.asked.append(f"{self.command} /{path}")
        if path.startswith("api/models/"):
            name = path.removeprefix("api/models/")
            siblings = [{"rfilename": file.removeprefix(f"{name}/")} for file in FILES if file.startswith(f"{name}/")]
            counted = {"parameters": {"F32": 1}, "total": 90_000_000}
            body = json.dumps({"id": name, "safetensors": counted, "siblings": siblings}).encode()
            self._send(200, body if name in {*REPOSITORIES, *PACKED, "lab/pipeline"} else b"{}", with_body)
            return
        name, _, file = path.partition("/resolve/main/")
        if name == "lab/gated":
            self._send(403, b"", with_body, {"X-Error-Code": "GatedRepo"})
        elif name == "lab/pipeline" or (name in PACKED and file == "config.json"):
            self._send(404, b"", with_body, {"X-Error-Code": "EntryNotFound"})
        elif f"{name}/{file}" in FILES:
            asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "bytes=0-0")
            body = FILES[f"{name}/{file}"]
            part = body[int(asked[1]) : int(asked[2]) + 1] if self.headers.get("Range") else b""
            Hub.sent += len(part) if with_body else 0
            extra = {"ETag": '"4567"', "X-Repo-Commit": "a" * 40}
            self._send(206 if part else 200, part or body, with_body, extra)
        elif name in REPOSITORIES and file != "config.json":
            self._send(404, b"", with_body, {"X-Error-Code": "EntryNotFound"})
        elif name not in REPOSITORIES or file != "config.json":
            self._send(404, b"", with_body, {"X-Error-Code": "RepoNotFound"})
        else:
            extra = {"ETag": '"0123"', "X-Repo-Commit": "a" * 40}
            self._send(200, REPOSITORIES[name], with_body, extra)

    def _send(self, status: int, body: bytes, with_body: bool, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def do_HEAD(self) -> None:
        self._answer(False)

    def do_GET(self) -> None:
        self._answer(True)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def ask(tmp_path):
    """Runs lines in an interpreter of its own, whose hub is the one here; gives what it prints."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Hub.asked.clear()
    Hub.sent = 0

    def run(lines: str, **environment: str) -> str:
        settings = {
            **os.environ,
            "HF_HUB_OFFLINE": "0",
            "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
            "HF_HOME": str(tmp_path / "home"),
            "HF_HUB_DISABLE_XET": "1",
            "PYTHONPATH": os.pathsep.join(sys.path),
            **environment,
        }
        found = subprocess.run(
            [sys.executable, "-c", lines], env=settings, capture_output=True, text=True, timeout=120, check=False
        )
        assert found.returncode == 0, found.stderr
        return found.stdout

    yield run
    server.shutdown()


ASK = """
from perfpass.llm import language_model
from perfpass.errors import PerfPassError
for name in {names!r}:
    try:
        model = language_model(name)
        print(name, model.parameters, model.notes)
    except PerfPassError as error:
        print(name, type(error).__name__, error)
"""


def test_a_configuration_is_fetched_once_and_nothing_else_is(ask):
    # 4 layers of 4 x 512^2 + 3 x 512 x 1376, two norms each, the last norm, two tables of 32,000 x 512.
    counted = 4 * (4 * 512**2 + 3 * 512 * 1376 + 1024) + 512 + 2 * 32000 * 512
    out = ask(ASK.format(names=["lab/small-model"]))
    assert f"lab/small-model {counted}" in out
    assert "have 90,000,000 parameters by their headers" in out
    of_it = [line for line in Hub.asked if "lab/" in line]
    assert not [line for line in of_it if "config.json" not in line and "/api/models/" not in line]
    before = len(of_it)
    again = ask(ASK.format(names=["lab/small-model"]), HF_HUB_OFFLINE="1")
    assert f"lab/small-model {counted}" in again
    assert len([line for line in Hub.asked if "lab/" in line]) == before, "offline, the cache alone is read"


def test_headers_of_weights_are_fetched_and_no_more_of_them(ask):
    out = ask(
        """
import perfpass
from perfpass.errors import PerfPassError
print(perfpass.fit("lab/small-model", "t4").answers[0].parts["weights"])
try:
    perfpass.fit("lab/lying-header", "t4")
except PerfPassError as error:
    print(type(error).__name__, error)
"""
    )
    first, second = out.strip().split("\n")
    assert int(first) == 2 * 32000 * 512
    assert second.startswith("FormatError lab/lying-header/model.safetensors: tensor 'model.embed_tokens.weight'")
    assert 0 < Hub.sent < 2**19


def test_a_repository_of_gguf_files_is_fitted_by_the_header_of_one(ask, tmp_path):
    import perfpass

    (tmp_path / "tiny.gguf").write_bytes(packed())
    alone = perfpass.fit(tmp_path / "tiny.gguf", "t4").answers[0].parts["weights"]
    out = ask(
        """
import perfpass
from perfpass.errors import PerfPassError
for name in ("lab/packed", "lab/packed:Q8_0", "lab/packed:q5_k_m", "lab/damaged-packed"):
    try:
        found = perfpass.fit(name, "t4")
        print(found.runtime, found.weights_basis, found.answers[0].parts["weights"])
    except PerfPassError as error:
        print(type(error).__name__, error)
"""
    )
    usual, parts, missing, damaged = out.strip().split("\n")
    assert usual == parts and usual.startswith("llama.cpp ") and int(usual.rpartition(" ")[2]) == alone
    assert missing.startswith("FileError lab/packed:q5_k_m") and "tiny-Q8_0-00001-of-00002.gguf" in missing
    assert damaged.startswith(("FormatError", "UnsupportedError"))
    assert 0 < Hub.sent < 2**23


def test_what_the_hub_cannot_give_is_said_in_a_sentence(ask):
    names = ["lab/none", "lab/gated", "lab/pipeline", "lab/large-config", "lab/damaged"]
    lines = ask(ASK.format(names=names)).splitlines()
    for name, line in zip(names, lines, strict=True):
        assert line.startswith(name)
    none, gated, pipeline, large, damaged = lines
    assert "FileError" in none and "the hub has no lab/none" in none
    assert "licence" in gated
    assert "has no config.json" in pipeline
    assert "LimitError" in large and not [line for line in Hub.asked if line.startswith("GET /lab/large")]
    assert "FormatError" in damaged


def test_code_of_a_repository_is_never_run(ask):
    out = ask(
        "import perfpass\nfrom perfpass.errors import PerfPassError\n"
        "from perfpass.llm import language_model\nprint(language_model('lab/with-code').parameters)\n"
        "try:\n    perfpass.load('lab/with-code')\nexcept PerfPassError as error:\n    print(error)\n"
    )
    assert "never downloaded or run" in out
    assert not [line for line in Hub.asked if "modeling" in line]


def test_no_answer_is_an_error_and_no_wait(ask):
    out = ask(ASK.format(names=["lab/small-model"]), HF_ENDPOINT="http://127.0.0.1:9")
    assert "FileError" in out and "the hub gave no answer" in out


def test_offline_a_name_that_is_not_in_the_cache_is_refused_with_the_reason():
    with pytest.raises(FileError, match="HF_HUB_OFFLINE keeps it from asking"):
        understood("lab/never-fetched")


@pytest.mark.parametrize("name", ["a", "a/b/c", "../up/x", "a/../b", "a b/c", "/etc/passwd", "a//b", "a/b\n"])
def test_what_is_no_name_of_a_repository_is_never_asked_for(name):
    assert not hub.may_be_repository(name)
    with pytest.raises(ArgumentError):
        hub.configuration(name)


def test_a_pipeline_of_diffusers_is_read_from_the_cache_alone(ask, tmp_path):
    folder = tmp_path / "home" / "hub" / "models--lab--picture"
    snapshot = folder / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("a" * 40)
    (snapshot / "model_index.json").write_text('{"_class_name": "FluxPipeline", "_diffusers_version": "0.42.1"}')
    lines = "from perfpass.importers.model_argument import understood; print(understood('lab/picture'))"
    found = ask(lines, HF_HUB_CACHE=str(tmp_path / "home" / "hub"))
    assert "format='diffusers'" in found and "repository='lab/picture'" in found and str(snapshot) in found
    assert not Hub.asked
