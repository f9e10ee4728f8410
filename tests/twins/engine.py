"""An engine step by step, in the plainest way: every sequence a record, every block counted anew."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from perfpass.predictors.engine.requests import Requests
from perfpass.predictors.engine.settings import EngineSettings


@dataclass
class Asked:
    index: int
    arrival_s: float
    prompt: int
    output: int
    emitted: int = 0
    computed: int = 0
    goal: int = 0

    def blocks(self, size: int, more: int = 0) -> int:
        """That it holds once admitted, ``more`` tokens later."""
        decoded = max(self.prompt + self.emitted - 1 - self.goal, 0) if self.computed == self.goal else 0
        return math.ceil((self.goal + decoded + more) / size)


def run(requests: Requests, steps: Any, settings: EngineSettings, cache_tokens: int) -> dict[str, list[Any]]:
    """First and last times by request and all gaps between tokens; one replica, no prefixes, open arrivals."""
    size = settings.block_tokens
    capacity = cache_tokens // size
    columns = (requests.arrival_s.tolist(), requests.prompt_tokens.tolist(), requests.output_tokens.tolist())
    coming = [Asked(i, *row) for i, row in enumerate(zip(*columns, strict=True))]
    coming = [a for a in coming if math.ceil((a.prompt + a.output - 1) / size) <= capacity]
    waiting: list[Asked] = []
    prefilling: list[Asked] = []
    decoding: list[Asked] = []
    said: dict[int, float] = {}
    first: dict[int, float] = {}
    end: dict[int, float] = {}
    gaps: list[float] = []
    now = 0.0

    def used(more: int = 0) -> int:
        return sum(a.blocks(size) for a in prefilling) + sum(a.blocks(size, more) for a in decoding)

    def says(one: Asked) -> None:
        if one.index in said:
            gaps.append(now - said[one.index])
        else:
            first[one.index] = now
        said[one.index] = now
        one.emitted += 1
        if one.emitted == one.output:
            end[one.index] = now
            if one in decoding:
                decoding.remove(one)
        elif one not in decoding:
            decoding.append(one)

    while coming or waiting or prefilling or decoding:
        if not (waiting or prefilling or decoding):
            now = max(now, coming[0].arrival_s)
        while coming and coming[0].arrival_s <= now:
            waiting.append(coming.pop(0))
        waiting.sort(key=lambda a: a.index)
        preempted = False
        while decoding and used(1) > capacity:
            one = max([*decoding, *prefilling], key=lambda a: a.index)
            (decoding if one in decoding else prefilling).remove(one)
            one.computed = one.goal = 0
            waiting.append(one)
            preempted = True
        left = settings.max_batched_tokens - (len(decoding) if settings.mixed else 0)
        chunks = []
        for one in prefilling:
            new = min(one.goal - one.computed, left)
            if new > 0:
                chunks.append((one, new))
                left -= new
        waiting.sort(key=lambda a: a.index)
        while waiting and not preempted:
            one = waiting[0]
            active = [*prefilling, *decoding]
            if len(active) >= settings.max_sequences or left <= 0:
                break
            length = one.prompt + one.emitted
            if not settings.chunked and chunks and length > left:
                break
            to_come = sum(math.ceil((a.prompt + a.output - 1) / size) - a.blocks(size) for a in active)
            kept = used(1) - used()
            own = math.ceil((one.prompt + one.output - 1) / size) - math.ceil(length / size)
            room = capacity - used(1)
            need = math.ceil(length / size)
            if need > room or (active and need + settings.reserved * max(to_come - kept + own, 0) > room):
                break
            waiting.pop(0)
            one.goal, one.computed = length, 0
            prefilling.append(one)
            new = min(length, left) if settings.chunked else length
            chunks.append((one, new))
            left -= new
        decodes = list(decoding) if settings.mixed or not chunks else []
        context = sum(a.prompt + a.emitted - 1 for a in decodes)
        if chunks:
            attended = sum(new * a.computed + new * (new + 1) / 2 for a, new in chunks)
            past = sum(a.computed for a, _ in chunks)
            tokens = sum(new for _, new in chunks)
            now += steps.one(tokens, len(chunks), attended, past, len(decodes), context)
        else:
            now += steps.one(0, 0, 0, 0, len(decodes), context)
        for one in decodes:
            says(one)
        for one, new in chunks:
            one.computed += new
            if one.computed == one.goal:
                prefilling.remove(one)
                says(one)
    return {
        "first": [first.get(i, math.nan) for i in range(len(requests))],
        "end": [end.get(i, math.nan) for i in range(len(requests))],
        "gaps": sorted(gaps),
    }
