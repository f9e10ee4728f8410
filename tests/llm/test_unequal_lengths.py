"""What PyTorch's allocator keeps where the sequences of a training run differ in length."""

from __future__ import annotations

import numpy as np

import perfpass
from perfpass.graph import allocators
from perfpass.predictors.llm_training.in_use import UNEQUAL_MORE


class _Program:
    """What a program allocates and frees."""

    def __init__(self) -> None:
        self.events: list[tuple[int, int]] = []
        self.blocks = 0

    def make(self, *sizes: float) -> list[int]:
        made = list(range(self.blocks, self.blocks + len(sizes)))
        self.blocks += len(sizes)
        self.events += zip(made, map(int, sizes), strict=True)
        return made

    def drop(self, blocks: list[int]) -> None:
        self.events += [(block, allocators.FREE) for block in blocks]


def _steps(
    vocabulary: int, hidden: int, layers: int, inner: int, lengths: list[int]
) -> tuple[float, allocators.Events]:
    """Adapters of a decoder whose layers are computed anew, logits kept by the loss of transformers before 4.45."""
    program, sizes = _Program(), []
    sizes += [n for _ in range(layers) for n in (8 * hidden**2, *[2 * hidden * inner] * 3)]
    sizes += [2 * vocabulary * hidden] * 2
    program.make(*sizes)
    for tokens in lengths:
        stream, gate, logit = 2 * tokens * hidden, 2 * tokens * inner, 2 * tokens * vocabulary
        kept = program.make(stream)
        for _ in range(layers):
            passing = program.make(*[stream] * 4, *[gate] * 3)
            kept += program.make(stream)
            program.drop(passing)
        halves, single, shifted, soft, slope = program.make(logit, *[2 * logit] * 4)
        program.drop([soft])
        unshifted = program.make(2 * logit)
        program.drop([slope, shifted])
        back = program.make(logit)
        program.drop(unshifted)
        gradient = program.make(stream)
        program.drop(back)
        for _ in range(layers):
            anew = program.make(*[stream] * 9, *[gate] * 7)
            following = program.make(stream)
            program.drop([*anew, *gradient, kept.pop()])
            gradient = following
        program.drop([*gradient, *kept, halves, single])
    block, size = zip(*program.events, strict=True)
    return float(sum(sizes)), allocators.Events.from_columns(block, size)


def test_lengths_that_differ_hold_as_much_again():
    more, grown = [], []
    for shape in ((151_936, 2048, 24, 5504), (64_000, 4096, 32, 11_008), (32_000, 4096, 32, 11_008)):
        for longest in (512, 2048, 8192):
            for seed in range(5):
                drawn = np.random.default_rng(seed).uniform(0.1, 1.1, 40).clip(0, 1)
                weights, events = _steps(*shape, [int(longest * share) for share in drawn])
                needed = allocators.caching(events).peak_allocated - weights
                more.append((allocators.caching(events).peak_reserved - weights) / needed - 1)
                grown.append(
                    (allocators.caching(events, expandable_segments=True).peak_reserved - weights) / needed - 1
                )
    assert 0.5 < np.median(more) < UNEQUAL_MORE
    assert np.mean(np.array(more) < UNEQUAL_MORE) > 0.93
    assert np.max(grown) < 0.25


def test_the_upper_bound_holds_it_and_what_fits_is_the_same():
    asked = {"framework": "torch", "lora_rank": 8, "recompute": "full", "sequence": 2048}
    equal = perfpass.train_cost("qwen2.5-7b", "a100-80gb", equal_lengths=True, **asked)
    unequal = perfpass.train_cost("qwen2.5-7b", "a100-80gb", **asked)
    stage = unequal.predicted.memory.stages[0]
    kept = UNEQUAL_MORE * (stage.activations + stage.working)
    assert unequal.predicted.kept_bytes == kept
    assert np.isclose(unequal.predicted.in_use.high, equal.predicted.in_use.high + kept)
    assert unequal.predicted.in_use.median == equal.predicted.in_use.median
    assert unequal.predicted.fits_probability == equal.predicted.fits_probability
    assert any("sequences differ" in note for note in unequal.notes)
    assert not any("sequences differ" in note for note in equal.notes)
    small = perfpass.train_cost("qwen2.5-7b", "rtx-4090", **asked).predicted  # shows no more than it has
    assert small.in_use.high <= max(perfpass.device("rtx-4090").usable_bytes, small.in_use.high - small.kept_bytes)
    packed = perfpass.train_cost("qwen2.5-7b", "a100-80gb", **asked | {"framework": "megatron"})
    assert packed.predicted.kept_bytes == 0
