"""Steps of one deployment: its parts from tables, what its engine adds, and what limits them."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from perfpass.devices import Device
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.batch import EngineBatch
from perfpass.llm.costs import Step, peak_flops, step_costs
from perfpass.llm.serving import Serving
from perfpass.predictors.serving.base import host_s, issued_s
from perfpass.predictors.serving.predictor import ServingPredictor
from perfpass.predictors.step_time.grid import Curve, PlainCurve, PlainSurface, Surface
from perfpass.predictors.step_time.overheads import EAGER_LAUNCH_S, RUNTIMES
from perfpass.predictors.step_time.parts import PARTS, seconds_by_part, tabulated
from perfpass.predictors.step_time.setup import Setup

LIMITS = ("compute", "bandwidth", "cache", "communication", "host")
_COMMUNICATION = (PARTS.index("messages"),)
_CACHE = (PARTS.index("states"), PARTS.index("decode attention"))
_WORK = tuple(i for i in range(len(PARTS)) if i not in (*_COMMUNICATION, *_CACHE))


class Steps:
    """A `StepTime` of one deployment.

    Pipelined, a batch runs as one micro-batch a stage, so that a step is priced at the rate at which steps follow each
    other. With data-parallel attention a batch is that of one rank, whose peers run alike.
    """

    def __init__(self, model: LanguageModel, device: Device, serving: Serving, *, eager: bool = False) -> None:
        """``serving``: its split, precision, runtime and version count, its load does not. ``eager``: without CUDA
        graphs, where the host issues every kernel.
        """
        split = serving.parallelism
        # Of an engine without records the steps are those of the first.
        runtime = serving.runtime if serving.runtime in RUNTIMES else RUNTIMES[0]
        self._setup = Setup(model, device, split, serving.quantization, runtime, serving.runtime_version)
        constants = ServingPredictor.load().constants
        self._kinds = np.array([1.0, constants["step.beyond"]])
        # A tower of images writes nothing: its one step passes all layers.
        layers = model.passed_layers(decode=True) or model.passed_layers(decode=False)
        host_step_s, host_request_s = host_s(serving)
        self._fixed_s = (
            layers * constants[f"step.layer_s.{runtime}"] + constants[f"step.step_s.{runtime}"] + host_step_s
        )
        self._request_s = constants[f"step.request_s.{runtime}"] + host_request_s
        self._stages = split.pipeline
        issued = self._launches() * EAGER_LAUNCH_S if eager else issued_s(model, device, serving)
        # What waits for a host to schedule waits for it to issue as well.
        self._least_s, self._least_request_s = issued + host_step_s, host_request_s
        found = tabulated(self._setup)
        self.reasons = found.reasons
        self._tokens, self._requests = (
            PlainCurve(Curve(v.nodes, self._together(v.values.sum(axis=1)) + each * v.nodes))
            for v, each in ((found.tokens, 0.0), (found.requests, self._request_s))
        )
        self._prefill, self._decode = (
            PlainSurface(Surface(v.first, v.second, self._together(v.values))) for v in (found.prefill, found.decode)
        )

    def _together(self, values: np.ndarray) -> np.ndarray:
        """Seconds from those at least and beyond, the first axis of ``values``."""
        return np.asarray(np.tensordot(self._kinds, values, axes=1))

    def _launches(self) -> float:
        s = self._setup
        costs = step_costs(s.model, s.split, s.quantization, Step.of_decode(1.0, 1.0))
        return float(costs.total("launches"))

    def _micro(self, batch: EngineBatch) -> EngineBatch:
        """Fields [N] of a micro-batch; no smaller than one request of one token."""
        sizes = np.broadcast_arrays(*(np.atleast_1d(np.asarray(v, dtype=np.float64)) for v in vars(batch).values()))
        if self._stages == 1:
            return EngineBatch(*sizes)
        tokens, prompts, attended, cached, decodes, context = sizes
        tokens, prompts, decodes = (
            np.minimum(v, np.maximum(v / self._stages, 1.0)) for v in (tokens, prompts, decodes)
        )
        return EngineBatch(tokens, prompts, attended / self._stages, cached, decodes, context / self._stages)

    def parts(self, batch: EngineBatch) -> np.ndarray:
        """Seconds [N, PARTS + 1] of N steps by part, the engine's own time last."""
        micro = self._micro(batch)
        out = self._together(np.moveaxis(seconds_by_part(self._setup, micro), 1, 0))
        requests = micro.prompts + micro.decodes
        host = np.where(micro.prompt_tokens + micro.decodes > 0, self._fixed_s + requests * self._request_s, 0.0)
        least = self._least_s + requests * self._least_request_s
        idle = np.where(host > 0, np.maximum(least - host - out.sum(axis=1), 0.0), 0.0)
        return np.column_stack([out, host + idle])

    def seconds(self, batch: EngineBatch) -> np.ndarray:
        """Seconds [N] of N steps; 0 of one without requests."""
        return np.asarray(self.parts(batch).sum(axis=1))

    def limits(self, batch: EngineBatch) -> tuple[str, ...]:
        """Of LIMITS what takes most of each of N steps: arithmetic, weights and activations from memory, the cache,
        messages between GPUs, or the host.
        """
        found = self.parts(batch)
        work, communication, cache = (found[:, list(i)].sum(axis=1) for i in (_WORK, _COMMUNICATION, _CACHE))
        computes = self._computes(self._micro(batch))
        columns = [np.where(computes, work, 0.0), np.where(computes, 0.0, work), cache, communication, found[:, -1]]
        return tuple(LIMITS[i] for i in np.argmax(np.stack(columns, axis=1), axis=1).tolist())

    def _computes(self, b: EngineBatch) -> np.ndarray:
        """[N] whether work takes longer at the peaks than from memory; new tokens together, as they pass the layers."""
        s, requests = self._setup, np.asarray(b.prompts + b.decodes)
        step = Step(b.prompt_tokens + b.decodes, requests, b.prompt_attended, 0 * requests, requests, decode=False)
        flops, moved = np.zeros(len(requests)), np.zeros(len(requests))
        for name, work in step_costs(s.model, s.split, s.quantization, step).parts.items():
            flops = flops + work.flops / peak_flops(s.device.peak_flops, work.precision)
            if name != "attention":
                moved = moved + work.memory_bytes / s.device.memory_bandwidth_bytes_s
        return np.asarray(flops > moved)

    def one(
        self,
        prompt_tokens: float,
        prompts: float,
        prompt_attended: float,
        prompt_cached: float,
        decodes: float,
        decode_context: float,
    ) -> float:
        """Seconds of one step, as `seconds` of one, in plain numbers."""
        if prompt_tokens + decodes <= 0:
            return 0.0
        if self._stages > 1:
            stages = self._stages
            prompt_tokens = min(prompt_tokens, max(prompt_tokens / stages, 1.0))
            prompts, decodes = min(prompts, max(prompts / stages, 1.0)), min(decodes, max(decodes / stages, 1.0))
            prompt_attended, decode_context = prompt_attended / stages, decode_context / stages
        seconds = self._fixed_s + self._tokens.at(prompt_tokens + decodes) + self._requests.at(prompts + decodes)
        if prompt_tokens > 0:
            seconds += self._prefill.at(prompt_tokens, prompt_attended)
        if decodes > 0:
            seconds += self._decode.at(decodes, decode_context)
        return max(seconds, self._least_s + (prompts + decodes) * self._least_request_s)

    def decode_run(self, decodes: float, decode_context: float, steps: float) -> float:
        """Seconds of ``steps`` decode steps in a row, the context growing by one token each: a step is linear in its
        context between two nodes of its table, so that each piece is its ends' mean times its steps.
        """
        whole = int(steps)
        if decodes <= 0 or whole <= 0:
            return 0.0
        batch, start = decodes / self._stages, decode_context / self._stages
        batch_requests = min(decodes, max(batch, 1.0))

        def step(i: int) -> float:
            return self.one(0.0, 0.0, 0.0, 0.0, decodes, decode_context + i * decodes)

        # Eager, the first steps may all wait for the host alike.
        least = self._least_s + batch_requests * self._least_request_s
        held = bisect_left(range(whole), True, key=lambda i: step(i) > least) if least else 0
        total, i = held * least, held
        for node in self._decode.second_after(start + i * batch):
            last = min(int((node - start) // batch), whole - 1)
            if last >= i:
                total += (last - i + 1) * (step(i) + step(last)) / 2
                i = last + 1
            if i >= whole:
                return total
        return total + (whole - i) * (step(i) + step(whole - 1)) / 2
