"""What perfpass says of one session: predictions, their device, the reader of the graph, the verdict."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ort_extension import placement as places
from ort_extension.forecast import Forecaster, Shapes, leading, sentence, shapes_of, why_not
from ort_extension.placement import Placement
from ort_extension.request import Request
from ort_extension.verdict import Verdict, after, apply, judge
from perfpass.annotation.metadata import Annotation, from_metadata
from perfpass.decision import Decision, Limits, Place
from perfpass.errors import ArgumentError, DeviceError, PerfPassError, UnsupportedError
from perfpass.measure.configuration import Configuration
from perfpass.prediction import Interval, Prediction
from perfpass.predictors.workload import precision_of
from perfpass.text import digits, printable

if TYPE_CHECKING:
    from ort_extension.observer import Observation
    from perfpass.devices import Device
    from perfpass.graph import OpGraph

FILE_READER = "file reader"
NATIVE_READER = "onnxruntime provider"


class Report:
    """The predictions of one session. What `decide` does not need is predicted when it is first asked for."""

    def __init__(self, request: Request, asked: Sequence[tuple[str, dict[str, Any]]]) -> None:
        self._request = request
        self._asked = asked
        self._lock = threading.RLock()
        self._made: dict[str, Any] = {}
        # Of the session, once it exists.
        self._observation: Observation | None = None
        self._native_problem = "the session does not exist yet"
        self._providers: tuple[str, ...] = ()
        self._threads = 0
        self._fixed: Shapes | None = None
        self._metadata: dict[str, str] = {}

    def _once(self, name: str, make: Callable[[], Any]) -> Any:
        with self._lock:
            if name not in self._made:
                self._made[name] = make()
            return self._made[name]

    # Before the session exists

    def decide(self) -> None:
        """Predicts what the policy needs and does what it says; with the policy "ignore" nothing.

        Raises what `verdict.apply` raises, and ArgumentError and DeviceError for arguments that the model or the device
        contradicts.
        """
        if self._request.policy == "ignore":
            return
        verdict = self.verdict
        error = self._read[1]
        mine = self._request.batch or self._request.dims or self._request.precision
        if isinstance(error, (ArgumentError, DeviceError)) and mine and self._request.model is not None:
            raise error
        apply(self._request.policy, verdict, self._forecaster)

    @property
    def _placement(self) -> Placement | None:
        return self._once("placement", self._place)[0]

    def _place(self) -> tuple[Placement | None, str | None]:
        try:
            return places.place(self._request.device, self._asked), None
        except Exception as error:  # perfpass must never be why a session cannot be had
            return None, why_not(error)

    @property
    def _forecaster(self) -> Forecaster | None:
        request, placement = self._request, self._placement
        if request.model is None or placement is None:
            return None
        return Forecaster(
            request.model, placement.device, placement.runtime, request.batch, request.dims, request.precision
        )

    @property
    def _read(self) -> tuple[OpGraph | None, Exception | None]:
        """The graph of the file with the dimensions that were given, or why there is none."""

        def read() -> tuple[OpGraph | None, Exception | None]:
            forecaster = self._forecaster
            try:
                return (None, None) if forecaster is None else (forecaster.graph(), None)
            except Exception as error:
                return None, error

        return self._once("graph", read)

    @property
    def _peak(self) -> tuple[Interval | None, bool]:
        """The predicted peak memory, and whether it is only that of the least sizes."""

        def predict() -> tuple[Interval | None, bool]:
            forecaster, (graph, _) = self._forecaster, self._read
            try:
                if forecaster is None or graph is not None:
                    return (None, False) if forecaster is None or graph is None else (forecaster.peak(graph), False)
                least = forecaster.least_peak()
                return least, least is not None
            except Exception:  # `before` fails as well, and its problem is told
                return None, False

        return self._once("peak", predict)

    @property
    def verdict(self) -> Verdict:
        """Whether the session fits its budget and meets its target, by the prediction before it was created."""

        def judged() -> Verdict:
            memory, lower_bound = self._peak
            request = self._request
            targets = request.by_confidence or request.latency_target_ms is not None
            timed = targets or memory is None or lower_bound
            before, problem = self._before if timed else (None, None)
            latency = before.latency_ms if before is not None else None
            decision = self._decision(before, None if lower_bound else memory)
            return self._judge(memory, latency, decision, lower_bound=lower_bound, problem=problem)

        return self._once("verdict", judged)

    def _judge(
        self, memory: Interval | None, latency: Interval | None, decision: Decision | None, **how: Any
    ) -> Verdict:
        request = self._request
        how |= {"decision": decision, "by_confidence": request.by_confidence}
        return judge(self._placement, memory, latency, request.memory_budget_bytes, request.latency_target_ms, **how)

    def _decision(self, found: Prediction | None, memory: Interval | None) -> Decision | None:
        """Of a prediction, or of the memory alone, beside what a program can have of the device's."""
        placement = self._placement
        if placement is None or (memory is None and found is None):
            return None
        if found is not None and found.decision is not None:
            made = found.decision
        elif memory is not None:
            device = placement.device
            made = Decision(self._request.limits, Place(device.id, device.mig_profile, 1, memory, device.usable_bytes))
        else:
            return None
        return replace(made, place=replace(made.place, available_bytes=placement.memory_bytes))

    @property
    def _before(self) -> tuple[Prediction | None, str | None]:
        def predict() -> tuple[Prediction | None, str | None]:
            forecaster, (graph, error) = self._forecaster, self._read
            if forecaster is None:
                return None, self._once("placement", self._place)[1] or "the model is neither a path nor bytes"
            if graph is None:
                return None, forecaster.why_not(error) if error is not None else "the model was not read"
            try:
                return forecaster.predict(graph, limits=self._request.limits), None
            except Exception as failure:
                return None, why_not(failure)

        return self._once("before", predict)

    # The session

    def created(self, session: Any, observation: Any, native_problem: str) -> None:
        """Takes over what the session says of itself; warns where the policy wants a prediction and there is none."""
        self._observation, self._native_problem = observation, native_problem
        self._providers = tuple(session.get_providers())
        self._threads = int(session.get_session_options().intra_op_num_threads)
        self._metadata = dict(session.get_modelmeta().custom_metadata_map)
        inputs = session.get_inputs()
        shapes = [tuple(v.shape) if v.type.startswith("tensor(") else (None,) for v in inputs]
        if all(isinstance(size, int) and size > 0 for shape in shapes for size in shape):
            self._fixed = tuple((v.name, shape) for v, shape in zip(inputs, shapes, strict=True))
        if self._request.policy != "ignore" and "unknown" in (self.verdict.fits, self.verdict.meets_target):
            self._decide_late()

    def _decide_late(self) -> None:
        """The policy again, where only the session itself shows what it costs. Raises as `decide`."""
        found = self.prediction
        if found is None:
            after(self._request.policy, self.verdict)
            return
        late = self._judge(found.peak_memory_bytes, found.latency_ms, self._decision(found, None))
        with self._lock:
            self._made["verdict"] = late
        apply(self._request.policy, late, self._forecaster)

    def moved(self, providers: Sequence[str], asked: Sequence[tuple[str, dict[str, Any]]]) -> None:
        """The session was created anew with other providers, without the observer."""
        self._providers, self._asked = tuple(providers), asked
        self._native_problem = "the session's providers were changed"

    @property
    def fixed(self) -> Shapes | None:
        """The shapes of the session's inputs where none is open."""
        return self._fixed

    @property
    def observation(self) -> Observation | None:
        """What the native provider saw of the session; None without it."""
        return self._observation

    @property
    def drain(self) -> Callable[[], Any] | None:
        """Gives the times that the native provider took since the last call; None without it."""
        return None if self._observation is None else self._observation.drain_runs

    def close(self) -> None:
        """Gives the native observation back; predictions stay."""
        observation, self._observation = self._observation, None
        if observation is not None:
            observation.close()

    # What there is to say

    @property
    def before(self) -> Prediction | None:
        """The prediction from the file; once the session exists, dimensions that its options close are closed here."""
        found, _ = self._before
        if found is None and self._fixed is not None:
            limits = self._request.limits
            closed = self._once("closed", lambda: self._from_file(self._fixed or (), limits))
            found = closed if isinstance(closed, Prediction) else None
        return found

    @property
    def optimised(self) -> Prediction | None:
        """The prediction from the graph as onnxruntime optimised it; None without the native provider."""
        found = self._once("optimised", self._predict_optimised) if self._observation is not None else None
        return found if isinstance(found, Prediction) else None

    def _predict_optimised(self) -> Prediction | str:
        forecaster, observation = self._forecaster, self._observation
        if forecaster is None or observation is None:
            return "there is no device to predict for, or no session"
        try:
            graph, _ = self._read
            if graph is None:
                if self._fixed is None:
                    return self._before[1] or "not read"
                return self._from_session(self._fixed, self._request.limits)
            seen = observation.read(input_shapes=dict(shapes_of(graph)))
            return forecaster.predict(seen, limits=self._request.limits)
        except Exception as error:
            return why_not(error)

    @property
    def prediction(self) -> Prediction | None:
        """The one to go by: of the optimised graph where it is known, else from the file. None: see `problem`."""
        return self.optimised or self.before

    @property
    def problem(self) -> str | None:
        """Why there is no prediction, in a sentence; None where there is one."""
        return None if self.prediction is not None else self._before[1]

    @property
    def reader(self) -> str | None:
        """Which of FILE_READER and NATIVE_READER read the graph behind `prediction`; None without one."""
        if self.optimised is not None:
            return NATIVE_READER
        return None if self.before is None else FILE_READER

    @property
    def why_not_native(self) -> str | None:
        """Why the graph was not read inside onnxruntime, in a sentence; None where it was."""
        if self.optimised is not None:
            return None
        if self._observation is None:
            return self._native_problem
        return str(self._once("optimised", self._predict_optimised))

    @property
    def device(self) -> Device | None:
        """What is predicted for; None where no device could be found."""
        placement = self._placement
        return None if placement is None else placement.device

    @property
    def detected(self) -> str:
        """Where the device comes from, in a sentence."""
        placement, problem = self._once("placement", self._place)
        return placement.how if placement is not None else f"no device: {problem}"

    def expected(self, shapes: Shapes) -> Interval | str:
        """The predicted latency of a run with these input shapes, or why it cannot be compared with runs here."""
        prediction, placement = self.prediction, self._placement
        if placement is None:
            return self.detected
        if prediction is None or self._read[0] is None or shapes != shapes_of(self._read[0]):
            found = self._from_session(shapes) if self._observation is not None else self._from_file(shapes)
            if not isinstance(found, Prediction):
                return f"no prediction for these shapes: {found}"
            prediction = found
        calibrated = "calibration" in prediction.provenance
        other = places.unlike(placement, self._providers, self.gpu or 0, self._threads, calibrated)
        return prediction.latency_ms if other is None else other

    def _from_file(self, shapes: Shapes, limits: Limits | None = None) -> Prediction | str:
        forecaster = self._forecaster
        try:
            return self.detected if forecaster is None else forecaster.at_shapes(shapes, limits)
        except Exception as error:
            return why_not(error)

    def _from_session(self, shapes: Shapes, limits: Limits | None = None) -> Prediction | str:
        forecaster = self._forecaster
        try:
            if forecaster is None or self._observation is None:
                return self.detected
            return forecaster.predict(self._observation.read(input_shapes=dict(shapes)), leading(shapes), limits)
        except Exception as error:
            return why_not(error)

    @property
    def gpu(self) -> int | None:
        """CUDA's number of the GPU that the session runs on; None for the CPU."""
        name, options = self._asked[0] if self._asked else (places.CPU, {})
        return places.gpu_index(options) if name in places.GPU_RUNTIMES and name in self._providers else None

    def configuration(self, shapes: Shapes) -> Configuration:
        """What runs with these input shapes are to `perfpass measure`. Raises PerfPassError where they are nothing."""
        forecaster = self._forecaster
        runs_on = next((name for name in self._providers if name in places.GPU_RUNTIMES or name == places.CPU), None)
        if forecaster is None or runs_on is None or isinstance(forecaster.model, bytes):
            raise UnsupportedError(f"{self.detected}; runs on {', '.join(self._providers)} are not recorded")
        gpu = self.gpu
        return Configuration(
            model=f"onnx:{os.path.abspath(forecaster.model)}",
            batch=leading(shapes) or 1,
            precision=forecaster.precision or precision_of(forecaster.graph_at(shapes)),
            runtime=places.GPU_RUNTIMES.get(runs_on, "onnxruntime"),
            device="cpu" if gpu is None else f"cuda:{gpu}" if gpu else "cuda",
            threads=self._threads or None if gpu is None else None,
            input_shapes=None if forecaster.declared() is not None else shapes,
        )

    def ran(self) -> dict[str, Any]:
        """How the session runs, for records."""
        by = NATIVE_READER if self._observation is not None and self._fixed is not None else "clock around run"
        return {"threads": self._threads or None, "providers": list(self._providers), "timed_by": by}

    @property
    def records(self) -> Path | None:
        """Where the runs are recorded."""
        return self._request.records

    # Metadata

    def metadata(self, existing: dict[str, str]) -> dict[str, str]:
        """``existing`` metadata of the model and this session's prediction beside it (`perfpass.annotation`)."""
        prediction = self.prediction
        if prediction is None:
            return existing
        try:
            annotation = from_metadata(existing)
        except PerfPassError:  # damaged: ours takes its place
            annotation = Annotation()
        return {**existing, **annotation.with_prediction(prediction).to_metadata()}

    def annotated(self, existing: dict[str, str]) -> str | None:
        """How the prediction that the file already carries for this device compares; None where it carries none."""
        prediction = self.prediction
        try:
            stored = from_metadata(existing).predictions
        except PerfPassError as error:
            return str(error)
        if prediction is None or not stored:
            return None
        device = str(prediction.workload["device"])
        if device not in stored:
            return f"the file is annotated for {', '.join(sorted(stored))}, not for {device}"
        there = stored[device]
        apart = [
            f"{k} {there['workload'].get(k)}" for k, v in prediction.workload.items() if there["workload"].get(k) != v
        ]
        if apart:
            return f"the file is annotated for {device} with another workload: {printable(', '.join(apart))}"
        ratio = prediction.latency_ms.median / float(there["latency_ms"]["median"])
        return f"the file is annotated for {device}; now {digits(ratio)} times its latency"

    def __str__(self) -> str:
        lines = [f"device      {printable(self.detected)}", f"verdict     {self.verdict}"]
        if (before := self.before) is not None:
            lines.append(f"file        {sentence(before)}")
        if (optimised := self.optimised) is not None:
            lines.append(f"optimised   {sentence(optimised)}")
        lines.append(f"reader      {self.reader or f'none: {printable(str(self.problem))}'}")
        if self.why_not_native not in (None, self.problem):
            lines.append(f"            not the {NATIVE_READER}: {printable(str(self.why_not_native))}")
        if (note := self.annotated(self._metadata)) is not None:
            lines.append(f"metadata    {note}")
        return "\n".join(lines)
