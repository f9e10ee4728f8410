"""Training and the vision predictor: splits keep groups apart, intervals cover, artefacts are what they claim."""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from perfpass import devices
from perfpass.errors import ArgumentError, ArtefactError, FileError
from perfpass.graph import OPERATOR_CLASS_OF, OPERATORS
from perfpass.graph.table import Tables
from perfpass.predictors import roofline
from perfpass.predictors.inference.features import FEATURES, graph_vectors
from perfpass.predictors.inference.predictor import InferencePredictor
from perfpass.predictors.learned import artefacts, intervals, packed_trees
from perfpass.predictors.learned.ratios import fingerprint
from perfpass.predictors.roofline import GROUPS, SOFTWARE, Workload
from perfpass.records import schema
from perfpass.records.location import data_directory
from perfpass.training import metrics
from perfpass.training.section import grade
from perfpass.training.tasks import splits

pandas = pytest.importorskip("pandas")
xgboost = pytest.importorskip("xgboost")

GPU = "rtx-4090"


def graph_vector(sizes, device, workload, efficiency):
    """Features [F], time and parts of one graph."""
    found = graph_vectors(Tables.one(sizes), device, workload, np.array([workload.batch]), efficiency)
    return SimpleNamespace(values=found.values[0], base_s=float(found.base_s[0]), row_s=found.row_s)


def table(rows):
    """An operator table from dicts; what a row does not say is 0."""
    names = ["macs", "flops", "bytes_read", "bytes_written", "weight_bytes", "input_elements", "output_elements"]
    names += ["b", "m", "n", "k", "kernel_area", "stride", "groups", "view"]
    op = np.array([OPERATORS.index(r["op"]) for r in rows], dtype=np.uint16)
    columns = {n: np.array([r.get(n, 0) for r in rows], dtype=np.int64) for n in names}
    count = np.array([r.get("count", 1.0) for r in rows], dtype=np.float64)
    return SimpleNamespace(
        op=op, op_class=OPERATOR_CLASS_OF[op], dtype=np.zeros(len(op), np.uint8), count=count, **columns
    )


def convolution(batch, channels=256, pixels=196, area=9, groups=1, width=2):
    k, n, m = channels // groups * area, channels // groups, batch * pixels
    macs = groups * m * n * k
    elements = batch * channels * pixels
    weights = channels * channels // groups * area * width
    sizes = {"input_elements": elements, "output_elements": elements, "b": groups, "m": m, "n": n, "k": k}
    traffic = {"bytes_read": elements * width + weights, "bytes_written": elements * width, "weight_bytes": weights}
    shape = {"kernel_area": area, "stride": 1, "groups": groups}
    return {"op": "conv", "macs": macs, "flops": 2 * macs, **sizes, **traffic, **shape}


@pytest.fixture(scope="module")
def predictor():
    return InferencePredictor.load()


@pytest.fixture(scope="module")
def recorded():
    from perfpass.records import tables, vision

    rows = vision.load()
    return rows[(rows["mode"] == "inference") & (rows.n_devices == 1)], tables.load()


# --------------------------------------------------------------------------------------------------------------- splits


@pytest.mark.parametrize("split", ["architecture", "family"])
def test_a_group_is_never_on_both_sides(split):
    generator = np.random.default_rng(0)
    architecture = generator.integers(0, 60, 900).astype(str)
    family = (architecture.astype(int) % 13).astype(str)
    device = generator.choice(["a", "b"], 900)
    keys = architecture if split == "architecture" else family
    tested = []
    for fold in splits.folds_of(split, architecture, family, device, 5):
        assert not set(keys[fold.train]) & set(keys[fold.test])
        tested.append(fold.test)
    assert sorted(np.concatenate(tested).tolist()) == list(range(900))


def test_device_folds_hold_out_one_device_each():
    device = np.array(["a", "b", "a", "c"])
    folds = list(splits.folds_of("device", device, device, device))
    assert [f.held_out for f in folds] == ["a", "b", "c"]
    assert folds[0].test.tolist() == [0, 2]


def test_an_unknown_split_is_refused():
    with pytest.raises(ArgumentError, match="unknown split 'kind'"):
        list(splits.folds_of("kind", ["a"], ["a"], ["a"]))
    with pytest.raises(ArgumentError, match="5 folds of 2 groups"):
        splits.groups_into_folds(["a", "b"], 5)


def test_whole_families_are_set_aside():
    family = np.array([f"family {i % 40}" for i in range(400)])
    aside = splits.set_aside(family)
    assert 0.1 < aside.mean() < 0.45
    assert not set(family[aside]) & set(family[~aside])
    assert np.array_equal(aside[:40], splits.set_aside(family[:40]))  # whatever else is there


# -------------------------------------------------------------------------------------------------------------- metrics


def test_kendall_tau_counts_pairs_in_order_and_is_0_where_nothing_is_ordered():
    assert metrics.kendall_tau(np.arange(4.0), np.array([0.0, 2.0, 1.0, 3.0])) == pytest.approx((5 - 1) / 6)
    ties = metrics.kendall_tau(np.array([1.0, 1.0, 2.0]), np.array([1.0, 2.0, 3.0]))
    assert ties == pytest.approx(2 / np.sqrt(2 * 3))
    assert metrics.kendall_tau(np.ones(5), np.arange(5.0)) == 0.0


def test_percentage_errors_are_relative_to_the_measurement():
    found = grade(np.array([1.05, 2.0]), np.array([1.0, 4.0]), np.array([0.9, 1.0]), np.array([1.2, 3.0]))
    assert found.mape_pct == pytest.approx(27.5)
    assert found.within_10_pct == pytest.approx(50.0)
    assert found.coverage_pct == pytest.approx(50.0)
    assert found.over_bound_pct == pytest.approx(50.0)
    assert found.rmse == pytest.approx(np.sqrt((0.05**2 + 2**2) / 2))
    with pytest.raises(ArgumentError, match="not above 0"):
        grade(np.ones(1), np.zeros(1))


# ------------------------------------------------------------------------------------------------------------ intervals


def test_conformal_bounds_cover_new_residuals_in_every_distance_bin():
    generator = np.random.default_rng(2)
    distance = generator.uniform(0, 0.5, 6000)
    residual = generator.normal(0, 0.02 + 0.4 * distance)
    found = intervals.conformal(residual[:3000], distance[:3000])
    low, high = found.bounds(distance[3000:])
    covered = (low <= residual[3000:]) & (residual[3000:] <= high)
    assert 0.87 < covered.mean() < 0.95
    for near, far in ((0.0, 0.1), (0.1, 0.35), (0.35, 0.5)):
        inside = (distance[3000:] >= near) & (distance[3000:] < far)
        assert covered[inside].mean() > 0.84


def test_bounds_never_narrow_with_distance():
    generator = np.random.default_rng(3)
    found = intervals.conformal(generator.normal(0, 0.1, 2000), generator.uniform(0, 0.5, 2000))
    assert list(found.low) == sorted(found.low, reverse=True)
    assert list(found.high) == sorted(found.high)


def test_pooled_widths_count_every_group_alike():
    many, few = np.full(900, 0.1), np.full(30, -0.8)
    assert intervals.pooled_width([many, few]) == pytest.approx(0.8)  # by rows alone it would be 0.1
    assert intervals.pooled_width([many, many, few], coverage=0.6) == pytest.approx(0.1)
    with pytest.raises(ArgumentError, match="empty"):
        intervals.pooled_width([many, few[:0]])


def test_an_unseen_network_widens_the_interval_of_an_unseen_device():
    found = intervals.ConformalTable((0.0, 0.1), (-0.05, -0.3), (0.05, 0.4), (500, 500))
    assert found.around(0.2, 0.0) == pytest.approx(0.2)
    assert found.around(0.2, 0.3) == pytest.approx(np.sqrt(0.2**2 + 0.4**2 - 0.05**2))


def test_nearest_is_the_plain_distance():
    generator = np.random.default_rng(4)
    a, b = generator.random((20, 7)).astype(np.float32), generator.random((30, 7)).astype(np.float32)
    plain = np.sqrt(((a[:, None] - b[None]) ** 2).sum(-1) / 2).min(1)
    np.testing.assert_allclose(intervals.nearest(a, b), plain, atol=1e-3)


# ------------------------------------------------------------------------------------------------------------- roofline


def test_bound_is_the_larger_of_compute_and_memory():
    device = devices.device("a100-sxm4-80gb")
    found = roofline.bound(table([convolution(64)]), device, Workload(64, "amp"))
    row = convolution(64)
    assert found.compute_s[0] == pytest.approx(row["flops"] / 312e12)
    assert found.memory_s[0] == pytest.approx(
        (row["bytes_read"] + row["bytes_written"]) / device.memory_bandwidth_bytes_s
    )
    assert found.roof_s[0] == max(found.compute_s[0], found.memory_s[0])


def test_convolutions_are_told_apart_by_kernel_and_groups():
    rows = [
        convolution(1, area=1),
        convolution(1),
        convolution(1, area=49),
        convolution(1, groups=8),
        convolution(1, groups=256),
    ]
    names = [GROUPS[g] for g in roofline.operator_groups(table(rows))]
    assert names == ["conv1x1", "conv3x3", "conv_large", "conv_grouped", "conv_depthwise3"]


def test_depthwise_convolutions_use_no_matrix_unit_and_large_ones_a_generic_kernel():
    device = devices.device("a100-sxm4-80gb")
    usual, large = convolution(64, area=25, groups=256), convolution(64, area=81, groups=256)
    found = roofline.bound(table([usual, large]), device, Workload(64, "amp"))
    rate = device.peak_flops["fp32"]
    assert found.compute_s[0] == pytest.approx(usual["flops"] / rate)
    assert found.compute_s[1] == pytest.approx(large["flops"] / (rate * roofline.GENERIC_DEPTHWISE))
    assert [GROUPS[g] for g in found.group] == ["conv_depthwise", "conv_depthwise_large"]


def test_a_copied_input_costs_its_bytes():
    sizes, device, ones = table([convolution(8)]), devices.device(GPU), np.ones((len(SOFTWARE), len(GROUPS)))
    resident = graph_vector(sizes, device, Workload(8, "amp"), ones)
    copied = graph_vector(sizes, device, Workload(8, "amp", copied_bytes=1e7), ones)
    assert copied.base_s - resident.base_s == pytest.approx(1e7 / roofline.PAGEABLE_COPY_BYTES_S)


def test_power_limit_caps_boards_that_cannot_feed_their_peak():
    capped, free = devices.device("rtx-pro-6000-blackwell-max-q"), devices.device("rtx-4090")
    assert roofline.sustained_flops(capped, "fp16") < 0.7 * capped.peak_flops["fp16"]
    assert roofline.sustained_flops(free, "fp16") == free.peak_flops["fp16"]
    assert roofline.sustained_flops(capped, "fp32") == capped.peak_flops["fp32"]


def test_efficiencies_are_recovered_from_sums():
    from perfpass.training.inference.model import fit_efficiency
    from perfpass.training.ratio_trees import PRIOR_FACTOR

    generator = np.random.default_rng(5)
    group_s = generator.exponential(1.0, (4000, len(GROUPS)))
    truth = generator.uniform(0.5, 3.0, len(GROUPS))
    found = fit_efficiency(group_s, np.zeros(4000, dtype=np.int64), group_s @ truth)
    eager = found[SOFTWARE.index("eager")]
    assert np.corrcoef(eager, truth)[0, 1] > 0.95
    before = np.abs(group_s.sum(1) * PRIOR_FACTOR / (group_s @ truth) - 1).mean()
    after = np.abs(group_s @ eager / (group_s @ truth) - 1).mean()
    assert after < before / 2


def test_features_are_finite_or_missing_and_named():
    vector = graph_vector(
        table([convolution(8)]), devices.device(GPU), Workload(8, "amp"), np.ones((len(SOFTWARE), len(GROUPS)))
    )
    assert vector.values.shape == (len(FEATURES),)
    assert len(set(FEATURES)) == len(FEATURES)
    assert not np.isinf(vector.values).any()
    assert vector.row_s.sum() > 0


def test_features_are_averages_over_the_time_of_each_operator():
    rows = [convolution(8), convolution(8, channels=512, pixels=49), convolution(8, area=1)]
    sizes, device, workload = table(rows), devices.device(GPU), Workload(8, "amp")
    efficiency = np.ones((len(SOFTWARE), len(GROUPS)))
    efficiency[:, GROUPS.index("conv1x1")] = 7.0
    found = graph_vector(sizes, device, workload, efficiency)
    value = dict(zip(FEATURES, found.values.tolist(), strict=True))
    share = found.row_s / found.row_s.sum()
    assert value["time_conv1x1"] == pytest.approx(share[2], rel=1e-5)
    assert value["gemm_k"] == pytest.approx(np.average(np.log2([r["k"] for r in rows]), weights=share), rel=1e-5)
    assert value["k_from_9.01"] == pytest.approx(share[:2].sum(), rel=1e-5)
    assert np.isnan(value["attention_m"])


# ------------------------------------------------------------------------------------------------------------ artefacts


def _boosters(count: int, **settings) -> tuple[list, np.ndarray]:
    generator = np.random.default_rng(6)
    x = generator.normal(size=(300, 5)).astype(np.float32)
    x[generator.random(x.shape) < 0.1] = np.nan
    y = np.nan_to_num(x[:, 0]) + 2.0
    settings = {"subsample": 0.5, "nthread": 1, "max_depth": 6, **settings}
    return [xgboost.train({"seed": s, **settings}, xgboost.DMatrix(x, y), 20) for s in range(count)], x


def _packed(boosters: list) -> bytes:
    return packed_trees.pack([bytes(b.save_raw("json")) for b in boosters])


def test_packed_trees_predict_the_mean_of_the_models():
    boosters, x = _boosters(3)
    mean = np.mean([b.predict(xgboost.DMatrix(x)) for b in boosters], axis=0)
    np.testing.assert_allclose(packed_trees.unpack(_packed(boosters)).predict(x), mean, rtol=0, atol=1e-3)


@pytest.mark.parametrize("settings", [{"max_depth": 1}, {"grow_policy": "lossguide", "max_leaves": 9, "max_depth": 0}])
def test_packed_trees_of_any_shape_send_every_value_where_xgboost_does(settings):
    (booster,), x = _boosters(1, **settings)
    trees = booster.trees_to_dataframe()
    on_threshold = x[: len(trees)].copy()
    splits = trees[trees.Feature != "Leaf"]
    for row, (feature, threshold) in enumerate(zip(splits.Feature, splits.Split, strict=True)):
        on_threshold[row % len(x), int(feature[1:])] = threshold
    for values in (x, on_threshold, np.full_like(x, np.nan)):
        found = packed_trees.unpack(_packed([booster])).predict(values)
        np.testing.assert_allclose(found, booster.predict(xgboost.DMatrix(values)), rtol=0, atol=1e-3)


def test_packed_trees_take_a_fifth_of_what_xgboost_writes():
    boosters, _ = _boosters(1, max_depth=7, min_child_weight=0)
    assert 5 * len(_packed(boosters)) < len(boosters[0].save_raw("ubj"))


def test_damaged_packed_trees_are_one_error_or_the_same_kind_of_forest():
    boosters, x = _boosters(1)
    content = _packed(boosters)
    generator = np.random.default_rng(2)
    for cut in generator.integers(0, len(content), 200):
        with pytest.raises(ArtefactError, match="damaged"):
            packed_trees.unpack(content[:cut])
    for at, value in zip(generator.integers(0, len(content), 600), generator.integers(0, 256, 600), strict=True):
        changed = bytearray(content)
        changed[at] = value
        try:
            assert packed_trees.unpack(bytes(changed)).predict(x[:, :5]).shape == (len(x),)
        except (ArtefactError, ArgumentError):
            continue


def test_an_artefact_that_was_changed_is_refused(tmp_path):
    artefacts.write(tmp_path, {"predictor": "test"}, {"a.bin": b"abc"})
    assert artefacts.Artefact(tmp_path).read("a.bin") == b"abc"
    (tmp_path / "a.bin").write_bytes(b"abd")
    with pytest.raises(ArtefactError, match="SHA-256"):
        artefacts.Artefact(tmp_path).read("a.bin")
    with pytest.raises(ArtefactError, match="lists no file"):
        artefacts.Artefact(tmp_path).read("../manifest.json")


def test_an_artefact_of_another_schema_is_refused(tmp_path):
    (tmp_path / "manifest.json").write_text(json.dumps({"schema_version": 99}))
    with pytest.raises(ArtefactError, match="schema 99, this version reads 1"):
        artefacts.Artefact(tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(ArtefactError, match="not JSON"):
        artefacts.Artefact(tmp_path)


def test_the_shipped_artefact_is_small_and_whole():
    folder = artefacts.shipped("inference")
    artefact = artefacts.Artefact(folder)
    assert sum(f.stat().st_size for f in folder.iterdir()) < 8e6
    for name in artefact.manifest["files"]:
        artefact.read(name)


def test_an_artefact_with_other_features_is_refused(tmp_path):
    shutil.copytree(artefacts.shipped("inference"), tmp_path / "inference")
    path = tmp_path / "inference" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["features"] = manifest["features"][1:]
    path.write_text(json.dumps(manifest))
    with pytest.raises(ArtefactError, match="features"):
        InferencePredictor(tmp_path / "inference")


# ------------------------------------------------------------------------------------------------------------ predictor


def test_predicting_imports_no_training_library():
    code = (
        "import sys; from perfpass.predictors.inference.predictor import InferencePredictor; InferencePredictor.load();"
        "heavy = {'torch', 'pandas', 'xgboost', 'scipy', 'pyarrow'} & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_loading_the_artefact_is_quick():
    InferencePredictor()
    best = min(_seconds(InferencePredictor) for _ in range(5))
    assert best < 0.15  # 60 ms on an idle core; the bound leaves room for a busy one


def _seconds(call):
    start = time.process_time()
    call()
    return time.process_time() - start


def test_recorded_networks_are_predicted_closely_and_inside_the_interval(predictor, recorded):
    rows, known = recorded
    rows = rows[(rows.source == "timm") & rows.device.str.startswith("rtx")].sample(120, random_state=0)
    errors, covered = [], []
    for r in rows.itertuples():
        if (r.source, r.model, r.img_size) not in known:
            continue
        sizes = known.table(r.source, r.model, r.img_size, r.batch, 16)
        workload = Workload(r.batch, r.precision, r.runtime, r.layout, r.runtime_version)
        found = predictor.predict(sizes, devices.device(r.device), workload)
        errors.append(abs(found.median_s * 1e3 / r.latency_ms - 1))
        covered.append(found.low_s * 1e3 <= r.latency_ms <= found.high_s * 1e3)
    assert np.mean(errors) < 0.06
    assert np.mean(covered) > 0.85


def test_the_core_scores_what_training_fitted(predictor, recorded):
    """The shipped trees on rows of the corpus: in the same units and order as when they were fitted."""
    rows, known = recorded
    row = rows[(rows.source == "timm") & (rows.device == GPU) & (rows.model == "resnet50")].iloc[0]
    sizes = known.table("timm", row.model, row.img_size, row.batch, 16)
    found = predictor.predict(
        sizes,
        devices.device(GPU),
        Workload(int(row.batch), row.precision, row.runtime, row.layout, row.runtime_version),
    )
    assert found.row_s.sum() == pytest.approx(found.median_s)
    assert found.median_s * 1e3 == pytest.approx(row.latency_ms, rel=0.1)
    assert found.support.level == "in range"


def test_what_was_not_measured_is_said(predictor):
    batch = 256
    resnet_like = table(
        [
            convolution(batch),
            {
                "op": "relu",
                "bytes_read": 10**8,
                "bytes_written": 10**8,
                "flops": 5 * 10**7,
                "output_elements": 5 * 10**7,
                "input_elements": 5 * 10**7,
            },
        ]
    )
    unseen = predictor.predict(resnet_like, devices.device("h100-sxm5-80gb"), Workload(batch, "amp"))
    assert unseen.ensemble == "portable"
    assert unseen.support.level != "in range"
    assert any("no measurement on" in r for r in unseen.support.reasons)
    precision = predictor.predict(resnet_like, devices.device(GPU), Workload(batch, "fp32"))
    assert any("fp32 torch nchw was not measured" in r for r in precision.support.reasons)
    dense = {
        "op": "dense",
        "macs": 10**12,
        "flops": 2 * 10**12,
        "bytes_read": 10**8,
        "bytes_written": 10**8,
        "b": 1,
        "m": 4096,
        "n": 4096,
        "k": 4096,
    }
    text = predictor.predict(
        table([dense, {"op": "embedding", "bytes_read": 10**6, "bytes_written": 10**6}]),
        devices.device(GPU),
        Workload(1, "amp"),
    )
    assert text.support.level == "outside"
    assert any("not a vision model" in r for r in text.support.reasons)
    assert text.high_s / text.low_s > unseen.high_s / unseen.low_s > 1


def test_a_device_with_few_records_is_treated_as_unseen(predictor):
    found = predictor.predict(table([convolution(12, width=4)]), devices.device("a100-sxm4-40gb"), Workload(12, "fp32"))
    assert found.ensemble == "portable"
    assert found.support.level != "in range"
    assert any("records on NVIDIA A100" in r for r in found.support.reasons)


def test_a_run_that_waits_for_the_host_says_so(predictor, recorded):
    _, known = recorded
    sizes = known.table("timm", "resnet50", 224, 1, 16)
    found = predictor.predict(sizes, devices.device(GPU), Workload(1, "amp"))
    assert any("bound by the host" in r for r in found.support.reasons)
    assert found.high_s / found.low_s > 2.5


def test_an_empty_table_still_has_a_positive_time(predictor):
    found = predictor.predict(table([]), devices.device(GPU), Workload(1, "amp"))
    assert 0 < found.low_s <= found.median_s <= found.high_s


def test_more_work_takes_longer(predictor, recorded):
    _, known = recorded
    for batches in ((64, 256, 1024),):
        times = [
            predictor.predict(
                known.table("timm", "resnet50", 224, b, 16), devices.device(GPU), Workload(b, "amp")
            ).median_s
            for b in batches
        ]
        assert times == sorted(times)


def test_fingerprints_do_not_depend_on_the_batch_much(recorded):
    _, known = recorded
    a, b = (fingerprint(known.table("timm", "resnet50", 224, n, 16), n) for n in (128, 1024))
    assert float(intervals.nearest(a[None], b[None])[0]) < 0.05


# ----------------------------------------------------------------------------------------------------- the two commands


@pytest.fixture(scope="module")
def small_corpus(tmp_path_factory):
    """One in twelve architectures on one device, in the layout of data/."""
    source = data_directory()
    folder = tmp_path_factory.mktemp("data")
    (folder / "records").mkdir()
    (folder / "graphs").symlink_to(source / "graphs")
    rows = pandas.read_parquet(source / "records" / "vision.parquet")
    names = sorted(set(rows.architecture))[::12]
    rows = rows[rows.architecture.isin(names) & rows.device.isin(["rtx-4090"])]
    schema.write(folder / "records" / "vision.parquet", "vision", rows)
    return folder


def test_evaluate_grades_and_writes_the_table(small_corpus, tmp_path, monkeypatch):
    from perfpass.training import areas, evaluate
    from perfpass.training import inference as vision

    def quick(folder, seed, *, quiet):
        return vision.evaluate(folder, seed, splits=["architecture"], folds=3, rounds=80, quiet=quiet)

    monkeypatch.setattr(areas, "module", lambda name: SimpleNamespace(evaluate=quick))
    report = evaluate(str(small_corpus), ["inference"], output=str(tmp_path), quiet=True)
    written = json.loads((tmp_path / "inference.json").read_text())
    assert written["lines"] == json.loads(json.dumps(report.to_dict()))["areas"]["inference"]["lines"]
    on_gpus = {x["method"]: x for x in written["lines"] if x["judged_on"] == "GPUs (timm)"}
    ours = on_gpus["perfpass"]
    assert ours["mape_pct"] < 20
    assert ours["mape_pct"] < on_gpus["MACs only"]["mape_pct"]
    assert "| latency ms | architecture | perfpass |" in (tmp_path / "vision.md").read_text()
    assert (tmp_path / "vision.png").read_bytes().startswith(b"\x89PNG")


def test_families_on_which_settings_were_chosen_are_not_graded(small_corpus):
    from perfpass.training.inference import evaluate

    report = evaluate(str(small_corpus), splits=["random"], folds=2, rounds=5, baselines=False, quiet=True)
    rows = pandas.read_parquet(small_corpus / "records" / "vision.parquet")
    aside = report.corpus["rows_set_aside"]
    assert 0 < aside < report.corpus["rows"] <= len(rows)
    assert report.lines[0].grade.rows == report.corpus["rows"] - aside
    assert splits.set_aside(report.corpus["families_set_aside"]).all()


def test_nothing_of_the_held_out_rows_reaches_their_predictions(small_corpus):
    from perfpass.training.inference import model
    from perfpass.training.inference.dataset import load

    dataset = load(small_corpus)
    test = np.flatnonzero(splits.groups_into_folds(dataset.rows.family, 3) == 0)
    train = np.setdiff1d(np.arange(len(dataset)), test)
    before = model.held_out(dataset, train, test, portable=False, seed=0, rounds=20).predicted_s
    dataset.measured_s[test] *= np.random.default_rng(0).uniform(0.1, 10.0, len(test))
    after = model.held_out(dataset, train, test, portable=False, seed=0, rounds=20).predicted_s
    np.testing.assert_array_equal(before, after)


def test_the_width_of_a_device_comes_from_other_devices():
    from perfpass.training.inference import calibrate

    def experiment(name, residual, evidence):
        rows = np.arange(50)
        ones = np.ones(50)
        return calibrate.Experiment(
            frozenset([name]), "gpu", rows, ones, ones, np.full(50, residual), np.full(50, evidence)
        )

    every = [experiment("a", 0.2, 0), experiment("b", -0.1, 0), experiment("c", 0.5, 1), experiment("c", 0.3, 2)]
    two, one = np.sqrt(3 / 2), np.sqrt(2)
    wide = {"common": 0.2 * two, "rare": 0.5 * one, "unmeasured": 0.5 * one}
    assert calibrate.widths(every, "gpu") == pytest.approx(wide)
    without = calibrate.widths(every, "gpu", without=["a", "c"])
    assert without == pytest.approx(dict.fromkeys(("common", "rare", "unmeasured"), 0.1 * one))
    np.testing.assert_allclose(calibrate.bounds(every[0], every), 0.1 * one)


def test_choosing_settings_names_the_best_of_those_tried(small_corpus):
    from perfpass.training.inference import choose
    from perfpass.training.inference.dataset import load

    grid = ({"max_depth": 1, "rounds": 2}, {"max_depth": 6, "rounds": 60})
    found = choose.choose(load(small_corpus), grid)
    assert found["best"] == grid[1]
    assert found["settings"][0]["mean"] > found["settings"][1]["mean"]
    assert [f["fade"] for f in found["fades"]["gpu"]] == list(choose.FADES)
    assert found["best_fade"]["gpu"] in choose.FADES


def test_the_settings_in_use_are_those_that_were_chosen():
    from perfpass.training.inference.model import ROUNDS, TREES, TREES_FADE

    stored = json.loads((data_directory() / "results" / "settings.json").read_text())
    assert stored["best"] == {**{k: TREES[k] for k in ("max_depth", "colsample_bytree")}, "rounds": ROUNDS}
    assert stored["best_fade"] == {kind: list(fade) for kind, fade in TREES_FADE.items()}


def test_evaluate_refuses_an_unknown_split(small_corpus):
    from perfpass.training.inference import evaluate

    with pytest.raises(ArgumentError, match="unknown split 'weather'"):
        evaluate(str(small_corpus), splits=["weather"])


def test_an_interrupted_training_goes_on_where_it_stopped(tmp_path, monkeypatch):
    from perfpass.training import areas, train

    runs = []

    def fit(name, folder, output, *, seed, quiet):
        if len(runs) == 1 and name == "second":
            runs.append("interrupted")
            raise KeyboardInterrupt
        runs.append(name)
        artefacts.write(Path(output), {"predictor": name}, {"x.bin": name.encode()})

    monkeypatch.setattr(areas, "AREAS", {"first": "", "second": ""})
    monkeypatch.setattr(areas, "module", lambda name: SimpleNamespace(train=partial(fit, name)))
    with pytest.raises(KeyboardInterrupt):
        train(output=str(tmp_path), quiet=True)
    train(output=str(tmp_path), resume=True, quiet=True)
    assert runs == ["first", "interrupted", "second"]
    train(output=str(tmp_path), resume=True, seed=1, quiet=True)
    assert runs[3:] == ["first", "second"]
    assert artefacts.Artefact(tmp_path / "second").read("x.bin") == b"second"


def test_a_full_disk_leaves_the_former_artefact(tmp_path, monkeypatch):
    place = tmp_path / "predictor"
    artefacts.write(place, {"predictor": "old"}, {"x.bin": b"old"})
    write = Path.write_bytes

    def full(path, content):
        if content == b"new":
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(FileError, match="No space left on device; the former artefact is untouched"):
        artefacts.write(place, {"predictor": "new"}, {"x.bin": b"new"})
    assert artefacts.Artefact(place).read("x.bin") == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["predictor"]


@pytest.mark.parametrize(
    "command",
    [
        ["train", "--area", "mig"],
        ["train", "--predictor", "dippm"],
        ["evaluate", "--area", "mig"],
        ["records", "."],
    ],
)
def test_an_output_that_cannot_be_written_is_one_error_before_any_work(command, tmp_path, monkeypatch, capsys):
    from perfpass.cli import main
    from perfpass.records import corpus
    from perfpass.training import areas
    from perfpass.training.published import dippm

    def worked(*arguments, **options):
        pytest.fail("worked before it looked at the output")

    monkeypatch.setattr(areas, "module", lambda name: SimpleNamespace(train=worked, evaluate=worked))
    monkeypatch.setattr(dippm, "train", worked)
    monkeypatch.setattr(corpus, "read", worked)
    (tmp_path / "file").write_text("")
    assert main([*command, "--output", str(tmp_path / "file" / "out")]) != 0
    error = capsys.readouterr().err
    assert "nothing can be written there" in error and len(error.splitlines()) == 1
