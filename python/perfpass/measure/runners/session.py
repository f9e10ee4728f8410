"""One runner per runtime: it makes a model ready and gives a lap, one timed iteration.

`open_session` chooses. A session has ``lap() -> float`` (one iteration, in milliseconds), ``facts`` (what it ran),
``memory()`` (what its allocator knows) and ``close()``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from perfpass.errors import needs
from perfpass.measure.configuration import Configuration
from perfpass.measure.models import Built
from perfpass.measure.runners.prepared import Prepared


class Session(Protocol):
    """A model ready to run one iteration after another."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """What it ran: parameters, sizes, threads; see docs/reference/records.md."""

    def lap(self) -> float:
        """Runs one iteration, waits for it, and returns its latency in milliseconds."""

    def memory(self) -> dict[str, int]:
        """Peaks since `reset_memory`, in bytes, as far as the runtime's allocator tells."""

    def reset_memory(self) -> None:
        """Starts a new peak."""

    def kernels(self) -> list[dict[str, Any]]:
        """The time of every kernel, where what is ``prepared`` tells them apart."""

    def close(self) -> None:
        """Releases what the session holds, the model excepted."""


def has_relay() -> bool:
    """Whether the TVM that is installed, if any, is one with Relay (0.19), as opposed to Relax alone."""
    from importlib.util import find_spec

    return find_spec("tvm") is None or find_spec("tvm.relay") is not None


def prepare(configuration: Configuration, built: Built, folder: str) -> Prepared:
    """Exports or compiles ``built`` into ``folder``, for `open_session` in another process.

    Raises UnsupportedError where that cannot be done here.
    """
    if configuration.runtime in ("onnxruntime", "openvino"):
        from perfpass.measure.runners import exported

        return exported.prepare(configuration, built, folder)
    if has_relay():
        from perfpass.measure.runners import tvm

        return tvm.prepare(configuration, built, folder)
    from perfpass.measure.runners import relax

    return relax.prepare(configuration, built, folder)


def open_session(configuration: Configuration, built: Built | None, prepared: Prepared | None = None) -> Session:
    """The session of a configuration; ``built`` is None for models that are files, and for what is ``prepared``.

    Raises UnsupportedError where the runtime, or the model in it, cannot run here.
    """
    if configuration.runtime == "onnxruntime":
        with needs("onnxruntime", "runtime onnxruntime"):
            from perfpass.measure.runners import onnxruntime

        return onnxruntime.opened(configuration, built, prepared)
    if configuration.runtime == "openvino":
        with needs("openvino", "runtime openvino"):
            from perfpass.measure.runners import openvino

        return openvino.opened(configuration, built, prepared)
    if configuration.runtime == "litert":
        with needs("litert", "runtime litert"):
            from perfpass.measure.runners import litert

        return litert.opened(configuration)
    if configuration.runtime == "tvm" and has_relay():
        from perfpass.measure.runners import tvm

        return tvm.opened(configuration, built, prepared)
    if configuration.runtime == "tvm":
        from perfpass.measure.runners import relax

        return relax.opened(configuration, built, prepared)
    assert built is not None
    from perfpass.measure.runners.torch import TorchSession

    return TorchSession(configuration, built)
