"""MIG: geometry as NVIDIA documents it, slices as devices, and the hint from predicted memory."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfpass.devices import catalogue, device
from perfpass.devices.mig import geometry, geometry_names
from perfpass.errors import ArgumentError, DeviceError
from perfpass.predictors.mig.profile import dippm_rule, hint

GIB = 2**30


@pytest.mark.parametrize("name", geometry_names())
def test_geometries_are_consistent(name):
    g = geometry(name)
    assert g.compute_slices in (4, 7) and g.memory_slices in (4, 8)
    assert len({p.name for p in g.profiles}) == len(g.profiles)
    for p in g.profiles:
        assert p.name.startswith(f"{p.compute_slices}g.")
        assert all(s >= 0 and s + p.memory_slices <= g.memory_slices for s in p.starts), p.name
        nominal = int(p.name.split(".")[1].split("gb")[0])
        assert 0.85 * nominal * GIB < p.memory_bytes <= nominal * GIB, "usable memory is a little below nominal"
        assert g.place([p.name] * p.max_instances) is not None, p.name
        assert g.place([p.name] * (p.max_instances + 1)) is None, p.name
    whole = max(g.profiles, key=lambda p: p.memory_slices)
    assert whole.compute_slices == g.compute_slices and whole.max_instances == 1


def test_every_partitionable_device_matches_its_geometry():
    partitionable = [d for d in catalogue() if d.mig]
    assert {"a30", "a100-sxm4-40gb", "a100-pcie-80gb", "h100-sxm5-80gb", "h100-nvl-94gb", "gh200-96gb"} <= {
        d.id for d in partitionable
    }
    for d in partitionable:
        whole = max(d.mig.profiles, key=lambda p: p.memory_slices)
        assert 0.85 * d.memory_bytes < whole.memory_bytes <= d.memory_bytes, d.id
        assert 0.8 * d.sm_count <= whole.sm_count <= d.sm_count, d.id
        assert d.compute_capability >= (8, 0)


# NVIDIA MIG user guide, "Supported MIG profiles": the configurations of the A100 (figure and text), by profile.
A100_CONFIGURATIONS = [
    ["7g.40gb"],
    ["4g.20gb", "3g.20gb"],
    ["4g.20gb", "2g.10gb", "1g.5gb"],
    ["4g.20gb", "1g.5gb", "1g.5gb", "1g.5gb"],
    ["3g.20gb", "3g.20gb"],
    ["3g.20gb", "2g.10gb", "1g.5gb"],
    ["3g.20gb", "1g.5gb", "1g.5gb", "1g.5gb"],
    ["2g.10gb", "2g.10gb", "3g.20gb"],
    ["2g.10gb", "1g.5gb", "1g.5gb", "3g.20gb"],
    ["1g.5gb", "1g.5gb", "2g.10gb", "3g.20gb"],
    ["1g.5gb"] * 4 + ["3g.20gb"],
    ["2g.10gb", "2g.10gb", "2g.10gb", "1g.5gb"],
    ["2g.10gb", "2g.10gb"] + ["1g.5gb"] * 3,
    ["2g.10gb"] + ["1g.5gb"] * 5,
    ["1g.5gb"] * 7,
    ["1g.10gb"] * 4,
]
A100_IMPOSSIBLE = [
    ["7g.40gb", "1g.5gb"],
    ["4g.20gb", "4g.20gb"],
    ["3g.20gb", "3g.20gb", "1g.5gb"],
    ["4g.20gb", "2g.10gb", "2g.10gb"],
    ["2g.10gb"] * 4,
    ["1g.5gb"] * 8,
    ["1g.10gb"] * 5,
    ["1g.5gb+me", "1g.5gb+me"],
]


@pytest.mark.parametrize("names", A100_CONFIGURATIONS, ids="+".join)
def test_documented_configurations_of_the_a100_fit(names):
    placed = geometry("a100-40gb").place(names)
    assert placed is not None and sorted(n for n, _ in placed) == sorted(names)


@pytest.mark.parametrize("names", A100_IMPOSSIBLE, ids="+".join)
def test_impossible_configurations_of_the_a100_do_not_fit(names):
    assert geometry("a100-40gb").place(names) is None


# NVIDIA MIG user guide, "Supported MIG profiles": copy engines, decoders, JPEG, OFA and instances of each profile.
GUIDE = {
    "a30": "1g.6gb 1 0 0 0 4, 1g.6gb+me 1 1 1 1 1, 2g.12gb 2 2 0 0 2, 2g.12gb+me 2 2 1 1 1, 4g.24gb 4 4 1 1 1",
    "a100-40gb": "1g.5gb 1 0 0 0 7, 1g.5gb+me 1 1 1 1 1, 1g.10gb 1 1 0 0 4, 2g.10gb 2 1 0 0 3, 3g.20gb 3 2 0 0 2, "
    "4g.20gb 4 2 0 0 1, 7g.40gb 7 5 1 1 1",
    "h100-80gb": "1g.10gb 1 1 1 0 7, 1g.10gb+me 1 1 1 1 1, 1g.20gb 1 1 1 0 4, 2g.20gb 2 2 2 0 3, 3g.40gb 3 3 3 0 2, "
    "4g.40gb 4 4 4 0 1, 7g.80gb 8 7 7 1 1",
    "h200-141gb": "1g.18gb 1 1 1 0 7, 1g.18gb+me 1 1 1 1 1, 1g.35gb 1 1 1 0 4, 2g.35gb 2 2 2 0 3, 3g.71gb 3 3 3 0 2, "
    "4g.71gb 4 4 4 0 1, 7g.141gb 8 7 7 1 1",
    "rtx-pro-6000-96gb": "1g.24gb 1 1 1 0 4, 1g.24gb+me 1 1 1 1 1, 1g.24gb+gfx 1 1 1 0 4, 1g.24gb+me.all 1 4 4 1 1, "
    "1g.24gb-me 1 0 0 0 4, 2g.48gb 2 2 2 0 2, 2g.48gb+gfx 2 2 2 0 2, 2g.48gb+me.all 2 4 4 1 1, 2g.48gb-me 2 0 0 0 2, "
    "4g.96gb 4 4 4 1 1, 4g.96gb+gfx 4 4 4 1 1",
    "rtx-pro-5000-48gb": "1g.12gb 1 1 1 0 1, 1g.12gb+me 1 1 1 1 1, 1g.12gb+gfx 1 1 1 0 1, 1g.12gb-me 1 0 0 0 3, "
    "2g.24gb-me 2 0 0 0 1, 4g.48gb 4 3 1 1 1, 4g.48gb+gfx 4 3 1 1 1",
}
# Memory slices that profiles start at and take (go-nvml's and k8s-test-infra's models, `nvidia-smi mig -lgipp`).
STARTS = {
    7: {(1, 1): range(7), (1, 2): (0, 2, 4, 6), (2, 2): (0, 2, 4), (3, 4): (0, 4), (4, 4): (0,), (7, 8): (0,)},
    4: {(1, 1): range(4), (2, 2): (0, 2), (4, 4): (0,)},
}
# Names in mig-parted's configurations of boards that the guide has no table of.
PARTED = {
    "gh200-144gb": "1g.18gb 1g.36gb 2g.36gb 3g.72gb 4g.72gb 7g.144gb",
    "gb200-186gb": "1g.23gb 1g.47gb 2g.47gb 3g.93gb 4g.93gb 7g.186gb",
    "b200-180gb": "1g.23gb 1g.45gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb",
    "b300-269gb": "1g.34gb 1g.67gb 2g.67gb 3g.135gb 4g.135gb 7g.269gb",
    "gb300-278gb": "1g.35gb 1g.70gb 2g.70gb 3g.139gb 4g.139gb 7g.278gb",
}


@pytest.mark.parametrize("name", GUIDE)
def test_profiles_are_those_of_nvidias_tables(name):
    rows = [
        f"{p.name} {p.engines.copy} {p.engines.decoders} {p.engines.jpeg} {p.engines.optical_flow} {p.max_instances}"
        for p in geometry(name).profiles
    ]
    assert sorted(rows) == sorted(GUIDE[name].split(", "))


@pytest.mark.parametrize("name", geometry_names())
def test_placements_are_those_that_nvidia_lists(name):
    g = geometry(name)
    for p in g.profiles:
        assert p.starts == tuple(STARTS[g.compute_slices][p.compute_slices, p.memory_slices]), p.name


@pytest.mark.parametrize("name", PARTED)
def test_boards_without_a_table_have_the_names_of_mig_parted(name):
    assert [p.name for p in geometry(name).profiles if "+" not in p.name] == PARTED[name].split()


def test_media_engines_are_divided():
    six = geometry("rtx-pro-6000-96gb")
    assert six.place(["1g.24gb+me.all", "1g.24gb-me", "2g.48gb-me"]) is not None
    assert six.place(["1g.24gb+me.all", "1g.24gb"]) is None
    assert geometry("a30").place(["1g.6gb+me", "2g.12gb+me"]) is None
    assert "media engines" in six.fault([("1g.24gb+me.all", 0), ("1g.24gb", 1)])
    assert "may not start at 1" in six.fault([("2g.48gb", 1)])
    assert six.place(["1g.24gb"], [("2g.48gb", 0)]) == (("1g.24gb", 2),)


def _fits_by_brute_force(g, names):
    profiles = [g.profile(n) for n in names]
    if any(names.count(p.name) > p.max_instances for p in profiles) or sum(n.endswith("+me") for n in names) > 1:
        return False
    if sum(p.compute_slices for p in profiles) > g.compute_slices:
        return False
    for starts in itertools.product(*(p.starts for p in profiles)):
        used = [s for p, start in zip(profiles, starts, strict=True) for s in range(start, start + p.memory_slices)]
        if len(used) == len(set(used)):
            return True
    return False


@settings(max_examples=60)
@given(st.data())
def test_placement_agrees_with_trying_every_placement(data):
    g = geometry(data.draw(st.sampled_from(["a30", "a100-40gb", "h100-80gb"])))
    names = data.draw(st.lists(st.sampled_from([p.name for p in g.profiles]), min_size=1, max_size=4))
    placed = g.place(names)
    assert (placed is not None) == _fits_by_brute_force(g, names)
    if placed:
        slices = [s for n, start in placed for s in range(start, start + g.profile(n).memory_slices)]
        assert len(slices) == len(set(slices)) and [n for n, _ in placed] == names


def test_a_slice_is_a_device_with_its_share():
    whole, part = device("a100-sxm4-80gb"), device("a100-sxm4-80gb:2g.20gb")
    assert part.id == "a100-sxm4-80gb:2g.20gb" and part.parent == whole.id and part.mig_profile == "2g.20gb"
    assert part.sm_count == 28 and part.memory_bytes == 19968 << 20
    assert part.peak_flops["fp16"] == pytest.approx(whole.peak_flops["fp16"] * 28 / 108)
    assert part.memory_bandwidth_bytes_s == pytest.approx(whole.memory_bandwidth_bytes_s / 4)
    assert part.l2_bytes == whole.l2_bytes // 4
    assert part.nvlink_bandwidth_bytes_s == 0
    assert {"power_limit_w", "idle_power_w"} <= set(part.estimated)
    assert part.mig is None


@pytest.mark.parametrize(
    "name", ["a100-sxm4-80gb:1g.10gb", "A100-SXM4-80GB/1g.10gb", "NVIDIA A100-SXM4-80GB MIG 1g.10gb"]
)
def test_spellings_of_a_slice(name):
    assert device(name) == device("a100-sxm4-80gb").mig_slice("1g.10gb") == device(name.replace("1g", "1G"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a100:9g.90gb", "unknown MIG profile '9g.90gb'.*1g.5gb"),
        ("t4:1g.5gb", "does not support MIG"),
        ("a100:1g.5gb:1g.5gb", "1g.5gb"),
    ],
)
def test_a_slice_that_does_not_exist_is_a_device_error(name, message):
    with pytest.raises(DeviceError, match=message):
        device(name)


def test_the_hint_is_the_smallest_profile_that_holds_the_bound():
    a100 = device("a100-sxm4-40gb")
    assert hint(1 * GIB, a100).profile == "1g.5gb" and hint(1 * GIB, a100).instances_per_gpu == 7
    assert hint(4.75 * GIB, a100).profile == "1g.5gb"
    assert hint(4.8 * GIB, a100).profile == "1g.10gb"  # nominal 5 GB, usable 4.75: it would crash in 1g.5gb
    assert "2g.10gb" in hint(4.8 * GIB, a100).reason
    assert hint(15 * GIB, a100).profile == "3g.20gb"
    assert hint(30 * GIB, a100).profile == "7g.40gb" and hint(30 * GIB, a100).instances_per_gpu == 1


@settings(max_examples=100)
@given(st.floats(0, 400 * GIB), st.sampled_from([d.id for d in catalogue() if d.mig]))
def test_a_hinted_profile_always_holds_the_memory_and_a_smaller_one_never_does(memory, name):
    target = device(name)
    found = hint(memory, target)
    plain = [p for p in target.mig.profiles if "+" not in p.name]
    if found.profile is None:
        assert all(p.memory_bytes < memory for p in plain) and found.instances_per_gpu == 0
        return
    chosen = target.mig.profile(found.profile)
    assert chosen.memory_bytes >= memory and found.instances_per_gpu == chosen.max_instances
    assert all(p.memory_bytes < memory for p in plain if p.memory_bytes < chosen.memory_bytes)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("t4", "compute capability 8.0"),
        ("rtx-4090", "MIG user guide"),
        ("mi300x", "NVIDIA feature"),
        ("cpu", "CPU"),
        ("a100:1g.5gb", "already"),
    ],
)
def test_without_mig_the_hint_says_why(name, words):
    found = hint(GIB, device(name))
    assert found.profile is None and found.instances_per_gpu == 0 and words in found.reason


def test_a_model_too_large_for_any_profile_is_told_so():
    found = hint(79 * GIB, device("a100-sxm4-80gb"))
    assert found.profile is None and "7g.80gb" in found.reason


def test_dippms_rule_as_published():
    table = {0: "1g.5gb", 4.99: "1g.5gb", 5: "2g.10gb", 9.9: "2g.10gb", 10: "3g.20gb", 19.9: "3g.20gb", 39: "7g.40gb"}
    for gib, profile in table.items():
        assert dippm_rule(gib * GIB) == profile
    assert dippm_rule(40 * GIB) is None


@pytest.mark.parametrize("bad", [-1, float("nan"), float("inf")])
def test_impossible_memory_is_an_argument_error(bad):
    for function in (lambda m: hint(m, device("a100")), dippm_rule):
        with pytest.raises(ArgumentError):
            function(bad)


def test_an_empty_configuration_is_an_argument_error():
    with pytest.raises(ArgumentError):
        geometry("a30").place([])
