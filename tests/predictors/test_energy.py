"""Energy, power, carbon and cost: near what was measured, bounded by the limit, flagged, and refused where wrong."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from perfpass.deploy import carbon
from perfpass.deploy.cost import Options, cost
from perfpass.devices import device
from perfpass.errors import ArgumentError, FileError, FormatError
from perfpass.llm.configuration import language_model
from perfpass.prediction import Interval
from perfpass.predictors.energy import features
from perfpass.predictors.energy.power import PowerModel
from perfpass.predictors.energy.predictor import AT_RATE, QUANTITIES, EnergyPredictor, unlike_records
from perfpass.predictors.learned.components import Rows
from perfpass.training.components.fit import fit_factors
from perfpass.training.components.grade import both_split, configurations, group_split, hold_out, random_split
from perfpass.training.energy import outside, widths
from perfpass.training.energy.dataset import load


@pytest.fixture(scope="module")
def quantities():
    return load()


@pytest.fixture(scope="module")
def predictor():
    return EnergyPredictor.load()


def test_every_quantity_has_records_and_a_form(quantities):
    assert set(quantities) == set(QUANTITIES)
    for name, q in quantities.items():
        form, unit = QUANTITIES[name]
        assert q.unit == unit and q.rows.components.shape == (len(q), len(form.components))
        assert (q.measured > 0).all() and (q.rows.components >= 0).all() and len(q) > 100


def test_serving_energy_is_near_what_was_measured(predictor, quantities):
    q = quantities["serving_energy"]
    fitted = predictor.fitted["serving_energy"]
    off = np.abs(fitted.predict(q.rows)[0] / q.measured - 1)
    assert np.median(off) < 0.03 and off.max() < 0.5


def test_a_model_held_out_is_predicted_by_the_others(quantities):
    q = quantities["serving_energy"]
    folds = [f for f in group_split(q.model) if f.held_out in ("google/gemma-2-9b-it", "codellama/CodeLlama-34b-hf")]
    held = hold_out(q, folds)
    rows = held.fold >= 0
    assert np.abs(held.predicted[rows] / q.measured[rows] - 1).mean() < 0.15
    assert set(held.evidence[rows]) == {"seen, model unseen"}


def test_splits_keep_repeats_models_and_devices_together(quantities):
    q = quantities["training_power"]
    for fold in random_split(q):
        assert not set(q.configuration[fold.train]) & set(q.configuration[fold.test])
    for fold in both_split(quantities["batch1_energy"]):
        b = quantities["batch1_energy"]
        assert not set(b.model[fold.train]) & set(b.model[fold.test])
        assert not set(b.device[fold.train]) & set(b.device[fold.test])


def test_bounds_of_a_held_out_board_know_none_of_its_errors(quantities):
    q = quantities["diffusion_energy"]
    splits = {"random": random_split(q), "device": group_split(q.device), "device and model": both_split(q)}
    held = {name: hold_out(q, folds) for name, folds in splits.items()}
    low, high = widths.edges(q, splits, "device", held)
    board = held["device"].fold == 0
    moved = replace(q, measured=q.measured * np.where(board, 3.0, 1.0))
    again = widths.edges(moved, splits, "device", held)
    np.testing.assert_allclose(again[0][board], low[board], rtol=1e-6)
    np.testing.assert_allclose(again[1][board], high[board], rtol=1e-6)
    assert (again[1][~board] > high[~board]).all()


def test_power_stays_within_the_limit_and_follows_it(predictor):
    v100 = device("v100")
    found = [
        predictor.training_power(features.Trained(v100, "resnet50", "imagenet", 256, limit)).value
        for limit in (100, 150, 250)
    ]
    assert found[0].median < found[1].median < found[2].median
    assert all(f.high <= limit for f, limit in zip(found, (100, 150, 250), strict=True))
    h100 = device("h100")
    run = features.Offline(language_model("llama-3.1-8b"), h100, 1, "vllm", 64, 1024, 1024)
    power = predictor.offline_power(run)
    assert h100.idle_power_w < power.value.median <= h100.power_limit_w and power.kind == "learned"


def test_a_held_board_draws_a_fifth_of_its_limit_whatever_was_measured_of_it(predictor, quantities):
    """Batches on one board never wait and cannot tell; servers of another source can, and agree."""
    at = features.OFFLINE_POWER.components.index("held")
    for groups in predictor.fitted["offline_power"].factors:
        assert {factors[at] for factors in groups.values()} == {features.HELD_SHARE}
    servers = predictor.fitted[AT_RATE].factors[-1].values()
    at = features.SERVING_AT_RATE.components.index("held")
    assert np.mean([0.1 * factors[at] for factors in servers]) == pytest.approx(features.HELD_SHARE, rel=0.03)
    waiting = features.Offline(language_model("llama-2-7b"), device("a100-sxm4-80gb"), 8, "vllm", 1, 128, 128)
    rows = features.offline_power_rows([waiting])
    held = hold_out(quantities["offline_power"], group_split(quantities["offline_power"].others["source"]))
    assert predictor.fitted["offline_power"].base(rows)[0][0, 0] > features.HELD_SHARE * 8 * 400
    # 26 % with a share of its own in each source.
    assert np.abs(held.predicted / quantities["offline_power"].measured - 1).mean() < 0.21


def test_factors_that_are_given_stay_and_the_others_are_fitted_on_what_they_leave():
    rng = np.random.default_rng(0)
    n, form = 60, features.OFFLINE_POWER
    components = rng.uniform(10, 200, (n, 3)) * [1, 0.2, 0] + [0, 0, 400]
    measured = components @ [0.7, 0.4, features.HELD_SHARE]
    none = np.zeros((n, 0))
    rows = Rows(components, none, none, np.full((n, 3), "one", dtype=object), np.zeros(n, bool))
    for groups in fit_factors(form, rows, measured):
        assert next(iter(groups.values()))[2] == features.HELD_SHARE
    np.testing.assert_allclose(next(iter(groups.values()))[:2], [0.7, 0.4], rtol=0.1)


def test_joules_of_a_board_are_those_of_its_chip(predictor):
    model = language_model("llama-3.1-8b")

    def joules(name: str, rate: float = 1500.0) -> float:
        served = features.Served(model, device(name), 1, 32.0, 1024, 256)
        one = predictor.serving_at_rate(served, rate).value
        many = predictor.serving_at_rates([served], np.array([rate]))
        assert many.median[0] == pytest.approx(one.median) and many.high[0] == pytest.approx(one.high)
        return one.median

    h100, a100 = joules("h100-sxm5-80gb"), joules("a100-sxm4-40gb")
    # A module's limit covers its host; the chip of all four is one.
    assert (
        joules("gh200-96gb") == joules("gh200-144gb") == pytest.approx(h100) == pytest.approx(joules("h200-sxm-141gb"))
    )
    assert joules("a100-sxm4-80gb") == pytest.approx(a100)
    # Held, a board with a lower limit draws less; the joules of its work are the same.
    lower = 0.1 * (400 - 250) / 400 * predictor.fitted[AT_RATE].factors[-1]["a100-sxm4-40gb"][0]
    assert joules("a100-sxm4-40gb", 400.0) - joules("a100-pcie-40gb", 400.0) == pytest.approx(lower, rel=0.25)
    # Another chip is carried over by physics, as before.
    b200 = features.Served(model, device("b200"), 1, 32.0, 1024, 256)
    rows = features.serving_at_rate_rows([b200], [1500.0])
    assert predictor.serving_at_rate(b200, 1500.0).value.median == predictor.fitted[AT_RATE].predict(rows)[0][0]


def test_other_laboratories_batches_draw_what_is_told():
    """20.4 %, and 40 of TensorRT-LLM's, where a board of a known chip was none."""
    asked = outside.load()
    medians, _ = outside.answers(EnergyPredictor.load(), asked)
    off = np.abs(medians / np.array([a.measured_j for a in asked]) - 1)
    runtimes = np.array([a.runtime for a in asked])
    assert off.mean() < 0.18 and off[runtimes == "trtllm"].mean() < 0.32


def test_boards_with_a_low_limit_reach_it_and_others_draw_as_they_did():
    model = PowerModel(floor=0.27, compute=1.04, memory=0.45, low=0.43, high=1.69)
    uses = np.array([0.2]), np.array([0.6])
    for name in ("t4", "l4"):
        found = model.predict(device(name), *uses)
        assert found.median[0] > 0.95 * device(name).power_limit_w >= 0.95 * found.high[0]
    for name in ("v100", "a100", "a10g"):
        assert model.predict(device(name), *uses).median[0] == pytest.approx(
            model.share(*uses)[0] * device(name).power_limit_w
        )
    assert model.predict(device("t4"), np.zeros(1), np.zeros(1)).median[0] == pytest.approx(0.27 * 70)


def test_larger_batches_take_less_energy_per_token(predictor):
    model, h100 = language_model("llama-3.1-8b"), device("h100")
    found = [predictor.serving(features.Served(model, h100, 1, b, 200, 400, "chat")) for b in (16, 64, 256)]
    assert found[0].value.median > found[1].value.median > found[2].value.median
    assert found[1].support.level == "in range"
    json.dumps(found[0].to_dict(), allow_nan=False)


def test_energy_at_a_known_rate_never_asks_for_more_than_the_boards_give(predictor):
    served = features.Served(language_model("llama-3.1-8b"), device("h100"), 2, 64, 1000, 400, "chat")
    for rate in (50.0, 2000.0, 1e6):
        found = predictor.serving_at_rate(served, rate).value
        assert found.high <= 2 * 700 / rate * (1 + 1e-9)
    slow, fast = (predictor.serving_at_rate(served, r).value.median for r in (500.0, 2000.0))
    assert fast < slow


def test_another_runtime_or_vendor_widens_energy_at_a_known_rate(predictor):
    model = language_model("llama-3.1-8b")

    def width(on, runtime, weight_bytes=2.0):
        served = features.Served(model, device(on), 1, 64, 1000, 400, "chat", weight_bytes=weight_bytes)
        found = predictor.serving_at_rate(served, 2000.0, unlike_records(served, runtime)).value
        return found.high / found.low

    assert width("h100", "trtllm") > 1.2 * width("h100", "vllm") < width("h100", "vllm", 1.0)
    assert width("mi210", "vllm") > width("a30", "vllm")


def test_other_laboratories_widen_by_laboratory_and_runtime_alone(predictor, quantities):
    asked = outside.load()
    medians, errors = outside.answers(predictor, asked)
    assert len(asked) > 50 and (medians > 0).all()
    lacks = dict(zip(errors.causes, errors.lacks.T, strict=True))
    assert (lacks["laboratory"] == 1).all()
    np.testing.assert_array_equal(lacks["runtime"], [a.runtime == "trtllm" for a in asked])
    low, high = predictor.spread[AT_RATE].bounds(lacks)
    assert np.mean((low <= errors.residual) & (errors.residual <= high)) > 0.85
    # What a laboratory adds does not widen rows of the records, which lack none.
    q = quantities[AT_RATE]
    splits = {"random": random_split(q), "device": group_split(q.device)}
    held = {name: hold_out(q, folds) for name, folds in splits.items()}
    without, within = (widths.edges(q, splits, "random", held, more) for more in ([], [errors]))
    assert np.median(within[1] / within[0]) < 1.05 * np.median(without[1] / without[0])


def test_what_was_not_measured_is_said_and_widens(predictor):
    model = language_model("llama-3.1-8b")
    seen = predictor.serving(features.Served(model, device("h100"), 1, 64, 200, 400, "chat"))
    unseen = predictor.serving(features.Served(model, device("h200"), 1, 64, 200, 400, "chat"))
    assert unseen.support.level == "near" and "device unseen" in unseen.support.reasons[0]
    assert unseen.value.high / unseen.value.low > 1.1 * seen.value.high / seen.value.low
    far = predictor.training_power(features.Trained(device("v100"), "vgg16", "imagenet", 64, 250))
    assert far.support.level == "outside"
    with pytest.raises(ArgumentError, match="mean_batch"):
        features.Served(model, device("h100"), 1, 0, 200, 400)


def test_carbon_is_energy_times_intensity_times_pue():
    france = carbon.grid("fr")
    assert (france.g_per_kwh, france.year) == (56, 2023) and "Ember" in france.source
    assert carbon.emitted(3.6e6, france) == pytest.approx(56)
    energy = Interval(3.6e6, 1.8e6, 7.2e6, "J")
    found = carbon.emitted(energy, carbon.own_grid(100), pue=1.5)
    assert (found.low, found.median, found.high, found.unit) == (75, 150, 300, "g")


def test_wrong_regions_figures_and_tables_are_refused(tmp_path):
    with pytest.raises(ArgumentError, match="known are"):
        carbon.grid("Atlantis")
    with pytest.raises(ArgumentError, match="gCO2e/kWh"):
        carbon.own_grid(56_000)
    with pytest.raises(ArgumentError, match=r"PUE 0\.9"):
        carbon.drawn(1.0, 0.9)
    with pytest.raises(FileError):
        carbon.read_grids(tmp_path / "none.toml")
    table = tmp_path / "grids.toml"
    for text, match in (("x = [", "not a TOML"), ("year = 2023\n[grid]\nFR = 'low'\n", "FR"), ("year = 2023", "grid")):
        table.write_text(text)
        with pytest.raises(FormatError, match=match):
            carbon.read_grids(table)
    table.write_text('year = 2030\nsource = "me"\n[grid]\nfr = 10\n')
    assert carbon.grid("FR", table).g_per_kwh == 10


def test_cost_is_energy_carbon_and_money_of_many_runs():
    latency, energy = Interval(3.6, 1.8, 7.2, "ms"), Interval(1.0, 0.5, 2.0, "J")
    found = cost(latency, energy, device("t4"), Options(region="DE", pue=1.2), devices=2)
    assert found.energy_j.median == pytest.approx(1200)
    assert found.carbon_g.median == pytest.approx(1200 / 3.6e6 * 381)
    assert found.usd.median == pytest.approx(2 * 0.5904 / 1000)
    assert found.energy_kind == "physics" and any("Ember" in note for note in found.notes)
    without = cost(latency, energy, device("rtx-4090"), Options())
    assert without.carbon_g is None and without.usd is None and "no price" in without.notes[0]


def test_predict_prints_the_cost_block_only_where_asked(capsys):
    from perfpass.cli import main

    arguments = ["predict", "examples/resnet50.onnx", "--device", "t4", "--json"]
    assert main(arguments) == 0
    assert "cost" not in json.loads(capsys.readouterr().out)
    assert main([*arguments, "--region", "FR", "--pue", "1.2"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cost"]["pue"] == 1.2 and found["cost"]["energy_kind"] == "physics"
    expected = found["energy_j"]["median"] * 1000 * 1.2 / 3.6e6 * 56
    assert found["cost"]["carbon_g"]["median"] == pytest.approx(expected)
    assert main([*arguments, "--region", "Atlantis"]) == 2


def test_rows_are_alike_where_all_columns_are():
    import pandas

    table = pandas.DataFrame({"device": ["a40", "a40", "l4"], "batch": [8, 8, 16], "share": [0.5, 0.5, 1.0]})
    assert configurations(table).tolist() == table.astype(str).agg("|".join, axis=1).tolist()
    assert len(set(configurations(table))) == 2 and configurations(table).dtype == object
