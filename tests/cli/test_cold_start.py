"""What a cold prediction imports and opens, counted: no clock, so that it holds on a busy machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import perfpass
from perfpass.devices import Device
from perfpass.importers.formats.content import Content
from perfpass.prediction import Prediction

EXAMPLES = Path(__file__).parents[2] / "examples"
# Modules that no prediction from an ONNX file needs.
HEAVY = {
    "asyncio", "concurrent", "ctypes.util", "email", "fastapi", "fractions", "http", "logging", "multiprocessing",
    "numba", "onnx", "pandas", "scipy", "socket", "ssl", "subprocess", "tempfile", "torch", "unittest",
    "urllib.request", "uvicorn", "xml", "zipfile",
    "hashlib",  # loads a library of ciphers
}  # fmt: skip
# What one takes today, and no more: raise it for what a prediction needs, not for what is imported beside it.
MODULES = 91
CALLS = 1850  # of a prediction in a loop, of Python and of C
PROGRAM = """
import dataclasses, json, sys
opened, early = [], []
sys.addaudithook(lambda event, given: opened.append(str(given[0])) if event == "open" else None)
import numpy
before = set(sys.modules)
import perfpass.late  # which has the names of the standard library as they are
make = dataclasses._process_class
dataclasses._process_class = lambda cls, *rest: early.append(cls.__module__) or make(cls, *rest)
from perfpass.cli.entry import main
code = main(sys.argv[1:])
new = sorted(set(sys.modules) - before)
print(json.dumps([code, new, [p for p in opened if "/artefacts/" in p], early]), file=sys.stderr)
"""


def cold(*words: str) -> tuple[list[str], list[str], list[str]]:
    """Modules that a command imports beside NumPy's, artefacts that it opens, modules of classes compiled at once."""
    here = {**os.environ, "PERFPASS_SOCKET": "", "PERFPASS_DEVICES": "", "XDG_CONFIG_HOME": "/nowhere"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, cwd=EXAMPLES, env=here
    )
    assert done.returncode == 0, done.stderr
    code, modules, opened, early = json.loads(done.stderr.splitlines()[-1])
    assert code == 0, done.stderr
    return modules, opened, early


@pytest.fixture(scope="module")
def torch_on_gpu():
    return cold("predict", "resnet50.onnx", "--device", "a100-sxm4-80gb")


def test_a_prediction_imports_nothing_heavy(torch_on_gpu):
    modules = torch_on_gpu[0]
    assert not HEAVY & {part for name in modules for part in (name, name.partition(".")[0])}


def test_a_report_imports_what_its_page_needs_and_no_frames(tmp_path):
    """It was over a second on two quiet cores, half of it pandas, which pyarrow imports of itself, and what other pages
    need: sweeps, serving, arrivals.
    """
    modules = cold("report", "resnet50.onnx", "--device", "a100-sxm4-80gb", "-o", str(tmp_path / "page.html"))[0]
    tops = {name.partition(".")[0] for name in modules}
    assert "pyarrow" in tops and not tops & {"pandas", "scipy", "matplotlib", "torch", "onnx"}
    assert not {"perfpass.deploy.sweep", "perfpass.search", "perfpass.predictors.engine.tails"} & set(modules)


def test_a_prediction_imports_no_more_modules_than_it_did(torch_on_gpu):
    ours = [name for name in torch_on_gpu[0] if name.startswith("perfpass")]
    assert len(ours) <= MODULES, f"{len(ours)} modules of perfpass; at most {MODULES}: {' '.join(ours)}"


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="perfpass.late is the standard decorator there")
def test_a_prediction_compiles_methods_when_they_are_used(torch_on_gpu):
    early = sorted(set(torch_on_gpu[2]))
    assert not early, f"these take `dataclass` from perfpass.late, since a prediction imports them: {' '.join(early)}"


def test_a_prediction_opens_the_artefacts_of_its_own_area_alone(torch_on_gpu):
    areas = {Path(path).parent.name for path in torch_on_gpu[1]}
    assert areas == {"inference", "memory"}
    read = [Path(path).name for path in torch_on_gpu[1] if path.endswith(".trees")]
    assert len(read) == 1


def test_a_prediction_reads_its_own_board_and_one_of_its_vendor():
    """Whether the corpus has another board of the vendor had all of it looked up: a fifteenth of a cold prediction."""
    program = (
        "import sys\nfrom perfpass.cli.entry import main\nfrom perfpass.devices import shipped\nread = []\n"
        "made = shipped.device_of\nshipped.device_of = lambda row, *rest: read.append(row['id']) or made(row, *rest)\n"
        "main(['predict', 'resnet50.onnx', '--device', 'a100-sxm4-80gb'])\nprint(*read, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=EXAMPLES,
        env={**os.environ, "PERFPASS_SOCKET": "", "PERFPASS_DEVICES": "", "XDG_CONFIG_HOME": "/nowhere"},
    )  # fmt: skip
    assert done.stderr.split() == ["a100-sxm4-80gb", "a100-sxm4-40gb"]


def test_a_prediction_for_an_engine_opens_no_trees():
    modules, opened, _ = cold("predict", "resnet50.onnx", "--device", "a100-sxm4-80gb", "--runtime", "tensorrt")
    assert not [path for path in opened if path.endswith((".trees", ".npy"))]
    assert not HEAVY & set(modules)


def test_help_and_version_need_no_numpy():
    program = (
        "import sys\nfrom perfpass.cli.entry import main\n"
        "try: main(['--help'])\nfinally: assert 'numpy' not in sys.modules\n"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True).returncode == 0


def test_to_ask_a_resident_process_imports_next_to_nothing():
    program = (
        "import sys\nbefore = set(sys.modules)\nfrom perfpass.cli.entry import main\n"
        "from perfpass.cli.asking import packed\nmain.__module__, packed((), ())\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    allowed = {"__future__", "perfpass", "perfpass.cli", "perfpass.cli.asking", "perfpass.cli.entry"}
    assert done.stdout and set(done.stdout.split()) <= allowed


def _as_a_command(before: str, *words: str) -> subprocess.CompletedProcess[str]:
    program = f"import sys\n{before}\nfrom perfpass.cli import command\nsys.exit(command())\n"
    here = {**os.environ, "PERFPASS_SOCKET": ""}
    return subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, env=here)


def test_a_command_ends_without_taking_apart_what_it_holds(tmp_path):
    """What is registered for the end of a process is run, and its code is the command's."""
    held = "class Held:\n    def __del__(self): print('taken apart')\nheld = Held()\n"
    held += f"import atexit\natexit.register(lambda: open({str(tmp_path / 'done')!r}, 'w').close())"
    done = _as_a_command(held, "devices", "a100-80gb")
    assert done.returncode == 0 and "A100" in done.stdout and done.stderr == ""
    assert "taken apart" not in done.stdout and (tmp_path / "done").exists()
    assert _as_a_command(held, "devices", "no-such-device").returncode == 9
    assert "taken apart" in _as_a_command(held, "--version").stdout  # no answer of ours: it ends as Python ends it


def test_a_command_waits_for_threads_of_others():
    waits = "threading.main_thread().join(), print('thread')"  # it goes on when the command is over
    thread = f"import threading\nthreading.Thread(target=lambda: ({waits})).start()"
    done = _as_a_command(thread, "devices", "a100-80gb")
    assert done.returncode == 0 and done.stdout.endswith("thread\n")


def _calls(model: Path, device: Device, **how: str) -> tuple[int, Prediction]:
    """Calls of Python and of C that a prediction takes, and the prediction."""
    calls = [0]

    def counting(frame, event, given):
        calls[0] += event in ("call", "c_call")

    sys.setprofile(counting)
    try:
        found = perfpass.predict(model, device, **how)
    finally:
        sys.setprofile(None)
    return calls[0], found


def test_a_prediction_in_a_loop_looks_at_its_file_once_each_time(tmp_path, monkeypatch):
    """Counted, as all here: looks at the file's first bytes, and calls, of which there were 4,299, 3,392 and 2,165."""
    model, device = tmp_path / "model.onnx", perfpass.device("a100-80gb")
    shutil.copy(EXAMPLES / "resnet50.onnx", model)
    for _ in range(70):  # in which methods of classes are compiled
        perfpass.predict(model, device)
    looks, of = [], Content.of.__func__
    monkeypatch.setattr(Content, "of", classmethod(lambda cls, path: looks.append(path) or of(cls, path)))
    calls, before = _calls(model, device)
    assert len(looks) == 1
    assert calls <= CALLS, f"{calls} calls; at most {CALLS}"
    shutil.copy(EXAMPLES / "vit_base_patch16_224.onnx", model)
    after = perfpass.predict(model, device)
    assert after.provenance["graph"]["macs"] != before.provenance["graph"]["macs"]


@pytest.mark.parametrize("board, mode, most", [("a100-sxm4-40gb", "inference", 2050), ("a100-80gb", "training", 5_200)])
def test_a_prediction_asks_nothing_of_which_it_makes_no_use(board, mode, most):
    """Counted likewise, 10,767 and 13,471 before: of a product's boards each was looked up eleven times, and features
    were made for trees that are not heard.
    """
    device = perfpass.device(board)
    for _ in range(70):
        perfpass.predict(EXAMPLES / "resnet50.onnx", device, mode=mode)
    calls, _ = _calls(EXAMPLES / "resnet50.onnx", device, mode=mode)
    assert calls <= most, f"{calls} calls; at most {most}"
