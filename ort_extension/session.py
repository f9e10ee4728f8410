"""`InferenceSession`: onnxruntime's own, which says what it costs before it is created, and as it runs.

    session = ort_extension.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
    print(session.perfpass)

docs/internals/onnxruntime.md, "The session".
"""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import Mapping, Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from ort_extension import observer
from ort_extension.placement import CPU, asked_providers
from ort_extension.report import Report
from ort_extension.request import Request
from ort_extension.run_records import RecordsWarning, SessionRecords
from ort_extension.runs import Meter, Runs
from perfpass.errors import PerfPassError, needs

with needs("onnxruntime", "ort_extension.InferenceSession"):
    import onnxruntime

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.prediction import Prediction

_Base: Any = onnxruntime.InferenceSession


class InferenceSession(_Base):  # type: ignore[misc]
    """A drop-in for ``onnxruntime.InferenceSession``: the same arguments, and keyword-only ones of its own.

    ``device``: what is predicted for, a name of the catalogue ("a100-80gb"), of a MIG slice ("a100-80gb:2g.20gb") or a
    `perfpass.Device`; None: the NVIDIA GPU (and MIG slice) that the providers will use, as NVML tells, else this CPU.
    ``batch`` and ``dims`` (``{"sequence": 128}``) give sizes to open dimensions. ``precision``: None for that of the
    file. ``memory_budget_bytes``: what the session may use; None for the device's memory. ``latency_target_ms`` and
    ``energy_target_j``: what a run may take. ``confidence``: with which probability (above 0.5, below 1) all of these
    are to be kept together; the policy then goes by `Verdict.decision` (at 0.9 where only joules are limited). Without,
    it goes by the bounds: over the budget or the target is what is so even by its lower bound. ``policy``: what to do
    when the predicted peak is over the budget, or a target is missed:

    - "warn" (the default): a `PredictionWarning`, before anything is loaded;
    - "raise": `DoesNotFitError` or `MissesTargetError`; the session is not created and no weight is read. A model that
      cannot be predicted is created, with a warning;
    - "require": as "raise", and a model that cannot be predicted is a `NotPredictedError`;
    - "ignore": nothing, and nothing is predicted before somebody asks;
    - a callable: called with the `Verdict` unless that is clear; what it raises passes, what it returns does not count.

    ``drift``: True warns (`DriftWarning`) once the median of the latest runs leaves the predicted interval, a factor
    once it is off by more than that; False never. ``records``: a file that gets the measured runs as records for
    `perfpass calibrate --records`, at the session's end or by `write_records`. ``reader``: "auto" also reads the graph
    as onnxruntime optimised it, with the native provider, where that is built; "file" (or PERFPASS_ORT_READER=file)
    never.

    `perfpass` is the `Report`, `prediction` the prediction (None where there is none; `problem` says why), `runs` and
    `drift` what was measured. The prediction is in ``get_modelmeta().custom_metadata_map`` too (`perfpass.annotation`).

    Raises ArgumentError, DeviceError and FileError for arguments of perfpass that cannot be; whatever else is wrong
    with a prediction leaves the session as onnxruntime makes it. Errors of the model are onnxruntime's.
    """

    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike[str],
        sess_options: Any = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[dict[Any, Any]] | None = None,
        *,
        device: str | Device | None = None,
        batch: int | None = None,
        dims: Mapping[str, int] | None = None,
        precision: str | None = None,
        memory_budget_bytes: int | None = None,
        latency_target_ms: float | None = None,
        energy_target_j: float | None = None,
        confidence: float | None = None,
        policy: Any = "warn",
        drift: bool | float = True,
        records: str | os.PathLike[str] | None = None,
        reader: str = "auto",
        **kwargs: Any,
    ) -> None:
        self._meter: Meter | None = None
        self._annotated: Any = None
        request = Request.of(
            path_or_bytes,
            device=device,
            batch=batch,
            dims=dims,
            precision=precision,
            memory_budget_bytes=memory_budget_bytes,
            latency_target_ms=latency_target_ms,
            energy_target_j=energy_target_j,
            confidence=confidence,
            policy=policy,
            drift=drift,
            records=records,
            reader=reader,
        )
        asked = asked_providers(providers, provider_options, onnxruntime.get_available_providers())
        report = self._report = Report(request, asked)
        report.decide()
        named = providers if isinstance(providers, Sequence) else ()
        plain = all(entry in (CPU, (CPU, {})) for entry in named) and not any(provider_options or ())
        options, observation, problem = _observed(sess_options, request.reader, plain)
        try:
            if observation is None:
                super().__init__(path_or_bytes, sess_options, providers, provider_options, **kwargs)
            else:
                super().__init__(path_or_bytes, options, **kwargs)
                observation.seal()  # the options are the caller's, who may use them again
                self._sess_options_initial = sess_options
        except BaseException:
            if observation is not None:
                observation.close()
            raise
        try:
            report.created(self, observation, problem)
        except BaseException:
            report.close()
            raise
        self._drift = drift
        self._start(drift)

    def _start(self, drift: bool | float) -> None:
        """Begins to time runs."""
        report = self._report
        names = [value.name for value in self.get_inputs()]
        meter = self._meter = Meter(names, report.fixed, report.expected, drift, report.drain)
        records = self._records = SessionRecords(
            report, meter, self.get_session_options().graph_optimization_level.name
        )
        self._finish = weakref.finalize(self, _finish, report, records)

    @property
    def perfpass(self) -> Report:
        """What is predicted of this session, by which reader, for which device; its verdict. ``print`` it."""
        return self._report

    @property
    def prediction(self) -> Prediction | None:
        """What one run costs; None where there is no prediction (see `problem`)."""
        return self._report.prediction

    @property
    def problem(self) -> str | None:
        """Why there is no prediction, in a sentence; None where there is one."""
        return self._report.problem

    @property
    def runs(self) -> tuple[Runs, ...]:
        """What was measured, by input shape, the most frequent one first."""
        return self._meter.runs() if self._meter is not None else ()

    @property
    def drift(self) -> Runs | None:
        """The runs of the most frequent input shape beside their prediction; None before any run."""
        return next(iter(self.runs), None)

    def write_records(self) -> int:
        """Appends what was measured since the last time to the records file; how many records that was.

        A shape needs 11 runs after its warm-up. Happens by itself when the session ends, and at the end of the
        interpreter. Raises FileError (a full disk, say: the file then ends where it did before), FormatError.
        """
        return self._records.write()

    # What onnxruntime's session does, timed

    def run(self, output_names: Any, input_feed: Any, run_options: Any = None) -> Any:
        """As onnxruntime's."""
        start = perf_counter_ns()
        found = _Base.run(self, output_names, input_feed, run_options)
        if self._meter is not None:
            self._meter.lap(start, perf_counter_ns(), input_feed)
        return found

    def run_with_ort_values(self, output_names: Any, input_dict_ort_values: Any, run_options: Any = None) -> Any:
        """As onnxruntime's."""
        start = perf_counter_ns()
        found = _Base.run_with_ort_values(self, output_names, input_dict_ort_values, run_options)
        if self._meter is not None:
            self._meter.lap(start, perf_counter_ns(), input_dict_ort_values)
        return found

    def run_with_iobinding(self, iobinding: Any, run_options: Any = None) -> None:
        """As onnxruntime's."""
        start = perf_counter_ns()
        _Base.run_with_iobinding(self, iobinding, run_options)
        if self._meter is not None:
            self._meter.lap(start, perf_counter_ns(), None)

    def run_with_ortvaluevector(self, *arguments: Any, **keywords: Any) -> None:
        """As onnxruntime's."""
        start = perf_counter_ns()
        _Base.run_with_ortvaluevector(self, *arguments, **keywords)
        if self._meter is not None:
            self._meter.lap(start, perf_counter_ns(), None)

    # What perfpass adds to it, or keeps out of sight

    def get_modelmeta(self) -> Any:
        """As onnxruntime's, with the prediction in ``custom_metadata_map``."""
        found = super().get_modelmeta()
        if self._meter is not None and self._annotated is not found:
            self._annotated = found
            found.custom_metadata_map = self._report.metadata(dict(found.custom_metadata_map))
        return found

    def get_providers(self) -> Sequence[str]:
        """As onnxruntime's, without perfpass's observer, which runs nothing."""
        return [name for name in super().get_providers() if name != observer.PROVIDER]

    def get_provider_options(self) -> Any:
        """As onnxruntime's, without perfpass's observer."""
        return {name: own for name, own in super().get_provider_options().items() if name != observer.PROVIDER}

    def set_providers(self, providers: Any = None, provider_options: Any = None) -> None:
        """As onnxruntime's. Runs are timed anew, without the native provider; the prediction stays."""
        if self._meter is not None:
            self._finish()
        super().set_providers(providers, provider_options)
        if self._meter is not None:
            available = onnxruntime.get_available_providers()
            self._report.moved(self.get_providers(), asked_providers(providers, provider_options, available))
            self._start(self._drift)


def _observed(options: Any, reader: str, plain: bool) -> tuple[Any, observer.Observation | None, str]:
    """Session options with the native observer in them, its observation, and why there is none."""
    if reader == "file":
        return None, None, "reader='file' was asked for"
    if not plain:
        return None, None, "beside providers that are named to the session, onnxruntime takes none from its options"
    try:
        if options is not None and options.has_providers() and not observer.is_added(options):
            return None, None, "the session options choose providers of their own, which the observer would displace"
        prepared = onnxruntime.SessionOptions() if options is None else options
        observation = observer.observe(prepared)
    except Exception as error:  # what is no options object is for onnxruntime to refuse
        return None, None, f"the options cannot be prepared: {error}"
    return (prepared, observation, "") if observation.problem is None else (None, None, observation.problem)


def _finish(report: Report, records: SessionRecords) -> None:
    """What happens when a session ends."""
    try:
        records.write()
    except PerfPassError as error:
        warnings.warn(f"the runs of a session are not recorded: {error}", RecordsWarning, stacklevel=2)
    finally:
        report.close()
