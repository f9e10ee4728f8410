"""One door for every file that is read whole: regular files of a bounded size, through links or not."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from perfpass.bounded_file import open_regular, read_file
from perfpass.errors import FileError, LimitError, PerfPassError


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def test_a_regular_file_is_read_whole_through_links_too(tmp_path):
    (tmp_path / "a").write_bytes(b"12345")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert read_file(tmp_path / "b", "a table", 5) == b"12345"
    with pytest.raises(LimitError, match="larger than 4 bytes, the limit of a table"):
        read_file(tmp_path / "b", "a table", 4)


def test_what_is_no_regular_file_is_refused_before_a_byte_is_read(tmp_path, pipe):
    (tmp_path / "link").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
    places = {"/dev/zero": "a device", tmp_path / "link": "a device", pipe: "a pipe", tmp_path: "a folder"}
    for path, kind in {**places, tmp_path / "socket": "a socket"}.items():
        with pytest.raises(FileError, match=f"is {kind}; a table is read from a regular file"):
            read_file(path, "a table", 100)
    with pytest.raises(FileError, match="is a pipe"):
        open_regular(pipe, "a table", os.O_RDWR | os.O_CREAT)


def test_paths_that_the_system_refuses_are_file_errors_of_one_line(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for path in (tmp_path / ("x" * 5000), tmp_path / "none", tmp_path / "loop", "a\0b"):
        with pytest.raises(FileError) as caught:
            read_file(path, "a table", 100)
        assert len(str(caught.value)) < 600 and "cannot be opened as a table" in str(caught.value)


@pytest.mark.parametrize("place", ["/dev/zero", "pipe"])
def test_every_reader_of_a_file_passes_through_the_door(tmp_path, pipe, place):
    """In a process of its own each: what hangs would hang the tests."""
    path = pipe if place == "pipe" else place
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").symlink_to(path)
    code = f"""
import sys
from pathlib import Path
from perfpass.errors import PerfPassError
path, model = Path({str(path)!r}), Path({str(tmp_path / "model" / "config.json")!r})
from perfpass.annotation import file as annotated
from perfpass.cli.compare import _read
from perfpass.deploy.carbon import read_grids as grids
from perfpass.deploy.money import read_prices as prices
from perfpass.devices import device
from perfpass.devices.toml_file import read as devices
from perfpass.features.files import load as features
from perfpass.importers.choose import load as model_of
from perfpass.importers.model_sources import read_configuration
from perfpass.measure.campaign_file import read_campaign as campaign
from perfpass.measure.journal import Journal, read as journal
from perfpass.predictors.calibration.posterior import read as calibration
from perfpass.records.own_device import read as measurements
for read in (grids, prices, devices, features, campaign, journal, Journal, calibration, _read, annotated.read,
             lambda p: measurements(p, device("a100")), lambda p: model_of(model), lambda p: read_configuration(model)):
    try:
        read(path)
    except PerfPassError as error:
        assert "regular file" in str(error), error
    else:
        raise AssertionError(read)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert issubclass(FileError, PerfPassError)
