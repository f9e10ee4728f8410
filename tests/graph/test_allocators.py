"""Simulated allocators: the documented rules one by one, and agreement with plain Python on random programs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_strategies import graphs
from perfpass.errors import ArgumentError
from perfpass.graph import allocators
from perfpass.graph import liveness as memory
from perfpass.graph.allocators import FREE, Events
from twins import allocators as twin

MIB = 1 << 20
SIZES = st.one_of(
    st.sampled_from([0, 1, 511, 512, 513, MIB - 1, MIB, MIB + 1, 10 * MIB - 1, 10 * MIB, 20 * MIB, 64 * MIB]),
    st.integers(0, 3 * MIB),
    st.integers(0, 90 * MIB),
)


@st.composite
def programs(draw) -> list[tuple[int, int]]:
    """A list of (block, bytes, or -1 to free it)."""
    live: list[int] = []
    out = []
    for block in range(draw(st.integers(1, 40))):
        for _ in range(draw(st.integers(0, 2))):
            if live:
                out.append((live.pop(draw(st.integers(0, len(live) - 1))), FREE))
        out.append((block, draw(SIZES)))
        live.append(block)
    return out


def events(*pairs: tuple[int, int], use: tuple[int, ...] = ()) -> Events:
    return Events.from_columns([b for b, _ in pairs], [s for _, s in pairs], use)


def checked(report: allocators.Report, expected: dict[str, int]) -> None:
    failed = expected.pop("failed_event")
    assert report.failed_event == (None if failed < 0 else failed)
    if failed < 0:
        assert {name: getattr(report, name) for name in expected} == expected
        assert sum(report.by_use.values()) == report.peak_allocated


@settings(max_examples=250)
@given(
    programs(),
    st.sampled_from([1 << 50, 40 * MIB, 150 * MIB, 700 * MIB]),
    st.sampled_from([1 << 50, 21 * MIB, 50 * MIB]),
    st.sampled_from([0, 2, 8]),
)
def test_the_caching_allocator_equals_plain_python(program, limit, max_split, divisions):
    report = allocators.caching(
        events(*program), limit_bytes=limit, max_split_bytes=max_split, roundup_power2_divisions=divisions
    )
    checked(report, twin.caching(program, limit, max_split, divisions))


@settings(max_examples=150)
@given(programs(), st.sampled_from([1, MIB, 5 * MIB]), st.sampled_from([MIB, 128 * MIB]), st.booleans())
def test_the_arena_equals_plain_python(program, initial, dead, power_of_two):
    report = allocators.arena(
        events(*program), power_of_two=power_of_two, initial_chunk_bytes=initial, max_dead_bytes=dead
    )
    checked(report, twin.arena(program, initial, dead, power_of_two))


@settings(max_examples=150)
@given(programs())
def test_the_memory_pattern_equals_plain_python_and_holds_what_is_live(program):
    report = allocators.pattern(events(*program))
    assert report.peak_reserved == twin.pattern(program)
    assert report.peak_reserved >= report.peak_requested


@settings(max_examples=150)
@given(programs(), st.integers(0, 2**32 - 1))
def test_shared_storage_equals_plain_python(program, seed):
    shares = np.random.default_rng(seed).random(len(program)) < 0.8
    use = np.where(shares, allocators.USES.index("activations"), allocators.USES.index("weights"))
    report, storage = allocators.storage_sharing(events(*program, use=use))
    order, total = twin.storage(program, shares)
    assert report.peak_reserved == total
    made = [block for block, size in program if size >= 0]
    assert storage[made].tolist() == order


@settings(max_examples=150)
@given(programs(), st.sampled_from([None, 60 * MIB, 300 * MIB]))
def test_expandable_segments_hold_what_is_live_and_keep_to_the_limit(program, limit):
    report = allocators.caching(events(*program), limit_bytes=limit, expandable_segments=True)
    if report.fits:
        assert report.peak_reserved >= report.peak_allocated
        plain = allocators.caching(events(*program))
        assert report.peak_requested == plain.peak_requested
    if limit:
        assert report.peak_reserved <= limit


@settings(max_examples=150)
@given(graphs(), st.sampled_from([None, "float16"]))
def test_events_of_a_graph_have_the_peak_of_its_plan(graph, float_as):
    made, plan = Events.of(graph, float_as), memory.plan(graph, float_as)
    live = np.concatenate([np.zeros((1, 6), np.int64), made.live_by_use()])
    assert allocators.caching(made).peak_requested == live.sum(axis=1).max()
    assert live[:, 0].max() == plan.weight_bytes
    assert live[:, 1].max() == plan.input_bytes
    assert live[:, 1:].sum(axis=1).max() == plan.peak_activation_bytes


def test_small_requests_share_a_segment_of_two_mebibytes():
    report = allocators.caching(events((0, 1), (1, MIB)))
    assert (report.peak_allocated, report.peak_reserved, report.segments) == (512 + MIB, 2 * MIB, 1)


def test_requests_up_to_ten_mebibytes_share_a_segment_of_twenty_and_larger_ones_have_their_own():
    assert allocators.caching(events((0, MIB + 1))).peak_reserved == 20 * MIB
    assert allocators.caching(events((0, 9 * MIB), (1, 9 * MIB))).segments == 1
    assert allocators.caching(events((0, 11 * MIB))).peak_reserved == 12 * MIB


def test_a_block_is_not_split_for_less_than_a_mebibyte_and_counts_whole():
    report = allocators.caching(events((0, 12 * MIB), (0, FREE), (1, 11 * MIB)))
    assert (report.peak_allocated, report.reserved) == (12 * MIB, 12 * MIB)


def test_cached_segments_are_given_back_before_memory_runs_out():
    program = events((0, 30 * MIB), (0, FREE), (1, 40 * MIB))
    assert allocators.caching(program).peak_reserved == 70 * MIB
    report = allocators.caching(program, limit_bytes=50 * MIB)
    assert (report.fits, report.peak_reserved, report.releases) == (True, 40 * MIB, 1)
    assert allocators.caching(program, limit_bytes=39 * MIB).failed_event == 2


def test_garbage_is_collected_above_the_threshold_alone():
    program = events((0, 30 * MIB), (0, FREE), (1, 40 * MIB))
    kept = allocators.caching(program, limit_bytes=100 * MIB, garbage_collection_threshold=0.5)
    assert kept.peak_reserved == 70 * MIB
    collected = allocators.caching(program, limit_bytes=100 * MIB, garbage_collection_threshold=0.2)
    assert (collected.peak_reserved, collected.releases) == (40 * MIB, 0)


def test_expandable_segments_grow_where_others_fragment():
    program = events((0, 30 * MIB), (0, FREE), (1, 40 * MIB), (1, FREE), (2, 60 * MIB))
    assert allocators.caching(program).peak_reserved == 130 * MIB
    assert allocators.caching(program, expandable_segments=True).peak_reserved == 60 * MIB


def test_expandable_segments_give_back_whole_granules_alone():
    program = events((0, 30 * MIB), (1, 10 * MIB), (0, FREE), (2, 35 * MIB))
    report = allocators.caching(program, limit_bytes=60 * MIB, expandable_segments=True)
    assert (report.fits, report.releases) == (True, 1)
    assert allocators.caching(program, limit_bytes=40 * MIB, expandable_segments=True).failed_event == 3


def test_the_arena_doubles_its_regions():
    report = allocators.arena(events((0, MIB), (1, MIB), (2, MIB), (3, 7 * MIB)))
    assert (report.segments, report.peak_reserved) == (3, (1 + 2 + 8) * MIB)
    exact = allocators.arena(events((0, MIB), (1, 3 * MIB + 1)), power_of_two=False)
    assert exact.peak_reserved == 4 * MIB + 256


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (((0, FREE),), "event 0 .*not live"),
        (((0, 5), (0, 6)), "event 1 .*allocated before"),
        (((0, 5), (0, FREE), (0, FREE)), "event 2 .*not live"),
        (((-1, 5),), "out of range"),
        (((0, -7),), "0 to 2\\^50"),
    ],
)
def test_events_that_no_program_could_make_are_refused(pairs, message):
    for simulate in (allocators.caching, allocators.arena, allocators.pattern, allocators.storage_sharing):
        with pytest.raises(ArgumentError, match=message):
            simulate(events(*pairs))


def test_options_out_of_range_are_refused():
    one = events((0, 1))
    for options in (
        {"roundup_power2_divisions": 3},
        {"max_split_bytes": 20 * MIB},
        {"limit_bytes": 0},
        {"garbage_collection_threshold": 1.0},
    ):
        with pytest.raises(ArgumentError):
            allocators.caching(one, **options)
    with pytest.raises(ArgumentError, match="columns differ"):
        allocators.caching(Events.from_columns([0, 1], [5]))
