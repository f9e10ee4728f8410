"""What several workers ask for is made once a session."""

from __future__ import annotations

import threading

import pytest

from made_once import made_once


def test_who_asks_while_it_is_made_takes_what_was_made(tmp_path):
    inside, begun, made, found = threading.Event(), threading.Event(), [], []

    def make():
        inside.set()
        assert begun.wait(60)
        made.append("once")
        return {"rows": 3}

    def ask(first):
        if not first:
            assert inside.wait(60)
            begun.set()
        found.append(made_once("rows", make, tmp_path))

    both = [threading.Thread(target=ask, args=(first,)) for first in (True, False)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert made == ["once"]
    assert found == [{"rows": 3}, {"rows": 3}]


def test_a_worker_that_is_ended_while_it_writes_leaves_nothing_to_read(tmp_path, monkeypatch):
    def ended(path, data):
        path.open("wb").write(data[:3])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(tmp_path), "write_bytes", ended)
        with pytest.raises(KeyboardInterrupt):
            made_once("rows", lambda: {"rows": 3}, tmp_path)
    assert made_once("rows", lambda: {"rows": 4}, tmp_path) == {"rows": 4}


def test_what_could_not_be_made_is_tried_again(tmp_path):
    with pytest.raises(ZeroDivisionError):
        made_once("ratio", lambda: 1 / 0, tmp_path)
    assert made_once("ratio", lambda: 0.5, tmp_path) == 0.5
    assert made_once("ratio", lambda: 1 / 0, tmp_path) == 0.5
