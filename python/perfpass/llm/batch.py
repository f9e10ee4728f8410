"""What an engine runs together: any mix of prefill chunks and decodes as sums, and who says how long it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from perfpass.errors import ArgumentError
from perfpass.llm.costs import Number, Step

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class EngineBatch:
    """N steps of one scheduler, numbers or arrays [N] that broadcast: of a replica, or where attention is data-parallel
    of one of its ranks, each of which has its own requests and is taken to have as many.

    ``prompt_tokens``: new prompt tokens; ``prompts``: requests that they are of; ``prompt_attended``: summed over these
    tokens, the tokens that each attends to; ``prompt_cached``: summed over these requests, earlier tokens that are read
    from the cache; ``decodes``: requests that take one token; ``decode_context``: their cached tokens, summed.
    """

    prompt_tokens: Number = 0.0
    prompts: Number = 0.0
    prompt_attended: Number = 0.0
    prompt_cached: Number = 0.0
    decodes: Number = 0.0
    decode_context: Number = 0.0

    @classmethod
    def of(cls, chunks: Sequence[tuple[int, int]] = (), contexts: Sequence[int] = ()) -> EngineBatch:
        """One step of ``chunks`` (new tokens, tokens of the request before them) and of decodes with ``contexts``.

        Raises ArgumentError for negative sizes and for chunks without tokens.
        """
        if any(new < 1 or past < 0 for new, past in chunks) or any(context < 0 for context in contexts):
            raise ArgumentError(
                "a step needs chunks of at least one new token and contexts of at least none; "
                f"got chunks {list(chunks)[:4]} and contexts {list(contexts)[:4]}"
            )
        return cls(
            prompt_tokens=float(sum(new for new, _ in chunks)),
            prompts=float(len(chunks)),
            prompt_attended=float(sum(new * past + new * (new + 1) / 2 for new, past in chunks)),
            prompt_cached=float(sum(past for _, past in chunks)),
            decodes=float(len(contexts)),
            decode_context=float(sum(contexts)),
        )

    @classmethod
    def alone(cls, step: Step) -> EngineBatch:
        """A step of prompts alone or of decodes alone, its numbers as arrays [N] of one length."""
        import numpy as np

        sizes = (step.tokens, step.requests, step.attended, step.cached)
        tokens, requests, attended, cached = np.broadcast_arrays(*(np.atleast_1d(v) for v in sizes))
        none = np.zeros(len(tokens))
        if step.decode:
            return cls(none, none, none, none, requests, cached)
        return cls(tokens, requests, attended, cached, none, none)

    def prefill(self) -> Step:
        """The prompt's part as a step by itself."""
        tokens, requests = self.prompt_tokens, self.prompts
        return Step(tokens, requests, self.prompt_attended, self.prompt_cached, requests, decode=False)

    def decode(self) -> Step:
        """The decodes as a step by themselves."""
        return Step(self.decodes, self.decodes, self.decode_context, self.decode_context, self.decodes, decode=True)


class StepTime(Protocol):
    """How long the steps of one deployment take; seconds never fall with any size of a batch."""

    def seconds(self, batch: EngineBatch) -> np.ndarray:
        """Seconds [N] of N steps."""
        ...

    def one(
        self,
        prompt_tokens: float,
        prompts: float,
        prompt_attended: float,
        prompt_cached: float,
        decodes: float,
        decode_context: float,
    ) -> float:
        """Seconds of one step, for loops: `seconds` of a number each."""
        import numpy as np

        batch = EngineBatch(prompt_tokens, prompts, prompt_attended, prompt_cached, decodes, decode_context)
        return float(np.ravel(self.seconds(batch))[0])

    def decode_run(self, decodes: float, decode_context: float, steps: float) -> float:
        """Seconds of ``steps`` decode steps in a row without a prompt between them, the context growing by one each."""
        ...
