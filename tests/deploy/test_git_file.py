"""``git:REV:PATH``: a file as it was at a commit, read from the object store alone."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from perfpass.deploy.difference import git_file
from perfpass.deploy.difference.git_file import NotThere, at_commit
from perfpass.errors import ArgumentError, FileError, FormatError, LimitError, UnsupportedError

if shutil.which("git") is None:
    pytest.skip("needs git", allow_module_level=True)

PERSON = {f"GIT_{who}_{what}": "tests@example.invalid" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def git(folder, *arguments):
    environment = {**os.environ, **PERSON, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    done = subprocess.run(["git", *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(folder, files):
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "change", "--no-verify")


@pytest.fixture
def repository(tmp_path):
    git(tmp_path, "init", "-q", "-b", "main")
    commit(tmp_path, {"models/net.onnx": b"first", "a file.json": b"{}"})
    commit(tmp_path, {"models/net.onnx": b"second"})
    return tmp_path


def content(model, folder):
    with at_commit(model, folder) as path:
        name, text = Path(path).name, Path(path).read_bytes()
    assert not Path(path).exists()
    return name, text


def test_a_file_is_what_it_was_at_the_commit(repository):
    assert content("git:HEAD~1:models/net.onnx", repository) == ("net.onnx", b"first")
    assert content("git:main:models/net.onnx", repository) == ("net.onnx", b"second")
    assert content("git:HEAD:a file.json", repository) == ("a file.json", b"{}")
    assert content("git:HEAD:./net.onnx", repository / "models") == ("net.onnx", b"second")


def test_an_empty_revision_is_the_index(repository):
    (repository / "models/net.onnx").write_bytes(b"third")
    git(repository, "add", "-A")
    (repository / "models/net.onnx").write_bytes(b"fourth")
    assert content("git::models/net.onnx", repository) == ("net.onnx", b"third")


@pytest.mark.parametrize(
    ("model", "kind", "said"),
    [
        ("git:HEAD", ArgumentError, "is not git:REV:PATH"),
        ("git:HEAD:", ArgumentError, "is not git:REV:PATH"),
        ("git:--help:x", ArgumentError, "is not git:REV:PATH"),
        ("git:HEAD:a\0b", ArgumentError, "is not git:REV:PATH"),
        ("git:HEAD~7:models/net.onnx", FileError, "knows no commit 'HEAD~7'; fetch it first"),
        ("git:HEAD:none.onnx", NotThere, "no file 'none.onnx' at 'HEAD'"),
        ("git:HEAD:../../../etc/passwd", NotThere, "no file"),
        ("git:HEAD:models", FormatError, "is tree, not a file"),
    ],
)
def test_what_is_not_there_is_said(repository, model, kind, said):
    with pytest.raises(kind, match=said), at_commit(model, repository):
        pass


def test_outside_a_repository_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(FileError, match="is in no git repository"), at_commit("git:HEAD:x.onnx", tmp_path):
        pass


def test_without_git_it_says_so(repository, monkeypatch):
    monkeypatch.setenv("PATH", str(repository / "nothing"))
    with pytest.raises(UnsupportedError, match="needs the program git"), at_commit("git:HEAD:x", repository):
        pass


def test_a_file_over_the_limit_is_refused_before_it_is_read(repository, monkeypatch):
    monkeypatch.setattr(git_file, "LARGEST_BYTES", 5)
    with pytest.raises(LimitError, match="6 bytes, more than the limit of 5"):
        content("git:HEAD:models/net.onnx", repository)


def test_nothing_of_the_repository_runs(repository):
    marker, script = repository / "ran", repository / ".git" / "evil"
    script.write_text(f"#!/bin/sh\ntouch {marker}\ncat\n")
    script.chmod(0o755)
    for hook in ("post-checkout", "pre-commit", "reference-transaction", "post-index-change"):
        (repository / ".git" / "hooks").mkdir(exist_ok=True)
        shutil.copy(script, repository / ".git" / "hooks" / hook)
    for name in ("core.fsmonitor", "filter.evil.smudge", "filter.evil.process", "diff.evil.textconv", "core.pager"):
        git(repository, "config", name, str(script))
    (repository / ".git" / "info").mkdir(exist_ok=True)
    (repository / ".git" / "info" / "attributes").write_text("*.onnx filter=evil diff=evil\n")
    assert content("git:HEAD~1:models/net.onnx", repository) == ("net.onnx", b"first")
    assert not marker.exists()


def test_a_pointer_of_git_lfs_is_followed_into_its_own_store(repository):
    oid = hashlib.sha256(b"large").hexdigest()
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize 5\n".encode()
    commit(repository, {"large.onnx": pointer})
    with pytest.raises(FileError, match="in Git LFS and not here; run `git lfs fetch`"):
        content("git:HEAD:large.onnx", repository)
    stored = repository / ".git" / "lfs" / "objects" / oid[:2] / oid[2:4] / oid
    stored.parent.mkdir(parents=True)
    stored.write_bytes(b"large")
    assert content("git:HEAD:large.onnx", repository) == ("large.onnx", b"large")
