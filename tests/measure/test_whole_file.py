"""Files stay whole: writers killed at every step they take, lines torn at every byte, links, pipes, two at once."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from killed_writers import killed_before_step
from perfpass.errors import FileError, FormatError
from perfpass.measure.journal import Journal, read
from perfpass.predictors.learned import artefacts
from perfpass.whole_file import append_line, replacing, whole_lines, write_whole

RECORD = {"key": "key", "environment": "e", "status": "ok", "configuration": {"model": "timm:a"}}


def write_file(folder: Path, content: str) -> None:
    write_whole(folder / "file", content)


def write_line(folder: Path, content: str) -> None:
    append_line(folder / "lines", json.dumps({"content": content}))


def write_record(folder: Path, content: str) -> None:
    with Journal(folder / "journal") as journal:
        journal.append("record", {**RECORD, "key": content})


def write_artefact(folder: Path, content: str) -> None:
    artefacts.write(folder / "artefact", {"predictor": content}, {"a.bin": content.encode(), "b.bin": content.encode()})


def read_file(folder: Path) -> list[str]:
    return [(folder / "file").read_text()] if (folder / "file").exists() else []


def read_lines(folder: Path) -> list[str]:
    return [json.loads(line)["content"] for line in whole_lines(folder / "lines")]


def read_records(folder: Path) -> list[str]:
    return [r["key"] for r in read(folder / "journal").records] if (folder / "journal").exists() else []


def read_artefact(folder: Path) -> list[str]:
    if not (folder / "artefact").exists():
        return []
    found = artefacts.Artefact(folder / "artefact")
    assert found.read("a.bin") == found.read("b.bin") == found.manifest["predictor"].encode()
    return [found.manifest["predictor"]]


WRITERS = {
    "file": (write_file, read_file, False),
    "lines": (write_line, read_lines, True),
    "journal": (write_record, read_records, True),
    "artefact": (write_artefact, read_artefact, False),
}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("former", [[], ["old"]], ids=["new", "anew"])
def test_a_writer_killed_at_any_step_leaves_what_was_there_or_what_is_new(tmp_path, name, former):
    write, found, grows = WRITERS[name]
    after = [*former, "new"] if grows else ["new"]
    for number in range(1, 100):
        folder = tmp_path / str(number)
        folder.mkdir()
        for content in former:
            write(folder, content)
        killed = killed_before_step(lambda folder=folder: write(folder, "new"), number)
        left = found(folder)
        assert left in (former, after)
        write(folder, "next")
        assert found(folder) == ([*left, "next"] if grows else ["next"])
        assert [path.name for path in folder.iterdir()] == [name], "left behind"
        if not killed:
            assert left == after and number > 3
            return
    pytest.fail("the writer does not end")


def test_an_artefact_whose_places_change_in_two_steps_comes_back(tmp_path, monkeypatch):
    """Where the system cannot let two names change places, a kill between the steps leaves the former one aside."""
    monkeypatch.setattr(artefacts, "_exchanged", lambda one, other: False)
    for number in range(1, 100):
        folder = tmp_path / str(number)
        folder.mkdir()
        write_artefact(folder, "old")
        killed = killed_before_step(lambda folder=folder: write_artefact(folder, "new"), number)
        assert read_artefact(folder) in (["old"], ["new"], [])
        killed_before_step(lambda folder=folder: write_artefact(folder, "next"), 3)  # before it has written anything
        assert read_artefact(folder) in (["old"], ["new"])
        if not killed:
            return
    pytest.fail("the writer does not end")


def test_a_line_torn_at_any_byte_by_a_kill_or_a_power_cut_is_cut_off(tmp_path):
    """A kill leaves a line's beginning; a power cut may leave its length with pages that the disk never got."""
    write_record(tmp_path, "first")
    before = (tmp_path / "journal").read_bytes()
    write_record(tmp_path, "second")
    line = (tmp_path / "journal").read_bytes()[len(before) :]
    torn = [line[:cut] for cut in range(len(line))]
    torn += [line[:cut] + bytes(len(line) - cut) for cut in range(len(line))]
    torn += [line[:cut] + bytes(len(line) - cut - 1) + b"\n" for cut in range(len(line) - 1)]
    torn += [bytes(cut) + line[cut:] for cut in range(1, len(line))]
    for number, end in enumerate(torn):
        folder = tmp_path / str(number)
        folder.mkdir()
        for path in (folder / "journal", folder / "lines"):
            path.write_bytes(before + end)
        assert read_records(folder) == ["first"] and read(folder / "journal").torn_bytes == len(end)
        assert [json.loads(kept)["key"] for kept in whole_lines(folder / "lines")] == ["first"]
        write_record(folder, "next")
        append_line(folder / "lines", json.dumps({"key": "next"}))
        assert read_records(folder) == ["first", "next"] and read(folder / "journal").torn_bytes == 0
        assert [json.loads(kept)["key"] for kept in whole_lines(folder / "lines")] == ["first", "next"]


@pytest.mark.parametrize("content", [b"notes", b"\x7fELF\0\0", b'{"a": 1}', b'{"a": 1}\nnotes', b"\0\0notes"])
def test_a_file_that_no_campaign_wrote_is_not_cut_off(tmp_path, content):
    path = tmp_path / "notes"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=r"move the file away|no record of a campaign"):
        Journal(path)
    assert path.read_bytes() == content
    if not content.startswith((b"{", b"\0")):
        with pytest.raises(FileError, match="no line of JSON"):
            append_line(path, "{}")
        assert path.read_bytes() == content


def test_a_link_stays_and_its_target_is_replaced_with_the_same_permissions(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    target, link = tmp_path / "elsewhere" / "target", tmp_path / "link"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    write_whole(link, "new")
    assert link.is_symlink() and target.read_text() == "new" and target.stat().st_mode & 0o777 == 0o640
    mask = os.umask(0o027)
    try:
        write_whole(tmp_path / "fresh", "new")
    finally:
        os.umask(mask)
    assert (tmp_path / "fresh").stat().st_mode & 0o777 == 0o640


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    write_whole(pipe, "text")
    reader.join()
    assert got == [b"text"] and pipe.is_fifo() and [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_a_link_in_the_place_of_the_new_file_is_not_followed(tmp_path):
    (tmp_path / "precious").write_text("precious")
    (tmp_path / ".file.partial").symlink_to(tmp_path / "precious")
    with pytest.raises(FileError, match="cannot be written"):
        write_whole(tmp_path / "file", "new")
    assert (tmp_path / "precious").read_text() == "precious"


def test_writers_of_one_file_take_turns(tmp_path):
    path = tmp_path / "file"
    began = threading.Event()

    def second():
        began.set()
        write_whole(path, "second")

    with replacing(path) as file:
        file.write(b"fir")
        other = threading.Thread(target=second)
        other.start()
        began.wait()
        assert not path.exists()
        file.write(b"st")
    other.join()
    assert path.read_text() == "second" and [found.name for found in tmp_path.iterdir()] == ["file"]


def test_an_error_while_writing_leaves_what_was_there(tmp_path):
    path = tmp_path / "file"
    write_whole(path, "old")
    with pytest.raises(KeyError), replacing(path) as file:
        file.write(b"new")
        raise KeyError("of the program")
    assert path.read_text() == "old" and [found.name for found in tmp_path.iterdir()] == ["file"]
    for place in (tmp_path / "absent" / "file", tmp_path, tmp_path / "file" / "below", "a\0b", "x" * 5000):
        with pytest.raises(FileError, match="cannot be written"):
            write_whole(place, "new")
