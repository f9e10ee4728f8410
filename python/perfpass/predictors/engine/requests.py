"""Requests that an engine is asked: when they arrive, how long they are, which prefixes they share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfpass.errors import ArgumentError, LimitError

MOST_REQUESTS = 1_000_000
MOST_TOKENS = 10_000_000  # of a prompt, and of an answer
MOST_IDS = 50_000_000
_MOST_SECONDS = 366 * 86400.0


@dataclass(frozen=True, eq=False)
class Requests:
    """N requests in the order of their arrival.

    ``arrival_s`` [N]: seconds from the first; of a request with ``after`` [N] (the place of the one that must end
    before it, -1 for none) the seconds from that end: a turn of a conversation, the next request of a user in a
    closed loop. ``prompt_tokens``, ``output_tokens`` [N]. ``ids`` [M] with ``starts`` [N + 1]: ids of the blocks of
    ``block_tokens`` tokens of each request's prompt, and of its answer where they go on; equal ids are equal prefixes.
    ``priority`` [N]: lower ones first.
    """

    arrival_s: np.ndarray
    prompt_tokens: np.ndarray
    output_tokens: np.ndarray
    after: np.ndarray | None = None
    ids: np.ndarray | None = None
    starts: np.ndarray | None = None
    block_tokens: int = 512
    priority: np.ndarray | None = None

    def __post_init__(self) -> None:
        count = len(self.arrival_s)
        if not 1 <= count <= MOST_REQUESTS:
            raise LimitError(f"{count:,} requests; 1 to {MOST_REQUESTS:,} can be simulated: take a part of the trace")
        times = np.asarray(self.arrival_s, dtype=np.float64)
        if not np.isfinite(times).all() or times.min() < 0 or times.max() > _MOST_SECONDS:
            bad = int(np.argmax(~(np.isfinite(times) & (times >= 0) & (times <= _MOST_SECONDS))))
            raise ArgumentError(
                f"request {bad + 1} arrives at {times[bad]} s; times must be finite, at least 0 and within a year"
            )
        alone = times if self.after is None else times[np.asarray(self.after) < 0]
        if (np.diff(alone) < 0).any():
            raise ArgumentError("requests must be in the order of their arrival; sort them by time")
        if self.after is not None and (np.asarray(self.after) >= np.arange(count)).any():
            raise ArgumentError("a request can only follow one that stands before it")
        for name in ("prompt_tokens", "output_tokens"):
            lengths = np.asarray(getattr(self, name))
            if len(lengths) != count or lengths.min() < 1 or lengths.max() > MOST_TOKENS:
                bad = int(np.argmax((lengths < 1) | (lengths > MOST_TOKENS)))
                raise ArgumentError(
                    f"request {bad + 1} has {name} {lengths[bad]}; a length is a whole number from 1 to {MOST_TOKENS:,}"
                )
        if self.ids is not None and len(self.ids) > MOST_IDS:
            raise LimitError(
                f"{len(self.ids):,} ids of prefixes; at most {MOST_IDS:,} are kept: take a part of the trace"
            )

    def __len__(self) -> int:
        return len(self.arrival_s)

    def prefix(self, index: int) -> list[int]:
        """The ids of one request; none where prefixes are not known."""
        if self.ids is None or self.starts is None:
            return []
        found: list[int] = self.ids[self.starts[index] : self.starts[index + 1]].tolist()
        return found

    def first(self, count: int) -> Requests:
        """The first ``count`` requests."""
        if count >= len(self):
            return self

        def cut(values: np.ndarray | None) -> np.ndarray | None:
            return None if values is None else values[:count]

        starts = None if self.starts is None else self.starts[: count + 1]
        ids = None if self.ids is None or starts is None else self.ids[: int(starts[-1])]
        return Requests(
            self.arrival_s[:count],
            self.prompt_tokens[:count],
            self.output_tokens[:count],
            cut(self.after),
            ids,
            starts,
            self.block_tokens,
            cut(self.priority),
        )

    def at_rate(self, factor: float) -> Requests:
        """The same requests, arriving ``factor`` times as fast."""
        if not (np.isfinite(factor) and factor > 0):
            raise ArgumentError(f"a factor of the rate must be finite and above 0, got {factor!r}")
        followers = np.zeros(len(self), dtype=bool) if self.after is None else np.asarray(self.after) >= 0
        times = np.where(followers, self.arrival_s, np.asarray(self.arrival_s) / factor)
        return Requests(
            times, self.prompt_tokens, self.output_tokens, self.after, self.ids, self.starts, self.block_tokens,
            self.priority,
        )  # fmt: skip
