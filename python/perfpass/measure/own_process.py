"""Measures a configuration in an interpreter of its own, so that resident memory is what a user's process would show.

Two halves. `measured` runs in the campaign's worker: it exports or compiles the model where the runtime wants a file,
waits for its turn on the core, and starts `python -m perfpass.measure.own_process`. That process imports the measuring
code, then what runs the model, opens it, runs it, and reads its resident memory at every stage.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from perfpass import errors
from perfpass.bounded_file import open_regular
from perfpass.measure import host
from perfpass.measure.configuration import Configuration, Protocol
from perfpass.measure.models import Built, build
from perfpass.measure.runners.prepared import Prepared
from perfpass.measure.runners.session import open_session, prepare
from perfpass.measure.timing import measure, significant

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TVM_NUM_THREADS")
# What is imported beside torch to build a model of a source.
_DEFINITIONS = {"timm": "timm", "torchvision": "torchvision", "hf": "transformers"}

_EXPORTED = ("onnxruntime", "openvino")  # models by name are written as ONNX files first
# What a runtime is imported as; the rest of it comes as it opens a model.
_IMPORTED = {"litert": "ai_edge_litert.interpreter"}

Reference = Callable[[], dict[str, float] | None]


def measured(
    configuration: Configuration, protocol: Protocol, built: Callable[[], Built], reference: Reference
) -> dict[str, Any]:
    """The measured part of a record; ``reference`` is called on the same core before and after.

    Raises what the configuration does, as the session in this process would.
    """
    with tempfile.TemporaryDirectory(prefix="perfpass-model-") as folder:
        prepared: dict[str, Any] = {"prepared": None, "preparing": None}
        if configuration.runtime == "tvm":  # it compiles for long: others may measure meanwhile
            prepared = _prepared(configuration, built, folder)
        with _turn_on(protocol.core):
            scheduling = _first_in_turn() if protocol.core is not None else "as it was"
            if configuration.runtime in _EXPORTED and not configuration.is_file:
                prepared = _prepared(configuration, built, folder)
            load = os.getloadavg()[0]
            before = reference()
            found = _run(configuration, protocol, prepared["prepared"])
            found["reference_ms"] = {"before": before, "after": reference()}
    found["host"] |= {"load_average": round(load, 2), "core": protocol.core, "scheduling": scheduling}
    if prepared["preparing"] is not None:
        found["preparing"] = prepared["preparing"]
    return found


def _prepared(configuration: Configuration, built: Callable[[], Built], folder: str) -> dict[str, Any]:
    started = time.monotonic()
    prepared = prepare(configuration, built(), folder)
    told = {"elapsed_s": round(time.monotonic() - started, 3), "peak_rss_bytes": host.peak_rss_bytes()}
    return {"prepared": prepared, "preparing": told}


def _run(configuration: Configuration, protocol: Protocol, prepared: Prepared | None) -> dict[str, Any]:
    """Asks a fresh interpreter, and raises what it says went wrong."""
    request = {
        "configuration": configuration.to_dict(),
        "protocol": asdict(protocol),
        "prepared": None if prepared is None else asdict(prepared),
    }
    environment = dict(os.environ)
    if configuration.threads is not None:
        environment |= dict.fromkeys(_THREADS, str(configuration.threads))
    reading, writing = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "perfpass.measure.own_process", str(writing)],
            stdin=subprocess.PIPE,
            stdout=sys.stderr,
            pass_fds=(writing,),
            env=environment,
            preexec_fn=_die_with_parent,
        )
    finally:
        os.close(writing)
    with os.fdopen(reading, "rb") as answers:
        process.communicate(json.dumps(request).encode())
        answer = answers.read()
    if process.returncode != 0 or not answer:
        if process.returncode == -signal.SIGKILL:
            raise MemoryError("the process was killed by SIGKILL; the system kills so when memory runs out")
        raise RuntimeError(f"the process that measures ended with {process.returncode}")
    content: dict[str, Any] = json.loads(answer)
    if "error" in content:
        kind: type[Exception] = getattr(errors, content["error"], RuntimeError)
        raise (MemoryError if content["error"] == "MemoryError" else kind)(content["message"])
    return content


@contextlib.contextmanager
def _turn_on(core: int | None) -> Iterator[None]:
    """Pins this process to ``core`` when no other campaign measures there; a lock among perfpass's own processes."""
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    path = Path(tempfile.gettempdir()) / f"perfpass-core-{core}.lock"
    lock = open_regular(path, "the lock of a core", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            os.sched_setaffinity(0, {core})
        except OSError as error:
            raise errors.UnsupportedError(f"core {core}: this process may not run there ({error.strerror})") from error
        yield
    finally:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        os.sched_setaffinity(0, before)
        os.close(lock)


def _first_in_turn() -> str:
    """Runs this process and its children before those of others, where the system lets us (root); how, in words.

    A nice value counts only among processes of one session or control group, so it is the real-time class.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except OSError:
        return "as it was"
    return "fifo"


def _die_with_parent() -> None:
    """The measuring process does not outlive the worker (prctl(2), PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """What the fresh interpreter answers: stages, memory and latency of one configuration."""
    stages: dict[str, dict[str, int]] = {"interpreter": host.resident_bytes()}
    configuration = Configuration.from_dict(request["configuration"])
    protocol = Protocol.from_dict(request["protocol"])
    prepared = None if request["prepared"] is None else Prepared(**request["prepared"])
    _import(configuration, stages)
    imported = host.resident_bytes()
    host.reset_peak_rss()
    session = open_session(configuration, build(configuration, "cpu") if _builds(configuration) else None, prepared)
    stages["loaded"] = host.resident_bytes()
    opening_peak = host.peak_rss_bytes()
    host.reset_peak_rss()
    probe = host.HostProbe(protocol.core)
    states = [probe.state()]
    timing = measure(session.lap, protocol, on_start=lambda: states.append(probe.state()))
    during = probe.between(states[-1], probe.state())
    during.pop("cpu_energy_j", None)
    stages["ran"] = host.resident_bytes()
    record = timing.to_dict()
    record["throughput_per_s"] = significant(configuration.batch / record["latency_ms"]["median"] * 1e3)
    peak = host.peak_rss_bytes()
    record["memory"] = session.memory() | {
        "host_peak_rss_bytes": peak,
        "host_opening_peak_rss_bytes": opening_peak,
        "host_baseline_rss_bytes": imported["rss"],
        "host_whole_peak_rss_bytes": max(peak, opening_peak),
    }
    record["stages"] = stages
    if prepared is not None and prepared.kernels:
        record["kernels"] = [k | {"computes": prepared.kernels.get(k["hash"], "")} for k in session.kernels()]
    return record | {
        "energy": {"method": "none", "reason": "not read for a process of its own"},
        "host": during | {"involuntary_switches": resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw},
        "flags": timing.flags(protocol) + probe.flags(during),
        "ran": {name: value for name, value in session.facts.items() if value is not None},
    }


def _builds(configuration: Configuration) -> bool:
    return configuration.runtime == "torch"


def _import(configuration: Configuration, stages: dict[str, dict[str, int]]) -> None:
    """Imports what runs the model, and notes the resident size after the runtime and after the model's definitions."""
    if configuration.runtime == "torch":
        import torch

        from perfpass.importers import torchvision_schemas

        torch.set_num_threads(configuration.threads or len(os.sched_getaffinity(0)))
        stages["runtime"] = host.resident_bytes()
        if configuration.source in _DEFINITIONS:
            torchvision_schemas.define()
            importlib.import_module(_DEFINITIONS[configuration.source])
            stages["definitions"] = host.resident_bytes()
        return
    with contextlib.suppress(ImportError):  # the session says what is missing
        importlib.import_module(_IMPORTED.get(configuration.runtime, configuration.runtime))
        if configuration.runtime == "tvm":
            importlib.import_module("tvm.contrib.graph_executor")
    stages["runtime"] = host.resident_bytes()


def _main() -> None:
    request = json.loads(sys.stdin.buffer.read())
    try:
        content = answer(request)
    except Exception as error:
        from perfpass.importers.model_sources import is_out_of_memory

        name = "MemoryError" if is_out_of_memory(error) else type(error).__name__
        content = {"error": name, "message": f"{'' if hasattr(errors, name) else name + ': '}{error}"[:2000]}
    with os.fdopen(int(sys.argv[1]), "wb") as out:
        out.write(json.dumps(content).encode())
        out.flush()
    os._exit(0)  # nothing to tidy: freeing a large model takes longer than measuring a small one


if __name__ == "__main__":
    _main()
