"""Deployment advice: the slice that a utilisation asks for, and what a workload costs."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfpass.deploy import money
from perfpass.devices import catalogue, device
from perfpass.errors import ArgumentError, DeviceError, FileError, FormatError, LimitError
from perfpass.prediction import Interval
from perfpass.predictors.mig.profile import advise, utilisation
from perfpass.toml_table import LARGEST_FILE_BYTES

GIB = 2**30


@pytest.mark.parametrize(
    ("name", "by_share"),
    [
        (
            "a100-sxm4-40gb",
            {0.0: "1g.5gb", 0.249: "1g.5gb", 0.25: "2g.10gb", 0.499: "2g.10gb", 0.5: "3g.20gb", 0.66: "3g.20gb"}
            | {0.67: "4g.20gb", 0.83: "4g.20gb", 0.84: "7g.40gb", 1.0: "7g.40gb"},
        ),
        ("h100-sxm5-80gb", {0.1: "1g.10gb", 0.3: "2g.20gb", 0.55: "3g.40gb", 0.7: "4g.40gb", 0.9: "7g.80gb"}),
        ("a30", {0.1: "1g.6gb", 0.25: "2g.12gb", 0.49: "2g.12gb", 0.5: "4g.24gb", 1.0: "4g.24gb"}),
        ("rtx-pro-6000-blackwell", {0.2: "1g.24gb", 0.4: "2g.48gb", 0.6: "4g.96gb"}),
    ],
)
def test_utilisation_gives_the_slice_of_the_rule(name, by_share):
    assert {share: advise(share, GIB, device(name)).profile for share in by_share} == by_share


def test_a_slice_too_small_for_the_memory_is_skipped_and_named():
    a30 = advise(0.1, 6 * GIB, device("a30"))
    assert a30.profile == "2g.12gb" and a30.instances_per_gpu == 2
    assert "skipped, too small for up to 6 GiB: 1g.6gb (5.699 GiB)" in a30.reason
    # Where a profile of the same compute slices has more memory, it is taken first.
    a100 = advise(0.1, 6 * GIB, device("a100-sxm4-40gb"))
    assert a100.profile == "1g.10gb" and "1g.5gb" in a100.reason
    assert "skipped" not in advise(0.1, GIB, device("a100-sxm4-40gb")).reason


def test_a_workload_that_no_slice_holds_gets_none_with_a_way_out():
    found = advise(0.1, 39.9 * GIB, device("a100-sxm4-40gb"))
    assert found.profile is None and found.instances_per_gpu == 0 and "without MIG" in found.reason


def test_a_slice_smaller_than_the_share_says_what_it_costs():
    assert "1.9 times as long" in advise(0.24, GIB, device("a100-sxm4-40gb")).reason
    assert "as long" not in advise(0.1, GIB, device("a100-sxm4-40gb")).reason


@pytest.mark.parametrize(
    ("name", "reason"),
    [("t4", "has no MIG"), ("l40s", "no MIG"), ("mi300x", "NVIDIA"), ("a100-80gb:1g.10gb", "already")],
)
def test_a_device_without_mig_gets_a_reason(name, reason):
    found = advise(0.1, GIB, device(name))
    assert found.profile is None and reason in found.reason


@given(
    st.sampled_from([d for d in catalogue() if d.mig]),
    st.floats(0, 1),
    st.floats(0, 1),
    st.integers(0, 200).map(lambda g: g * GIB),
)
def test_advice_fits_and_grows_with_utilisation(target, one, other, memory):
    low, high = (advise(share, memory, target) for share in sorted((one, other)))
    for found in (low, high):
        if found.profile is not None:
            assert target.mig.profile(found.profile).memory_bytes >= memory
    if low.profile is None:
        assert high.profile is None
    elif high.profile is not None:
        assert target.mig.profile(low.profile).compute_slices <= target.mig.profile(high.profile).compute_slices


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_outside_0_to_1_is_an_error(share):
    with pytest.raises(ArgumentError, match="between 0 and 1"):
        advise(share, GIB, device("a30"))


def test_utilisation_is_the_larger_of_compute_and_bandwidth():
    assert utilisation(50e9, 0, 1000, 100e9, 1e9) == 0.5
    assert utilisation(50e9, 0.8e9, 1000, 100e9, 1e9) == 0.8
    assert utilisation(500e9, 0, 1000, 100e9, 1e9) == 1.0
    for wrong in ((1, 1, 0, 1, 1), (1, 1, 1, -1, 1), (-1, 1, 1, 1, 1), (1, float("inf"), 1, 1, 1)):
        with pytest.raises(ArgumentError, match="finite number"):
            utilisation(*wrong)


def test_every_shipped_price_names_a_known_device_a_day_and_a_source():
    known = {d.id for d in catalogue()} | {"host-cpu"}
    prices = money.read_prices()
    for row in prices:
        assert row.device in known, row
        assert datetime.date(2025, 1, 1) < row.date <= datetime.date.today(), row
        assert ":" in row.source, "the source's key is resolved to its title"
    assert {"h100-sxm5-80gb", "a100-sxm4-80gb", "t4", "l4", "host-cpu"} <= {row.device for row in prices}
    assert len({(row.device, row.provider) for row in prices}) == len(prices)


TABLE = """
[sources]
mine = "my contract"
[[price]]
device = "t4"
provider = "A"
usd_per_hour = 0.36
date = 2026-11-01
source = "mine"
[[price]]
device = "t4"
provider = "B"
usd_per_hour = 0.72
date = "2026-11-02"
source = "a bill"
approximate = true
[[price]]
device = "a30"
provider = "A"
usd_per_hour = 4
date = "2026-11-02"
source = "mine"
"""


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "prices.toml"
    path.write_text(TABLE)
    return money.read_prices(path)


def test_a_table_of_the_users_own_replaces_the_shipped_one(own):
    assert [row.provider for row in own] == ["A", "B", "A"]
    cheapest = money.price("t4", own)
    assert (cheapest.usd_per_hour, cheapest.source, cheapest.date) == (0.36, "my contract", datetime.date(2026, 11, 1))
    assert str(own[1]) == "about 0.72 USD an hour (B, 2026-11-02)"
    with pytest.raises(DeviceError, match=r"no price of l4 .* a30, t4"):
        money.price("l4", own)


def test_a_slice_costs_its_part_of_the_gpu(own):
    found = money.price("a30:1g.6gb", own)
    assert found.usd_per_hour == 1.0 and found.device == "a30:1g.6gb" and "one of 4 slices" in found.provider
    assert money.price("a30:4g.24gb", own).usd_per_hour == 4


def test_money_is_time_times_price(own):
    row = own[0]  # 0.36 USD an hour is 1e-4 USD a second
    assert money.per_million(8.0, 8, row) == pytest.approx(1e6 * 1e-3 * 1e-4)
    # 1001 samples in batches of 10 are 101 steps.
    assert money.per_epoch(100.0, 10, 1001, row) == pytest.approx(101 * 0.1 * 1e-4)
    found = money.per_million(Interval(8, 4, 16, "ms"), 8, row)
    assert (found.median, found.low, found.high) == pytest.approx((0.1, 0.05, 0.2)) and found.unit == "USD"


def test_bad_input_is_one_clear_error(own):
    for wrong in (0.0, -1.0, float("nan")):
        with pytest.raises(ArgumentError, match="latency"):
            money.per_million(wrong, 1, own[0])
    for wrong in (0, 1.5, True):
        with pytest.raises(ArgumentError, match="batch"):
            money.per_million(1.0, wrong, own[0])
    with pytest.raises(ArgumentError, match="samples"):
        money.per_epoch(1.0, 1, 0, own[0])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("usd_per_hour = 0.36", "usd_per_hour = -1", r"price 1: usd_per_hour -1"),
        ("usd_per_hour = 0.36", 'usd_per_hour = "0.36"', "price 1: usd_per_hour '0.36'"),
        ("usd_per_hour = 0.36", "", "price 1: lacks usd_per_hour"),
        ("usd_per_hour = 0.36", "usd_per_hour = nan", "price 1: usd_per_hour nan"),
        ('date = "2026-11-02"', 'date = "yesterday"', "price 2: date 'yesterday'"),
        ("approximate = true", "approximate = 1", "price 2: approximate"),
        ("approximate = true", "region = 1", "price 2: unknown 'region'"),
        ('provider = "B"', 'provider = ""', "price 2: provider"),
        ("[sources]", "schema = 2\n[sources]", "schema 2"),
        ("[sources]", 'currency = "EUR"\n[sources]', "EUR"),
        ("[[price]]", "[[cost]]", "unknown 'cost'; allowed are currency, price"),
        ("[sources]", "[sources", "not a TOML file"),
    ],
)
def test_a_broken_table_names_the_row_and_the_value(tmp_path, old, new, message):
    path = tmp_path / "prices.toml"
    path.write_text(TABLE.replace(old, new))
    with pytest.raises(FormatError, match=message) as error:
        money.read_prices(path)
    assert str(path) in str(error.value)


def test_a_missing_or_oversized_table_is_an_error(tmp_path):
    with pytest.raises(FileError, match=r"none\.toml"):
        money.read_prices(tmp_path / "none.toml")
    (tmp_path / "large.toml").write_bytes(b"#" * (LARGEST_FILE_BYTES + 1))
    with pytest.raises(LimitError, match="1048576"):
        money.read_prices(tmp_path / "large.toml")
