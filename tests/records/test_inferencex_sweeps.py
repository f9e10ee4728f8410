"""What InferenceX ran: runs find the point of a sweep that they belong to, or none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfpass.records.readers import inferencex_sweeps
from perfpass.records.readers.inferencex_sweeps import layout, points
from served_records import served

B200 = {"family": "deepseek-v3", "device": "b200-sxm-180gb", "runtime": "trtllm", "precision": "nvfp4"}
RUN = {
    **B200, "input_tokens": 1024, "output_tokens": 1024, "requests": 1214, "disaggregated": True, "open": True,
    "prefill_gpus": 4, "decode_gpus": 8, "all_gpus": -1, "image": "one", "day": "2026-01-29", "measurement": "a",
    "tpot_ms": 10.0, "runtime_version": "0.8.1.post1", "data_parallel": 1,
}  # fmt: skip


def found(*runs: dict):
    import pandas

    return inferencex_sweeps.found(pandas.DataFrame([{**RUN, **run} for run in runs]))


@given(st.integers(1, 99), st.sampled_from(["tp", "tep", "dp", "dep"]), st.integers(0, 7))
def test_a_layout_spreads_attention_and_experts_over_all_gpus_of_a_worker(workers, kind, power):
    gpus = 2**power
    count, degrees = layout(f"{workers}x{kind}{gpus}")
    assert count == workers
    assert degrees["tensor_parallel"] * degrees["data_parallel"] == gpus
    assert degrees["moe_tensor_parallel"] * degrees["moe_expert_parallel"] == gpus
    assert (degrees["data_parallel"] == gpus or kind[0] == "t") and (degrees["moe_expert_parallel"] == 1 or "e" in kind)


def test_a_run_of_one_point_has_its_workers_and_drafts():
    row = found({}).iloc[0]
    assert (row.prefill, row.decode, row.draft_tokens, row.by_times) == ("1xdep4", "2xdep8", 2, False)
    assert row.decode_batch == 64


@pytest.mark.parametrize("change", [{"requests": 1213}, {"decode_gpus": 16}, {"open": False}, {"device": "l40s"}])
def test_a_run_of_no_point_stays_unknown(change):
    row = found(change).iloc[0]
    assert (row.prefill, row.decode, row.draft_tokens, row.decode_batch) == ("", "", -1, 0)


def test_a_run_that_several_points_fit_stays_unknown_until_its_sweep_tells():
    both = {"requests": 10, "measurement": "b"}
    assert found(both).decode.iloc[0] == ""
    # The certain point of its day drafts, and leaves room for both.
    assert found(both, {}).draft_tokens.tolist() == [3, 2]
    assert found(both, {"day": "2026-01-30"}).draft_tokens.tolist() == [-1, 2]


def test_two_measurements_of_two_points_are_told_apart_by_their_times_and_say_so():
    slow, fast = ({"requests": 10, "measurement": name, "tpot_ms": t} for name, t in (("slow", 9.0), ("fast", 4.0)))
    rows = found(slow, fast, {**slow, "day": "2026-01-30"})
    assert rows.draft_tokens.tolist()[:2] == [0, 3] and rows.by_times.tolist()[:2] == [True, True]


STATED = {
    "open": False, "stated": True, "measurement": "b", "prefill_workers": 1, "prefill_tensor_parallel": 1,
    "prefill_data_parallel": 4, "decode_workers": 2, "tensor_parallel": 1, "data_parallel": 8,
}  # fmt: skip


def stated(*runs: dict):
    import pandas

    unstated = {**dict.fromkeys(STATED, 0), **RUN, "stated": False}
    rows = pandas.DataFrame([{**unstated, **run} for run in runs])
    return inferencex_sweeps.with_stated(rows, inferencex_sweeps.found(rows))


def test_a_run_that_states_its_workers_has_the_settings_of_their_point_and_keeps_its_workers():
    row = stated(STATED).iloc[0]
    assert (row.prefill, row.decode, row.draft_tokens, row.decode_batch, row.by_times) == ("", "", 2, 64, False)


@pytest.mark.parametrize("change", [{"decode_workers": 3}, {"data_parallel": 1}, {"stated": False}, {"requests": 1213}])
def test_a_run_whose_own_workers_are_of_no_point_stays_unknown(change):
    row = stated({**STATED, **change}).iloc[0]
    assert (row.draft_tokens, row.decode_batch) == (-1, 0)


def test_one_measurement_has_one_setting_in_every_collection():
    slow, fast = ({"requests": 10, "measurement": name, "tpot_ms": t} for name, t in (("slow", 9.0), ("fast", 4.0)))
    rows = stated(slow, fast, {**STATED, **fast, "prefill_data_parallel": 1})
    assert rows.draft_tokens.tolist() == [0, 3, 3] and rows.by_times.tolist() == [True, True, True]
    assert rows.decode_batch.iloc[2] == rows.decode_batch.iloc[1] > 0 and rows.decode.iloc[2] == ""


def test_a_deployment_by_the_number_of_its_gpus_is_that_with_as_many():
    run = {"device": "gb200-186gb", "requests": 1075, "prefill_gpus": 20, "decode_gpus": 20}
    assert found({**run, "all_gpus": 36}).decode.iloc[0] == "1xdep32"
    assert found({**run, "all_gpus": 35}).decode.iloc[0] == ""


def test_runs_of_other_models_find_the_server_they_were_started_with():
    gb200 = {"family": "kimi-k2.5", "device": "gb200-186gb", "image": "", "day": ""}
    rows = found(
        {**gb200, "requests": 668, "decode_gpus": 8},
        {**gb200, "requests": 192, "decode_gpus": 8, "measurement": "b"},
        {**gb200, "family": "glm-5", "requests": 8192, "decode_gpus": 16, "measurement": "c"},
    )
    assert rows.decode.tolist() == ["4xtep8", "4xtep8", "1xdep16"] and rows.prefill.tolist()[2] == "2xdep4"
    assert rows.draft_tokens.tolist() == [0, 0, 0]
    # The limit of a server that runs several loads is known of the largest alone.
    assert rows.decode_batch.tolist() == [128, 0, 512]


def test_every_point_names_a_known_model_board_and_a_whole_layout():
    from perfpass.devices import device
    from perfpass.llm.configuration import language_model

    table = points()
    assert {device(name).id for name in table.device.unique()} == set(table.device)
    assert all(language_model(name).is_mixture for name in table.family.unique())
    assert (table.gpus > 0).all() and table.draft_tokens.between(0, 3).all()
    assert not table.duplicated([*inferencex_sweeps._POINT, *inferencex_sweeps._LAYOUT]).any()


def test_no_server_decodes_more_requests_at_once_than_its_settings_allow():
    """By their own times: of requests in flight as many decode as decoding has of a request's time (Little's law)."""
    data = served()
    rows = data.rows[data.rows.decode_batch > 0]
    decoding = rows.output_tokens * data.tpot_s[rows.index]
    at_once = rows.concurrency * decoding / (decoding + data.ttft_s[rows.index])
    places = rows.decode_batch * rows.decode_workers * rows.data_parallel
    assert len(rows) > 400 and (rows.concurrency > places).sum() > 200
    # Answers are up to a fifth shorter than stated, of which decoding is counted too long.
    assert (at_once < 1.1 * places).all()
    full = rows.concurrency > 1.05 * places
    assert (at_once / places)[full].median() == pytest.approx(1.0, abs=0.05)


def test_prompts_go_first_in_sglang_unless_its_generator_knows_the_option():
    import pandas

    from perfpass.records.readers.aiconfigurator_serving import _mixed_steps

    rows = pandas.DataFrame(
        [
            ("sglang", "0.5.1.post1", False, False),
            ("sglang", "0.5.6.post2", False, False),
            ("sglang", "0.5.6.post2", True, False),
            ("sglang", "0.5.9", False, True),
            ("vllm", "0.12.0", False, False),
        ],
        columns=["runtime", "runtime_version", "disaggregated", "inferencex"],
    )
    np.testing.assert_array_equal(_mixed_steps(rows), [0, 1, np.nan, 0, np.nan])
