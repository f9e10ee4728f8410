"""The workers of a Ray cluster: one per GPU, or one per node for a campaign on CPUs.

perfpass must be installed on every node. Records come back to the process that runs the campaign, which alone writes
them.
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from perfpass.errors import ArgumentError, DeviceError, PerfPassError, needs
from perfpass.measure.configuration import Configuration, Protocol
from perfpass.measure.local import LocalPool
from perfpass.measure.pool import Answer, Died, Measured, TimedOut

_START_TIMEOUT_S = 600.0
_RESTARTS = 3  # of one worker, before its place in the cluster counts as lost
_REJOIN_TIMEOUT_S = 120.0


class RayPool:
    """Connects to ``address`` (``auto``, ``ray://HOST:PORT``, or ``local`` for a cluster inside this machine).

    ``devices``: what the campaign asks for, one of cpu or cuda. ``workers``: how many on CPUs (default one per node),
    sharing each node's cores evenly. A worker that dies is restarted by Ray up to three times and leaves the pool
    after that.

    Raises UnsupportedError without Ray, ArgumentError for devices that a cluster cannot share out, DeviceError where
    the cluster has no such device or its workers do not start.
    """

    def __init__(self, address: str, devices: list[str], workers: int | None = None) -> None:
        with needs("ray", "--ray"):
            import ray
        if len(devices) != 1 or devices[0] not in ("cpu", "cuda"):
            raise ArgumentError(
                f"a cluster measures on cpu or on cuda (Ray hands out the GPUs), not on {', '.join(devices)}"
            )
        self._ray: Any = ray
        self._device = devices[0]
        self._owned = not ray.is_initialized()
        if self._owned:
            local = {"include_dashboard": False, "num_cpus": None} if address == "local" else {"address": address}
            try:
                ray.init(log_to_driver=False, logging_level=logging.ERROR, **local)
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise DeviceError(f"no Ray cluster at {address}: {error}") from error
        try:
            self._actors = self._start(workers)
            self._facts = {name: self._ask(actor.facts.remote(), name) for name, actor in self._actors.items()}
        except BaseException:
            self.close()
            raise
        self._running: dict[Any, str] = {}

    def _start(self, workers: int | None) -> dict[str, Any]:
        resources = self._ray.cluster_resources()
        if self._device == "cuda":
            count, share = int(resources.get("GPU", 0)), {"num_gpus": 1, "num_cpus": 0}
        else:
            nodes = [node for node in self._ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) > 0]
            count = workers or len(nodes)
            share = {"num_cpus": max(1, int(resources.get("CPU", 0) / max(count, 1)))}
        if workers is not None:
            count = min(count, workers)
        if count < 1:
            raise DeviceError(f"the Ray cluster has no {self._device}: its resources are {dict(resources)}")
        remote = self._ray.remote(max_restarts=_RESTARTS, max_task_retries=0, scheduling_strategy="SPREAD", **share)(
            Worker
        )
        return {f"{self._device}-{index}": remote.remote(self._device) for index in range(count)}

    def _ask(self, reference: Any, name: str, timeout_s: float = _START_TIMEOUT_S) -> Any:
        try:
            answer = self._ray.get(reference, timeout=timeout_s)
        except self._ray.exceptions.GetTimeoutError as error:
            raise DeviceError(f"worker {name} of the cluster did not answer in {timeout_s:.0f} s") from error
        except self._ray.exceptions.RayError as error:
            raise DeviceError(f"worker {name} of the cluster: {' '.join(str(error).split())[-300:]}") from error
        if "error" in answer:
            raise DeviceError(f"worker {name} of the cluster: {answer['error']}")
        return answer["result"]

    def facts(self) -> dict[str, dict[str, Any]]:
        """Facts by worker, of those that are still there."""
        return dict(self._facts)

    def describe(self, name: str) -> dict[str, Any]:
        """The facts of a worker with its measured capability."""
        described: dict[str, Any] = self._ask(self._actors[name].describe.remote(), name)
        return described

    def submit(self, name: str, configuration: Configuration, protocol: Protocol) -> None:
        """Starts a measurement on a worker."""
        self._running[self._actors[name].measure.remote(configuration.to_dict(), asdict(protocol))] = name

    def collect(self) -> list[Answer]:
        """Waits for at least one answer; a worker that died joins again or leaves the pool."""
        if not self._running:
            return []
        ready, _ = self._ray.wait(list(self._running), num_returns=1)
        answers: list[Answer] = []
        for reference in ready:
            name = self._running.pop(reference)
            try:
                answers.append(_answer(name, self._ray.get(reference)))
            except self._ray.exceptions.RayError as error:
                answers.append(Died(name, f"its Ray worker ended ({type(error).__name__})"))
                self._rejoin(name)
        return answers

    def _rejoin(self, name: str) -> None:
        deadline = time.monotonic() + _REJOIN_TIMEOUT_S
        while time.monotonic() < deadline:
            try:
                self._facts[name] = self._ask(self._actors[name].facts.remote(), name, deadline - time.monotonic())
                return
            except DeviceError:
                time.sleep(1.0)
        del self._facts[name], self._actors[name]

    def close(self) -> None:
        """Ends the workers, and the local cluster if this pool made it."""
        for actor in getattr(self, "_actors", {}).values():
            self._ray.kill(actor)
        if self._owned:
            self._ray.shutdown()


class Worker:
    """The actor: it keeps a measuring process of its own, as a campaign on one machine does."""

    def __init__(self, device: str) -> None:
        self._log = Path(tempfile.gettempdir()) / "perfpass-ray-workers.log"
        self._device = device
        self._pool: LocalPool | None = None

    def _open(self) -> LocalPool:
        if self._pool is None:
            self._pool = LocalPool([self._device], self._log)
        return self._pool

    def facts(self) -> dict[str, Any]:
        """``result`` or ``error``: an exception would lose its message on the way through Ray."""
        try:
            return {"result": self._open().facts()[self._device]}
        except PerfPassError as error:
            return {"error": str(error)}

    def pid(self) -> int:
        """The process of this actor."""
        return os.getpid()

    def describe(self) -> dict[str, Any]:
        """As `facts`, with the measured capability."""
        try:
            return {"result": self._open().describe(self._device)}
        except PerfPassError as error:
            return {"error": str(error)}

    def measure(self, configuration: dict[str, Any], protocol: dict[str, Any]) -> dict[str, Any]:
        """The answer of the measuring process, as plain data; ``error`` where it cannot work at all."""
        try:
            return self._measured(Configuration.from_dict(configuration), Protocol.from_dict(protocol))
        except PerfPassError as error:
            return {"error": str(error)}

    def _measured(self, configuration: Configuration, protocol: Protocol) -> dict[str, Any]:
        pool = self._open()
        pool.submit(self._device, configuration, protocol)
        while True:
            for answer in pool.collect():
                if isinstance(answer, Measured):
                    return {"measured": answer.record}
                return {"died": answer.reason} if isinstance(answer, Died) else {"timed_out": True}


def _answer(name: str, content: dict[str, Any]) -> Answer:
    if "measured" in content:
        return Measured(name, content["measured"])
    if "error" in content:
        raise DeviceError(f"worker {name} of the cluster: {content['error']}")
    return Died(name, content["died"]) if "died" in content else TimedOut(name)
