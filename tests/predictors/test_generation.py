"""Offline generation: readers refuse what cannot be; predictions keep physics, bounds and support."""

from __future__ import annotations

import dataclasses
import json
import shutil

import numpy as np
import pandas
import pytest

import perfpass
from offline_batches import predict_batch
from perfpass.devices import device
from perfpass.errors import ArgumentError, ArtefactError
from perfpass.llm.configuration import language_model
from perfpass.llm.costs import Parallelism, Quantization, Step
from perfpass.predictors.generation.features import FORM, rows_of
from perfpass.predictors.generation.predictor import GenerationPredictor, batch_of
from perfpass.predictors.learned import artefacts
from perfpass.predictors.learned.adapt import adapt
from perfpass.predictors.learned.components import Fitted, Form, Rows, Term
from perfpass.predictors.serving.base import prompt_seconds
from perfpass.predictors.serving.predictor import ServingPredictor
from perfpass.records import schema
from perfpass.records.location import data_directory
from perfpass.records.readers import argonne, ibm_llm_pilot, mlenergy, mlperf, splitwise, zeus
from perfpass.training.components.fit import fit

RECORDS = data_directory() / "records"


def _argonne_folder(tmp_path, rows):
    folder = tmp_path / argonne.FOLDER
    folder.mkdir()
    columns = ["device", "num_devices", "framework", "model", "input_output_length", "batch_size", "latency_s"]
    pandas.DataFrame(rows, columns=columns).to_csv(folder / "all_results.csv", index=False)
    power = pandas.DataFrame([[*rows[0], 250.0]], columns=[*columns, "avg_power_w"])
    power.to_csv(folder / "power_results.csv", index=False)
    first = ["device", "num_devices", "framework", "model", "input_length", "output_length", "batch_size"]
    values = [[*rows[0][:4], 1024, 1, 16, 0.4]]
    pandas.DataFrame(values, columns=[*first, "ttft_latency_s"]).to_csv(folder / "ttft_itl.csv", index=False)
    return tmp_path


def test_a_run_faster_than_memory_is_refused_and_llama_cpp_counts_one_sequence(tmp_path):
    rows = [
        ["Nvidia H100 GPU", 1, "vLLM", "meta-llama/Llama-2-7b-hf", 1024, 16, 13.2],
        ["Nvidia H100 GPU", 1, "TensorRT-LLM", "Qwen/Qwen2-7B", 2048, 1, 0.08],
        ["Nvidia A100 GPU", 1, "llama.cpp", "meta-llama/Llama-2-7b-hf", 128, 64, 2.24],
    ]
    reading = argonne.read(_argonne_folder(tmp_path, rows))
    assert reading.refused == {"faster than weights and cache can be read: generation was cut short": 1}
    table = reading.tables["generation"].set_index("runtime")
    assert table.loc["llama.cpp", "throughput_per_s"] == pytest.approx(2 * 128 / 2.24)
    assert "batch_is_prompt_chunk" in table.loc["llama.cpp", "caveats"]
    power = table[table.run == "power_results"].iloc[0]
    assert power.energy_j == pytest.approx(250.0 * 13.2)


def test_distilled_records_keep_source_licence_and_units():
    table = schema.read(RECORDS / "generation.parquet", "generation")
    assert set(table.source) == {"argonne", "mlenergy", "splitwise"}
    assert (table.licence != "").all() and table.listed.all()
    served = table[table["mode"] == "serving"]
    np.testing.assert_allclose(
        served.energy_j / served.output_tokens * served.throughput_per_s, served.power_w, rtol=0.02
    )
    server = schema.read(RECORDS / "server_power.parquet", "system")
    assert server.power_w.notna().sum() == 576 and server.energy_j.notna().sum() == 312
    assert (server[server.energy_j.notna()].scenario.isin(["SingleStream", "MultiStream"])).all()


@pytest.mark.parametrize("reader", [mlenergy, splitwise, zeus, ibm_llm_pilot, mlperf])
def test_a_reader_names_the_table_it_misses(reader, tmp_path):
    from perfpass.errors import FileError

    with pytest.raises(FileError, match="no such table"):
        reader.read(tmp_path)


def test_predictions_are_near_what_was_measured():
    table = schema.read(RECORDS / "generation.parquet", "generation")
    table = table[(table.source == "argonne") & (table.run == "all_results") & (table.device == "h100-sxm5-80gb")]
    table = table[table.runtime == "vllm"].iloc[::17]
    predictor = GenerationPredictor.load()
    off, inside = [], []
    for r in table.itertuples():
        batch = batch_of(
            r.model, r.device, devices=int(r.n_devices), batch=int(r.batch), input_tokens=int(r.input_tokens),
            output_tokens=int(r.output_tokens),
        )  # fmt: skip
        found = predictor.predict(batch).latency_s
        off.append(abs(found.median / (r.latency_ms / 1e3) - 1))
        inside.append(found.low <= r.latency_ms / 1e3 <= found.high)
    assert np.median(off) < 0.05 and np.mean(inside) > 0.8


def test_throughput_is_tokens_over_latency_and_more_tokens_take_longer():
    found = [predict_batch("llama-2-7b", "a100", batch=16, input_tokens=512, output_tokens=n) for n in (128, 512, 2048)]
    assert found[0].latency_s.median < found[1].latency_s.median < found[2].latency_s.median
    assert found[1].tokens_per_s.median == pytest.approx(16 * 1024 / found[1].latency_s.median)
    json.dumps(found[0].to_dict(), allow_nan=False)


def test_support_says_what_is_unknown_and_widens():
    options = {"batch": 16, "input_tokens": 512, "output_tokens": 512}

    def width(model, device, **more):
        found = predict_batch(model, device, **{**options, **more})
        return found.support, found.latency_s.high / found.latency_s.low

    known, narrow = width("llama-2-7b", "a100")
    model, wider = width("qwen2.5-14b", "h100")
    device, widest = width("llama-2-7b", "h200")
    beyond, _ = width("llama-2-7b", "a100", batch=2048)
    assert known.level == "near" and {model.level, device.level} <= {"near", "outside"}
    assert narrow < wider < widest
    assert any("another laboratory" in reason for reason in known.reasons)
    assert any("a device that was not learned from" in reason for reason in device.reasons)
    assert beyond.level == "outside" and "batch 2,048" in beyond.reasons[0]


def test_a_model_too_large_or_a_wrong_word_is_refused():
    with pytest.raises(ArgumentError, match="does not fit"):
        predict_batch("llama-2-70b", "a100", input_tokens=128, output_tokens=128)
    with pytest.raises(ArgumentError, match="runtime 'vLLM'"):
        predict_batch("llama-2-7b", "a100", runtime="vLLM", input_tokens=128, output_tokens=128)
    with pytest.raises(ArgumentError, match="output_tokens"):
        predict_batch("llama-2-7b", "a100", input_tokens=128, output_tokens=0)


def test_measurements_of_an_own_device_correct_its_predictions():
    predictor = GenerationPredictor.load()
    batches = [
        batch_of("llama-2-7b", "h200", batch=b, input_tokens=n, output_tokens=n) for b in (1, 16) for n in (128, 1024)
    ]
    measured = [2.0 * predictor.predict(b).latency_s.median for b in batches]
    correction = predictor.adapted(batches, measured)
    other = batch_of("mistral-7b", "h200", batch=8, input_tokens=512, output_tokens=512)
    ratio = predictor.predict(other, correction).latency_s.median / predictor.predict(other).latency_s.median
    assert 1.6 < ratio < 2.1
    with pytest.raises(ArgumentError, match="above 0"):
        predictor.adapted(batches, [1.0, 1.0, 0.0, 1.0])


def _toy(n=60, seed=3):
    random = np.random.default_rng(seed)
    components = random.uniform(0.1, 2.0, (n, 2))
    workload, traits = random.uniform(0, 4, (n, 1)), random.integers(0, 3, (n, 1)).astype(float)
    categories = np.array([["x", "ab"[i % 2]] for i in range(n)], dtype=object)
    return Rows(components, workload, traits, categories, np.zeros(n, dtype=bool))


_TOY = Form(
    components=("p", "q"),
    workload={"w": 2.0},
    traits={"t": 1.0},
    categories=("runtime", "device"),
    levels=((), ("device",)),
    averaged=(0, 1),
    terms=(Term(0.1, ("device",)), Term(0.05)),
    noise=1e-4,
    support=("device unseen", "seen"),
)


def test_factors_are_recovered_and_the_process_learns_the_rest():
    rows = _toy()
    physics = rows.components @ np.array([2.0, 0.5])
    fitted = fit(_TOY, rows, physics)
    np.testing.assert_allclose(fitted.predict(rows)[0], physics, rtol=0.02)
    bent = physics * np.exp(0.3 * np.sin(rows.workload[:, 0]))
    fitted = fit(_TOY, rows, bent)
    base, _ = fitted.base(rows)
    assert np.abs(np.log(fitted.predict(rows)[0] / bent)).mean() < 0.2 * np.abs(np.log(base[:, 1] / bent)).mean()


def test_far_from_all_records_the_physics_stay():
    rows = _toy()
    fitted = fit(_TOY, rows, 3.0 * rows.components.sum(axis=1) * np.exp(np.sin(rows.workload[:, 0])))
    far = dataclasses.replace(rows.take(np.array([0])), workload=np.array([[1e4]]))
    base, finest = fitted.base(far)
    assert fitted.predict(far)[0][0] == pytest.approx(float(np.exp(np.log(base[0]).mean())), rel=1e-6)
    assert fitted.predict(far)[1][0] > fitted.predict(rows)[1].max()
    assert finest[0] == 1


def test_an_unknown_device_takes_the_coarser_group():
    rows = _toy()
    fitted = fit(_TOY, rows, rows.components @ np.array([2.0, 0.5]))
    strange = dataclasses.replace(rows, categories=np.array([["x", "new"]] * len(rows), dtype=object))
    assert set(fitted.evidence(strange)) == {"device unseen"}
    tripled = adapt(fitted, strange.take(np.arange(20)), 3.0 * fitted.predict(strange.take(np.arange(20)))[0])
    ratio = tripled.predict(fitted, strange) / fitted.predict(strange)[0]
    assert 2.8 < np.median(ratio) < 3.1


def test_a_device_that_known_factors_fit_keeps_them():
    rows = _toy()
    fitted = fit(_TOY, rows, rows.components @ np.array([2.0, 0.5]))
    strange = dataclasses.replace(rows, categories=np.array([["x", "new"]] * len(rows), dtype=object))
    known = fitted.predict(strange)[0]
    assert adapt(fitted, strange, 1.05 * known).factors == {}
    assert len(adapt(fitted, strange, 1.5 * known).factors) == 1


def test_a_changed_artefact_or_form_is_refused(tmp_path):
    place = tmp_path / "generation"
    shutil.copytree(artefacts.shipped("generation"), place)
    GenerationPredictor(place)
    artefact = artefacts.Artefact(place)
    with pytest.raises(ArtefactError, match="form"):
        Fitted.read(dataclasses.replace(FORM, noise=1.0), artefact, "latency")
    weights = place / "latency_weights.npy"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\0\0")
    with pytest.raises(ArtefactError, match="SHA-256"):
        GenerationPredictor(place)


def test_rows_have_the_width_of_the_form():
    rows = rows_of([batch_of("mixtral-8x7b", "h100", devices=2, batch=4, input_tokens=64, output_tokens=32)])
    assert rows.components.shape == (1, len(FORM.components)) and (rows.components >= 0).all()
    assert rows.workload.shape == (1, len(FORM.workload)) and rows.traits.shape == (1, len(FORM.traits))


def test_tokens_of_a_prompt_beyond_its_answer_cost_their_prefill_alone():
    asked = {"runtime": "vllm", "batch": 4}
    short, long = (
        predict_batch("llama-2-7b", "a100-80gb", input_tokens=n, output_tokens=128, **asked).latency_s.median
        for n in (128, 2048)
    )
    model, split = language_model("llama-2-7b"), Parallelism.of(1)
    step = Step.of_prefill(4.0, np.array([128.0, 2048.0]))
    constants = ServingPredictor.load().constants
    one, other = prompt_seconds(model, device("a100-80gb"), split, Quantization("fp16", "fp16"), step, constants)
    # And the longer cache is read for each token of the answer.
    assert other - one < long - short < 2 * (other - one)


def test_a_batch_of_an_old_vllm_waits_for_its_host():
    """Splitwise's Llama 2 70B under vLLM of 2023: 29 and 30 ms a token on four and on eight H100, where device times
    would halve.
    """
    asked = {"runtime": "vllm", "concurrency": 1, "input_length": 512, "output_length": 512}
    new, graphs, eager = (
        perfpass.predict_offline("llama-2-70b", "h100", tp=8, runtime_version=v, **asked)
        for v in ("", "0.4.0", "0.2.0")
    )
    assert new.latency_s == graphs.latency_s
    assert eager.latency_s.median == pytest.approx(15.58, rel=0.2)
    fewer = perfpass.predict_offline("llama-2-70b", "h100", tp=4, runtime_version="0.2.0", **asked)
    assert fewer.latency_s.median < 1.3 * eager.latency_s.median
    with pytest.raises(ArgumentError, match="vllm and transformers, not of trtllm"):
        perfpass.predict_offline("llama-2-70b", "h100", **{**asked, "runtime": "trtllm"}, runtime_version="0.9.0")


def test_files_of_llama_cpp_keep_experts_that_were_published_in_mxfp4():
    """ggml-org's gpt-oss files (MXFP4_MOE, 11.27 and 59.02 GiB): experts as published, all else in Q8_0."""
    for name, gib in (("gpt-oss-20b", 11.27), ("gpt-oss-120b", 59.02)):
        q8, f16, q4 = (
            perfpass.predict_offline(name, "dgx-spark", runtime="llama.cpp", precision=p, input_length=512)
            for p in ("q8_0", "mxfp4", "q4_k_m")
        )
        assert q8.memory.weights_bytes / 2**30 == pytest.approx(gib, rel=0.03)
        assert q4.memory.weights_bytes > 0.9 * q8.memory.weights_bytes
        assert q8.token_s.median < f16.token_s.median
    dense = perfpass.predict_offline("qwen3-30b-a3b", "dgx-spark", runtime="llama.cpp", precision="q8_0")
    assert dense.memory.weights_bytes > 30e9
