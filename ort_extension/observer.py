"""What ONNX Runtime makes of a model, seen from inside its session.

``observe(options)`` adds an execution provider that takes no node to a session's options. ONNX Runtime shows it the
graph that it is about to place, after constant folding and the basic optimisations, and tells it when runs begin and
end. Outputs, optimisations and placement stay what they are without it (docs/internals/onnxruntime.md).
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.errors import ArgumentError, PerfPassError, missing_package
from perfpass.graph import OpGraph
from perfpass.importers import onnx as onnx_importer

if TYPE_CHECKING:
    import onnxruntime

PROVIDER = "PerfPassExecutionProvider"
_TOKEN_KEY = "perfpass.observation"
_REGISTERED_AS = "perfpass"
_OLDEST = (1, 23)
_LIBRARY = Path(__file__).with_name("libperfpass_ort.so")
_DRAINED_AT_ONCE = 4096  # what the native side keeps

_registering = threading.Lock()


class _State(ctypes.Structure):
    """perfpass_ort_state of provider/perfpass_ort.h."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("walks", "nodes", "walk_ns", "model_bytes", "runs_lost")]

    walks: int
    nodes: int
    walk_ns: int
    model_bytes: int
    runs_lost: int


def native_library() -> Path | None:
    """The provider's shared library; None where the package was built without ONNX Runtime's headers."""
    return _LIBRARY if _LIBRARY.is_file() else None


def why_not() -> str:
    """Why sessions cannot be observed in this process, as a sentence; empty where they can.

    Imports onnxruntime and registers the provider with it, once per process.
    """
    return _devices()[1]


def observe(session_options: onnxruntime.SessionOptions) -> Observation:
    """Prepare ``session_options`` so that the next session created with them is seen.

    Adds the provider's device and a configuration entry with a token. Nothing else changes, and nothing is added where
    that would change what the session does; ``Observation.problem`` then says why. The options may be used again after
    another call: each session is then seen by the observation of the last call before it. A session that is given
    ``providers`` of its own ignores those of its options, ours included.

    Raises ArgumentError for what are no session options.
    """
    add = getattr(session_options, "add_session_config_entry", None)
    if add is None:
        raise ArgumentError(f"onnxruntime.SessionOptions are needed, got {type(session_options).__name__}")
    devices, problem = _devices()
    problem = problem or _why_not_these(session_options)
    if problem:
        return Observation(0, problem)
    token = _native().perfpass_ort_open()
    if token == 0:
        return Observation(0, "there is no memory to observe the session")
    observation = Observation(token)
    try:
        if not is_added(session_options):
            session_options.add_provider_for_devices(devices[:1], {})
        add(_TOKEN_KEY, str(token))
    except Exception as error:
        observation.close()
        return Observation(0, f"onnxruntime did not take the observer: {error}")
    return observation


class Observation:
    """What was seen of a session. Everything may be read at any time, before, during and after the session's life."""

    def __init__(self, token: int, problem: str | None = None):
        self._token = token
        self._problem = problem
        self._graph: tuple[int, OpGraph | None] = (0, None)
        self._close = weakref.finalize(self, _native().perfpass_ort_close, token) if token else None

    @property
    def problem(self) -> str | None:
        """Why there is no graph, as a sentence; None where nothing is wrong (there may be no session yet)."""
        if self._problem is None and self._token:
            size = _native().perfpass_ort_problem(self._token, None, 0)
            if size:
                text = ctypes.create_string_buffer(size + 1)
                _native().perfpass_ort_problem(self._token, text, size + 1)
                return text.value.decode(errors="replace")
        return self._problem

    @property
    def seen(self) -> bool:
        """Whether ONNX Runtime has shown a graph."""
        return self._state().walks > 0

    @property
    def nodes(self) -> int:
        """Nodes of the graph as ONNX Runtime counts them, those of subgraphs included; 0 before the session."""
        return self._state().nodes

    @property
    def walk_us(self) -> float:
        """Microseconds that reading the graph took within the session's creation."""
        return self._state().walk_ns / 1e3

    @property
    def runs_lost(self) -> int:
        """Runs that were overwritten before ``drain_runs`` took them: only the last 4,096 are kept."""
        return self._state().runs_lost

    @property
    def model(self) -> bytes:
        """The graph as a serialized ONNX model without weights; empty before the session."""
        size = self._state().model_bytes
        while size:
            bytes_ = ctypes.create_string_buffer(size)
            length = _native().perfpass_ort_model(self._token, bytes_, size)
            if length <= size:
                return bytes_.raw[:length]
            size = length  # another session was created in between
        return b""

    @property
    def graph(self) -> OpGraph | None:
        """The graph after ONNX Runtime's optimisations; None before the session, or with the reason in ``problem``."""
        walks = self._state().walks
        if walks and walks != self._graph[0]:
            self._problem = None
            try:
                model = self.model
                self._graph = (walks, onnx_importer.read(model) if model else None)
            except PerfPassError as error:
                self._graph = (walks, None)
                self._problem = f"the session's graph cannot be used: {error}"
        return self._graph[1]

    def read(
        self,
        *,
        dims: Mapping[str, int] | None = None,
        input_shapes: Mapping[str, Sequence[int]] | None = None,
        batch: int | None = None,
    ) -> OpGraph:
        """The graph with values for dimensions that the session leaves open; arguments and errors as in
        ``perfpass.importers.onnx.read``. Raises ArgumentError where no session was seen.
        """
        model = self.model
        if not model:
            raise ArgumentError(self.problem or "no session was created with these options yet; create it first")
        return onnx_importer.read(model, dims=dims, input_shapes=input_shapes, batch=batch)

    def drain_runs(self) -> np.ndarray:
        """[n, 2] float64: start (seconds of ``time.monotonic``) and duration in seconds of the runs that ended since
        the last call, oldest first. Runs that fail within the session count as well.
        """
        if not self._token:
            return np.empty((0, 2))
        rows = np.empty((_DRAINED_AT_ONCE, 2))
        pointer = rows.ctypes.data_as(ctypes.POINTER(ctypes.c_double))
        return rows[: _native().perfpass_ort_drain_runs(self._token, pointer, len(rows))].copy()

    def seal(self) -> None:
        """See no further session: those that are created with the same options later go unseen."""
        if self._token:
            _native().perfpass_ort_seal(self._token)

    def close(self) -> None:
        """Forget what was seen and look no further; the session goes on. Happens by itself with the last reference."""
        if self._close is not None:
            self._close()
        self._token = 0

    def _state(self) -> _State:
        state = _State()
        if self._token:
            _native().perfpass_ort_read_state(self._token, ctypes.byref(state))
        return state


def _why_not_these(options: onnxruntime.SessionOptions) -> str:
    """Where a provider in the options would take the place of those that onnxruntime chooses."""
    import onnxruntime

    others = [name for name in onnxruntime.get_available_providers() if name not in _NEUTRAL]
    if others and not options.has_providers():
        return (
            f"this onnxruntime would use {', '.join(others)} by default, and not beside a provider named in the "
            "options; add its device to the options first (add_provider_for_devices)"
        )
    return ""


# Providers whose absence from the list changes nothing: onnxruntime adds the CPU's itself, and Azure's takes only its
# own operators.
_NEUTRAL = ("CPUExecutionProvider", "AzureExecutionProvider", PROVIDER)


def is_added(options: onnxruntime.SessionOptions) -> bool:
    """Whether an earlier call has added our device to these options."""
    if not options.has_providers():
        return False
    try:
        return bool(options.get_session_config_entry(_TOKEN_KEY))
    except Exception:  # onnxruntime's way to say that there is no such entry
        return False


def _devices() -> tuple[list[Any], str]:
    """Our devices, after registering the library with onnxruntime if nobody has; or none, and why."""
    if native_library() is None:
        return [], (
            f"the native provider was not built ({_LIBRARY.name} is missing beside {Path(__file__).name}); "
            "build with onnxruntime's headers (-DPERFPASS_ORT_HEADERS, see docs/internals/onnxruntime.md)"
        )
    try:
        import onnxruntime

        _native()
    except ModuleNotFoundError as error:
        return [], str(missing_package(error, "onnxruntime", "observing onnxruntime (1.23 or later)"))
    except (ImportError, OSError, AttributeError) as error:
        return [], f"onnxruntime or the native provider cannot be loaded: {error}"
    version = onnxruntime.__version__
    if _numbers(version) < _OLDEST or not hasattr(onnxruntime, "register_execution_provider_library"):
        return [], f"onnxruntime {version} has no plug-in execution providers; install onnxruntime 1.23 or later"
    try:
        with _registering:
            devices = _offered()
            if not devices:
                onnxruntime.register_execution_provider_library(_REGISTERED_AS, str(_LIBRARY))
                devices = _offered()
    except Exception as error:  # onnxruntime raises classes of its own, all of them below Exception
        return [], f"onnxruntime {version} refused the native provider: {error}"
    return devices, "" if devices else f"onnxruntime {version} took the native provider but offers no device of it"


def _offered() -> list[Any]:
    import onnxruntime

    return [device for device in onnxruntime.get_ep_devices() if device.ep_name == PROVIDER]


@lru_cache(maxsize=1)
def _native() -> ctypes.CDLL:
    """The same library as onnxruntime loads: the second load of a file is the first one again."""
    library = ctypes.CDLL(str(_LIBRARY))
    size, token = ctypes.c_size_t, ctypes.c_uint64
    for name, result, arguments in (
        ("open", token, ()),
        ("close", None, (token,)),
        ("seal", None, (token,)),
        ("read_state", ctypes.c_int, (token, ctypes.POINTER(_State))),
        ("model", size, (token, ctypes.c_char_p, size)),
        ("drain_runs", size, (token, ctypes.POINTER(ctypes.c_double), size)),
        ("problem", size, (token, ctypes.c_char_p, size)),
    ):
        function = getattr(library, f"perfpass_ort_{name}")
        function.restype = result
        function.argtypes = arguments
    return library


def _numbers(version: str) -> tuple[int, ...]:
    head = version.split("+")[0].split(".")[:2]
    return tuple(int(part) for part in head if part.isdigit())
