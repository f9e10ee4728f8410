"""What is proposed: a command line, and what each of its flags brings, as a table and as JSON."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfpass.deploy.outputs.engines import precision_words
from perfpass.prediction import Support, interval_row
from perfpass.text import columns, figure, item, size

if TYPE_CHECKING:
    from perfpass.deploy.tune.outcome import Asked, Outcome
    from perfpass.deploy.tune.settings import Settings

_COMMANDS = {
    "vllm": ("vllm", "serve"),
    "sglang": ("python", "-m", "sglang.launch_server", "--model-path"),
    "trtllm": ("trtllm-serve",),
}
_ROWS = (("time to first token", "ttft_ms"), ("time per output token", "tpot_ms"), ("output", "output_tokens_per_s"))


@dataclass(frozen=True)
class Brought:
    """A flag with its ``words``; ``without``: what is expected of the same settings with this one as the engine has
    it by itself, None where that is the same or the flag moves no figure.
    """

    name: str
    words: tuple[str, ...]
    without: Outcome | None


@dataclass(frozen=True)
class Tuning:
    """Settings of an engine for a load. ``found``: what is expected of them; ``plain``: of the engine's own settings on
    the split that was asked. ``probability``: that ``targets`` (ms) are kept, at least.
    """

    engine: str
    model: str
    asked: Asked
    settings: Settings
    found: Outcome
    plain: Outcome
    brought: tuple[Brought, ...]
    targets: dict[str, float]
    probability: float
    confidence: float
    support: Support

    @property
    def kept(self) -> bool:
        """Whether the targets are kept with the confidence."""
        return self.probability >= self.confidence

    @property
    def command(self) -> list[str]:
        """The command line of one replica; the model's name stands for where its weights are."""
        words = [word for one in self.brought for word in one.words]
        served = self.asked.serving.quantization.gemm
        if self.engine != "trtllm" and (served in ("bf16", "fp16") or served != self.asked.model.stored_as):
            words += precision_words(served)
        return [*_COMMANDS[self.engine], self.model, *words]

    def to_dict(self) -> dict[str, Any]:
        """The proposal as strict JSON."""
        return {
            "schema_version": 1,
            "engine": self.engine,
            "command": self.command,
            "replicas": self.settings.workers,
            "expected": _figures(self.found),
            "engine_by_itself": _figures(self.plain),
            "flags": [
                {"name": one.name, "words": list(one.words), "without": _figures(one.without) if one.without else None}
                for one in self.brought
            ],
            "targets_ms": self.targets,
            "kept_with_probability": self.probability,
            "kept": self.kept,
            "support": self.support.to_dict(),
        }

    def __str__(self) -> str:
        s, load = self.settings, self.asked.serving
        lines = [
            f"{self.model} on {load.gpus} x {self.asked.device.name}, {self.engine}, {load.input_length} -> "
            f"{load.output_length} tokens, {load.concurrency:g} in flight",
            f"  {shlex.join(self.command)}",
        ]
        if s.workers > 1:
            lines.append(f"  {s.workers} replicas of it, each on {s.split.gpus} GPUs")
        lines += [interval_row(label, getattr(self.found, name)) for label, name in _ROWS]
        memory, gib = self.found.memory, size(self.found.memory.usable_bytes)
        lines.append(
            f"  {'memory per GPU':<22} {gib:>10}            weights {size(memory.weights_bytes)}, room for "
            f"{self.found.room:,} requests; {self.found.running:,} run at once"
        )
        if self.targets:
            said = "kept" if self.kept else "NOT KEPT"
            wanted = ", ".join(f"{name.partition('_')[0].upper()} {limit:g} ms" for name, limit in self.targets.items())
            lines.append(f"  targets {wanted}: {said} with a probability of {self.probability:.2f} or more")
        lines += self._table()
        if any(one.name == "cache type" and "fp8" in " ".join(one.words) for one in self.brought):
            lines.append(
                "  a cache of 8 bits changes what the model says: compare its answers, or give --kv-precision bf16"
            )
        lines.append(f"  support: {self.support.level}" + "".join(f"\n{item(r)}" for r in self.support.reasons))
        return "\n".join(lines)

    def _table(self) -> list[str]:
        """A row for all flags and one for each: medians over those of the same settings without it."""
        rows = [["expected beside without", "output", "TTFT", "TPOT", "longest gap", "requests that fit"]]
        for name, without in (("all of it", self.plain), *((one.name, one.without) for one in self.brought)):
            if without is None:
                continue
            if not without.fits:
                rows.append([name, "", "", "", "", f"none -> {self.found.room:,}"])
                continue
            pairs = [(getattr(self.found, n).median, getattr(without, n).median) for n in
                     ("output_tokens_per_s", "ttft_ms", "tpot_ms")]  # fmt: skip
            gap = f"{figure(without.longest_gap_ms)} -> {figure(self.found.longest_gap_ms)} ms"
            room = f"{without.room:,} -> {self.found.room:,}"
            rows.append([name, *(f"x {found / base:.2f}" for found, base in pairs), gap, room])
        return columns(rows).splitlines()


def _figures(found: Outcome) -> dict[str, Any]:
    return {
        "ttft_ms": found.ttft_ms.to_dict(),
        "tpot_ms": found.tpot_ms.to_dict(),
        "output_tokens_per_s": found.output_tokens_per_s.to_dict(),
        "longest_gap_ms": found.longest_gap_ms,
        "requests_at_once": found.running,
        "requests_that_fit": found.room,
        "memory_bytes": {
            "weights": found.memory.weights_bytes,
            "cache_per_request": found.memory.cache_per_sequence_bytes,
            "usable": found.memory.usable_bytes,
        },
        "problem": found.problem,
    }
