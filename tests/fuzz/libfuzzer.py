"""The readers of the compiled core under libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer, with clang.

A target of `cpp_kernels/fuzz` is built with the coverage of its source, fuzzed from the seeds and kept inputs of the
target of the same kind, and reports the lines of the core that the inputs reach. ``CXX`` names the
compiler; else the newest clang++ that is found is taken, with the llvm-profdata and llvm-cov beside it.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import time
import warnings
from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from pathlib import Path

import hostile_files

from . import corpus
from .engines import seconds_of
from .target import ROOT

PREFIX = "core-"
# The target of the core, and the folders of its source that read such files.
SOURCES = {
    f"{PREFIX}onnx": ("fuzz_onnx", ("onnx",)),
    f"{PREFIX}flatbuffers": ("fuzz_flatbuffer", ("flatbuffer", "tflite", "ort", "executorch")),
    f"{PREFIX}stablehlo": ("fuzz_stablehlo", ("stablehlo",)),
    f"{PREFIX}coreml": ("fuzz_message", ("support",)),
    f"{PREFIX}openvino": ("fuzz_openvino", ("openvino",)),
}
BUILT_WITH = ("-DPERFPASS_SANITIZE=address,undefined", "-DPERFPASS_FUZZ=ON", "-DPERFPASS_LIBFUZZER=ON")
_BUILD = ROOT / "build" / "libfuzzer"
_LIMITS = {"timeout": 20, "rss_limit_mb": 2048, "malloc_limit_mb": 1024, "max_len": 1 << 16, "use_value_profile": 1}
_FOUND = ("crash-*", "timeout-*", "oom-*", "leak-*")
_FLAGS = "-O1 -g1 -fprofile-instr-generate -fcoverage-mapping"


def compiler() -> str | None:
    """The clang++ that is taken; None without one."""
    if given := os.environ.get("CXX"):
        return shutil.which(given)
    names = ["clang++", *(f"clang++-{release}" for release in range(30, 13, -1))]
    return next((found for name in names if (found := shutil.which(name))), None)


def build() -> None:
    """Builds the targets. Raises subprocess.CalledProcessError, and RuntimeError without a compiler."""
    if (found := compiler()) is None:
        raise RuntimeError("no clang++ is found; apt-get install clang-19 libclang-rt-19-dev llvm-19, or set CXX")
    settings = [*BUILT_WITH, "-DPERFPASS_PYTHON=OFF", "-DCMAKE_BUILD_TYPE=None", f"-DCMAKE_CXX_COMPILER={found}"]
    configure = ["cmake", "-S", ROOT, "-B", _BUILD, "-G", "Ninja", *settings, f"-DCMAKE_CXX_FLAGS={_FLAGS}"]
    subprocess.run(configure, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", _BUILD], check=True)


def fuzz(name: str, seconds: float, place: Path, seed: int) -> int:
    """Fuzzes one target for so many seconds of the processor and prints how it went. How many problems it found."""
    inputs, starts = place / "inputs", place / "starts"
    for folder in (inputs, starts):
        folder.mkdir(parents=True, exist_ok=True)
    _write(starts, _starts(name))
    (place / "words").write_text("".join(f'"{word}"\n' for word in _words(_starts(name))))
    for old in _problems(place):
        old.unlink()
    settings = {
        **_LIMITS,
        "seed": seed,
        "artifact_prefix": f"{place}/",
        "dict": place / "words",
        "print_final_stats": 1,
    }
    program, runs, spent = _BUILD / SOURCES[name][0], 0, 0.0
    log = place / "log"
    log.write_bytes(b"")
    # A problem ends the process; the next one goes on with another seed.
    while spent < seconds and len(_problems(place)) < 20:
        arguments = [program, inputs, starts, *(f"-{key}={value}" for key, value in settings.items())]
        before = log.stat().st_size
        with log.open("ab") as out, subprocess.Popen(arguments, stdout=out, stderr=out, cwd=place) as run:
            spent += _until(run, seconds - spent)
        said = log.read_bytes()[before:].decode(errors="replace")
        done = re.findall(r"number_of_executed_units: (\d+)", said) or re.findall(r"^#(\d+)", said, re.M)
        runs += int(done[-1]) if done else 0
        settings["seed"] += 1
    found = _problems(place)
    print(f"{name:24} {runs:8} inputs {spent:6.0f} s: {len(list(inputs.iterdir()))} reach more, {len(found)} problems")
    for path in found:
        print(f"    {path.relative_to(ROOT)} ({path.stat().st_size} bytes)", flush=True)
    return len(found)


def report(names: Iterable[str], place: Path) -> None:
    """Prints lines of the core that the seeds, the kept inputs and those of the last campaign reach, by file."""
    for name in names:
        program, folders = SOURCES[name]
        inputs, profile = place / name / "inputs", place / name / "profile"
        _write(place / name / "starts", _starts(name))
        environment = {**os.environ, "LLVM_PROFILE_FILE": f"{profile}.raw"}
        run = [_BUILD / program, inputs, place / name / "starts", "-runs=0", *_as_arguments(_LIMITS)]
        subprocess.run(run, check=True, env=environment, capture_output=True)
        merge = [_beside_compiler("llvm-profdata"), "merge", "-sparse", f"{profile}.raw", "-o", profile]
        subprocess.run(merge, check=True)
        export = [_beside_compiler("llvm-cov"), "export", "-summary-only", f"-instr-profile={profile}"]
        out = subprocess.run([*export, _BUILD / program], check=True, capture_output=True, text=True).stdout
        files = json.loads(out)["data"][0]["files"]
        for folder in folders:
            _print(folder, [one for one in files if f"/cpp_kernels/src/{folder}/" in one["filename"]])


def _print(folder: str, files: list[dict[str, object]]) -> None:
    total = covered = 0
    for one in sorted(files, key=lambda one: str(one["filename"])):
        lines = one["summary"]["lines"]  # type: ignore[index]
        total, covered = total + lines["count"], covered + lines["covered"]
        name = str(one["filename"]).partition("/cpp_kernels/src/")[2]
        print(f"{name:42} {lines['count']:5} {lines['percent']:5.1f} %")
    print(f"{folder:42} {total:5} {100 * covered / max(total, 1):5.1f} %  together", flush=True)


def _starts(name: str) -> list[bytes]:
    from .targets import TARGETS

    kind = name.removeprefix(PREFIX)
    found = [*TARGETS[kind].seeds(), *(one.data for one in corpus.read(kind))]
    if kind == "onnx":
        found += [one.build() for one in hostile_files.FILES] + _every_operator()
    return [data for data in found if len(data) <= 1 << 18]


@cache
def _every_operator() -> list[bytes]:
    """The smallest of ONNX's own tests of each set of operators."""
    from onnx.backend.test.case import node

    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        models = [case.model for case in node.collect_testcases(None) if case.model is not None]
    found: dict[frozenset[str], bytes] = {}
    for model in models:
        key, data = frozenset(one.op_type for one in model.graph.node), model.SerializeToString()
        if key not in found or len(data) < len(found[key]):
            found[key] = data
    return list(found.values())


def _words(contents: Iterable[bytes]) -> list[str]:
    """Names of operators and attributes in the seeds: libFuzzer puts them in and changes one for another."""
    found = {word.decode() for data in contents for word in re.findall(rb"[A-Za-z][A-Za-z_.]{3,30}", data)}
    return sorted(found)[:1000]


def _write(folder: Path, contents: Iterable[bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for data in contents:
        (folder / sha256(data).hexdigest()[:16]).write_bytes(data)


def _problems(place: Path) -> list[Path]:
    return sorted(path for pattern in _FOUND for path in place.glob(pattern))


def _as_arguments(settings: dict[str, int]) -> list[str]:
    return [f"-{key}={value}" for key, value in settings.items()]


def _until(run: subprocess.Popen[bytes], seconds: float) -> float:
    """Ends a process that has had so many seconds of the processor; how many it had."""
    spent = 0.0
    while run.poll() is None:
        spent = seconds_of(run.pid)
        if spent > seconds:
            run.send_signal(signal.SIGINT)
            run.wait()
        time.sleep(0.5)
    return spent


def _beside_compiler(tool: str) -> str:
    """The tool of the compiler's own release: profiles of another one are not read."""
    found = compiler() or "clang++"
    return str(Path(found).resolve().parent / tool)
