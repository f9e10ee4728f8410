"""The search: splits of the GPUs, cache types, sequences, tokens of a step and the share of memory, in this order.

Every choice is the highest throughput among what keeps the targets with the confidence; where nothing does, what is
likeliest to.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from perfpass.deploy.choose.targets import together
from perfpass.deploy.tune.outcome import Asked, Outcome, outcomes
from perfpass.deploy.tune.result import Brought, Tuning
from perfpass.deploy.tune.settings import WORDS, Settings, defaults
from perfpass.errors import ArgumentError, UnsupportedError
from perfpass.llm import Parallelism
from perfpass.llm.serving import check_split
from perfpass.predictors.serving.predictor import ServingPredictor
from perfpass.text import unknown

if TYPE_CHECKING:
    from perfpass.predictors.serving.prediction import LlmPrediction

ENGINES = tuple(WORDS)
_BATCHED = (512, 1024, 2048, 4096, 8192, 16_384)
_STAGES = (1, 2, 4)
# The most that an engine is told to take: what `llm.memory` counts as filled by hand is 0.97, its last hundredths by
# runs that somebody watched.
_MOST_SHARE = 0.95
# Figures this near are alike: far less than what they are known to. By hand.
_ALIKE = 0.98


def tune(
    of: LlmPrediction,
    engine: str,
    *,
    ttft_ms: float | None = None,
    tpot_ms: float | None = None,
    confidence: float = 0.9,
    kv_precision: str | None = None,
) -> Tuning:
    """Flags of ``engine`` for the load of a prediction, on as many GPUs as it has.

    ``of``: of `perfpass.predict_llm`, aggregated; its split is what is compared with. ``kv_precision``: that of the
    cache, where it may not be changed. Raises ArgumentError for
    another engine than ENGINES and for targets that are not above 0, UnsupportedError for disaggregated serving and
    where no setting lets a request run.
    """
    if engine not in WORDS:
        raise ArgumentError(unknown("engine", engine, ENGINES))
    for name, target in (("ttft_ms", ttft_ms), ("tpot_ms", tpot_ms)):
        if target is not None and not (math.isfinite(target) and target > 0):
            raise ArgumentError(f"{name} must be above 0 milliseconds, got {target!r}")
    if not 0.0 < confidence < 1.0:
        raise ArgumentError(f"confidence must be above 0 and below 1, got {confidence!r}")
    serving = replace(of.asked.serving, runtime=engine)
    if serving.mode == "disagg":
        raise UnsupportedError("flags are proposed for replicas that prefill and decode; leave out --prefill-workers")
    asked = Asked(of.asked.model, of.asked.device, serving)
    search = _Search(asked, engine, {"ttft_ms": ttft_ms, "tpot_ms": tpot_ms}, confidence, kv_precision)
    best, found = search.best()
    plain = defaults(engine, asked.device, serving.parallelism, serving.workers, serving.quantization.kv_cache)
    flags = WORDS[engine](best, found.memory, asked.context)
    brought = []
    for flag in flags:
        back = best
        if flag.field == "split":
            split = replace(best, split=plain.split, workers=plain.workers)
            back = replace(split, sequences=math.ceil(best.sequences * best.ranks / split.ranks))
        elif flag.field:
            back = replace(best, **{flag.field: getattr(plain, flag.field)})
        without = outcomes(asked, [back])[0] if back != best else None
        brought.append(Brought(flag.name, flag.words, without))
    return Tuning(
        engine=engine,
        model=of.asked.model.name,
        asked=asked,
        settings=best,
        found=found,
        plain=outcomes(asked, [plain])[0],
        brought=tuple(brought),
        targets={name: limit for name, limit in search.targets.items() if limit is not None},
        probability=search.probability(found),
        confidence=confidence,
        support=ServingPredictor.load().predict(asked.model, asked.device, asked.of(best)).support,
    )


class _Search:
    """Settings and their outcomes for a load."""

    def __init__(
        self,
        asked: Asked,
        engine: str,
        targets: dict[str, float | None],
        confidence: float,
        kv_precision: str | None,
    ) -> None:
        self.asked, self.engine, self.targets, self.confidence = asked, engine, targets, confidence
        self._kv = kv_precision

    def best(self) -> tuple[Settings, Outcome]:
        """The best settings, one thing after the other."""
        start = []
        for split, workers in self._splits():
            for kv in self._caches():
                plain = defaults(self.engine, self.asked.device, split, workers, kv)
                start += self._outcomes([replace(plain, sequences=n) for n in self._sequences(plain)])
        if not start:
            raise UnsupportedError(
                f"{self.asked.model.name} on {self.asked.serving.gpus} x {self.asked.device.name}: no split lets a "
                "request run; take more GPUs (--tp) or a smaller --precision"
            )
        best, _ = self._choose(start)
        steps = sorted({*_BATCHED, best.batched_tokens})
        best, _ = self._choose(self._outcomes([replace(best, batched_tokens=tokens) for tokens in steps]))
        # What requests leave of the share keeps prefixes, so that less than the engine's own is nobody's gain.
        shares = sorted({best.memory_share, _MOST_SHARE})
        return self._choose(self._outcomes([replace(best, memory_share=share) for share in shares]))

    def probability(self, found: Outcome) -> float:
        """That the targets are kept, at least; 1 without any."""
        kept = [getattr(found, name).probability_below(limit) for name, limit in self.targets.items() if limit]
        return together(kept) if kept else 1.0

    def _choose(self, found: list[tuple[Settings, Outcome]]) -> tuple[Settings, Outcome]:
        """The fastest that keeps the targets; of alike ones the shortest first token, of these the shortest gap between
        tokens, then the first.
        """
        kept = [one for one in found if self.probability(one[1]) >= self.confidence]
        if not kept:
            return max(found, key=lambda one: (self.probability(one[1]), one[1].output_tokens_per_s.median))
        most = max(one[1].output_tokens_per_s.median for one in kept)
        alike = [one for one in kept if one[1].output_tokens_per_s.median >= _ALIKE * most]
        first = min(one[1].ttft_ms.median for one in alike)
        alike = [one for one in alike if one[1].ttft_ms.median <= first / _ALIKE]
        return min(alike, key=lambda one: one[1].longest_gap_ms)

    def _outcomes(self, of: list[Settings]) -> list[tuple[Settings, Outcome]]:
        return [(one, found) for one, found in zip(of, outcomes(self.asked, of), strict=True) if found.fits]

    def _splits(self) -> Iterable[tuple[Parallelism, int]]:
        """All ways to use the GPUs that the model and the engine take."""
        model, gpus = self.asked.model, self.asked.serving.gpus
        for workers in (n for n in range(1, gpus + 1) if gpus % n == 0):
            each = gpus // workers
            for stages in (n for n in _STAGES if each % n == 0):
                for ranks in (n for n in range(1, each // stages + 1) if each // stages % n == 0):
                    tensor = each // stages // ranks
                    # Attention in parallel over data is for mixtures: of others it is a replica.
                    if ranks > 1 and (not model.is_mixture or self.engine == "trtllm"):
                        continue
                    try:
                        check_split(model, tensor, stages)
                    except ArgumentError:
                        continue
                    for experts in {1, tensor * ranks} if model.is_mixture else {1}:
                        yield Parallelism.of(tensor, stages, ranks, experts), workers

    def _caches(self) -> tuple[str, ...]:
        """The cache as it is asked, and at 8 bits where nobody asked, the device computes in fp8 and a flag says so."""
        asked = self.asked.serving.quantization.kv_cache
        eight = "fp8" in self.asked.device.peak_flops and asked in ("bf16", "fp16") and self.engine != "trtllm"
        return (asked, "fp8") if eight and not self._kv else (asked,)

    def _sequences(self, plain: Settings) -> list[int]:
        """What is tried: powers of two and steps between, up to the load of a rank."""
        load = max(math.ceil(self.asked.serving.concurrency / plain.ranks), 1)
        ladder = {round(2 ** (i / 2)) for i in range(2 * math.ceil(math.log2(max(load, 1))) + 1)}
        return sorted({n for n in ladder if n < load} | {load})
