"""A program's allocations as PyTorch's profiler sees them, beside its own tracker and our recording without data."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from perfpass.errors import ArgumentError
from perfpass.graph import allocators
from perfpass.importers.torch_allocations import allocations
from perfpass.importers.torch_memory import record
from perfpass.predictors.memory.recorded import allocator_view

OPTIMIZERS = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}


def network():
    torch.manual_seed(0)
    wide = [torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 256), torch.nn.LayerNorm(256)]
    return torch.nn.Sequential(*wide, *[torch.nn.Linear(256, 256), torch.nn.ReLU()] * 2, torch.nn.Linear(256, 64))


def loss(out):
    return torch.nn.functional.cross_entropy(out, torch.zeros(len(out), dtype=torch.int64))


def real_step(optimizer, batch=512):
    """Two steps of a loop, their allocations, weights first."""
    given = torch.rand(batch, 256)
    made = {}

    def run():
        made["module"] = module = network()
        update = OPTIMIZERS[optimizer](module.parameters(), 1e-3, foreach=True)
        for _ in range(2):
            module.zero_grad()
            made["input"] = given.clone()
            made["loss"] = loss(module(made["input"]))
            made["loss"].backward()
            update.step()

    network()
    return allocations(run)


def test_what_is_alive_dead_and_from_before_is_told_apart():
    kept = {}

    def make():
        kept["new"] = torch.ones(500)
        _ = kept["new"] + 1

    allocations(make)
    found = allocations(make)  # in it the first one's tensor goes away
    assert found.earlier_bytes == 2000 and found.left_bytes == 0
    assert 2000 <= found.peak_bytes < 2100
    kept.clear()
    found = allocations(make)
    assert found.earlier_bytes == 0 and found.left_bytes == 2000
    assert 4000 <= found.peak_bytes < 4100
    assert allocations(lambda: None).peak_bytes == 0


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_recording_without_data_holds_and_reserves_what_the_program_does(optimizer):
    real = real_step(optimizer)
    name = optimizer
    made = record(network(), lambda: (torch.empty(512, 256),), optimizer=name, loss=loss)
    recorded = made.events.live_by_use().sum(axis=1).max()
    assert recorded == pytest.approx(real.peak_bytes, rel=0.02)
    for expandable in (False, True):
        ours, theirs = (
            allocators.caching(events, expandable_segments=expandable) for events in (made.events, real.events)
        )
        assert ours.peak_reserved == pytest.approx(theirs.peak_reserved, rel=0.1)
        assert theirs.peak_reserved >= theirs.peak_requested


def test_the_profiler_and_pytorchs_tracker_see_the_same_forward_pass():
    from torch.distributed._tools.mem_tracker import MemTracker

    module, given, kept = network(), torch.rand(512, 256), {}

    def forward():
        kept["out"] = module(given)

    allocations(forward)
    kept.clear()
    found = allocations(forward)
    kept.clear()
    tracker = MemTracker()
    tracker.track_external(module)
    with tracker:
        forward()
        now = next(iter(tracker.get_tracker_snapshot("current").values()))
    weights = sum(p.numel() * p.element_size() for p in module.parameters())
    assert found.left_bytes == pytest.approx(now["Total"] - weights, rel=0.01)


def test_the_allocators_view_of_a_module_has_both_kinds_of_segments():
    found = allocator_view(network(), (256,), batch=512, optimizer="adamw")
    assert found.alive <= found.reserved_expandable <= 1.02 * found.reserved
    assert found.reserved < 3 * found.alive
    half = allocator_view(network(), (256,), batch=512, optimizer="adamw", precision="bf16")
    assert half.alive < 0.6 * found.alive
    with pytest.raises(ArgumentError, match="lion"):
        allocator_view(network(), (256,), optimizer="lion")
