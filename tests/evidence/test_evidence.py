"""The records behind a prediction: the nearest ones, their copies, and a table that another wrote."""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pytest

import perfpass
from perfpass import cli, evidence
from perfpass.errors import ArgumentError, FormatError, PerfPassError, UnsupportedError
from perfpass.predictors.relative import nearest as relative
from perfpass.predictors.relative import scope
from perfpass.text import WIDTH

QUANTITIES = sorted(relative.QUANTITIES)


@pytest.fixture(scope="module")
def records():
    return evidence.load()


def measured(records, quantity, count=6, kinds=("inference", "step", "serving", "generation")):
    """Rows whose network and device are known, that measured a quantity, spread over the table."""
    what = relative.QUANTITIES[quantity]
    kind = np.array(records.texts["kind"].values)[records.texts["kind"].code]
    good = np.isfinite(records.numbers[what.figure]) & np.isfinite(records.numbers[what.work]) & np.isin(kind, kinds)
    rows = [row for row in np.flatnonzero(good).tolist() if records.device(records.texts["device"][row])]
    return [rows[i] for i in np.linspace(0, len(rows) - 1, count).astype(int)]


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_a_record_answers_its_own_question_first_with_what_was_measured(records, quantity):
    what = relative.QUANTITIES[quantity]
    for row in measured(records, quantity):
        found = relative.nearest(records.question(row), records, quantity, limit=None)
        place = found.rows.tolist().index(row)
        assert found.total[0] == found.total[place] == pytest.approx(0.0, abs=1e-9)
        assert found.factor[place] == pytest.approx(1.0)
        assert found.copied[place] == pytest.approx(records.numbers[what.figure][row])


def test_copies_come_in_the_order_of_their_distance(records):
    found = relative.nearest(records.question(measured(records, "time")[2]), records, "time", limit=50)
    assert np.all(np.diff(found.total) >= 0) and len(found.rows) == 50
    assert found.distances.shape == (50, len(relative.DIMENSIONS)) and (found.distances >= 0).all()


def test_every_record_of_a_known_device_is_a_question(records):
    for row in range(0, len(records), 97):
        if records.device(records.texts["device"][row]) is not None:
            asked = records.question(row)
            assert asked.devices >= 1 and asked.processes >= 1
    unstated = np.flatnonzero(~(records.numbers["devices"] > 0))
    known = [row for row in unstated.tolist() if records.device(records.texts["device"][row]) is not None]
    assert known and records.question(known[-1]).devices == 1


def test_scaling_there_and_back_is_one(records):
    first, second = measured(records, "time", kinds=("inference",))[1:3]
    there, back = records.question(first), records.question(second)
    what = relative.QUANTITIES["time"]
    one = relative.scaling(there, records, np.array([second]), what) * relative.scaling(
        back, records, np.array([first]), what
    )
    assert one[0] == pytest.approx(1.0)


@pytest.mark.parametrize("left_out", relative.LEAVE_OUT)
def test_what_is_left_out_does_not_answer(records, left_out):
    row = measured(records, "time", kinds=("inference",))[3]
    value = records.names[row] if left_out == "model" else records.texts[left_out][row]
    found = relative.nearest(records.question(row), records, "time", limit=200, leave_out={left_out: {value}})
    column = records.names if left_out == "model" else records.texts[left_out]
    assert len(found.rows) and value not in {column[i] for i in found.rows}


def test_the_baseline_never_copies_a_record_from_itself(records):
    rows = np.array(measured(records, "time", 3, ("inference",)))
    copied, far = relative.copies(records, "time", rows, leave_out=("source",))
    assert np.isfinite(copied).all() and (copied > 0).all() and (far > 0).all()
    with pytest.raises(ArgumentError, match="leave_out"):
        relative.copies(records, "time", rows, leave_out=("weather",))


@pytest.mark.parametrize("device", ["a100-sxm4-40gb:1g.5gb", "t4", "mi300x", "cpu"])
def test_memory_is_answered_by_the_same_kind_of_device_alone(records, device):
    asked = perfpass.predict("examples/resnet50.onnx", device, batch=8).asked.question()
    found = relative.nearest(asked, records, "memory", limit=None)
    kinds = {records.texts["memory_kind"][row] for row in found.rows}
    assert kinds and (kinds == {"host_peak_rss"}) == (device == "cpu") and "" not in kinds
    if device != "cpu":
        assert {records.device(records.texts["device"][row]).kind for row in found.rows} == {"gpu"}


def test_a_whole_query_stands_behind_every_timing_of_the_network_alone(records):
    asked = perfpass.predict("examples/resnet50.onnx", "a100-sxm4-80gb", batch=1).asked.question()
    found = relative.nearest(asked, records, "time", limit=None)
    of_query = np.array([records.texts["source"][row] == "co2_inference" for row in found.rows])
    apart = found.distances[:, relative.DIMENSIONS.index("scope")]
    assert of_query.any() and not of_query[:10].any() and (apart[of_query] > relative.FAR).all()
    found = relative.nearest(asked, records, "energy", limit=1)  # nothing else measured it, which is then said
    assert found.total[0] > relative.FAR


@pytest.mark.parametrize("device", ["apple-m2", "rtx-4090"])
def test_an_engine_without_a_server_is_answered_by_its_own_records(records, device):
    from offline_batches import predict_batch

    how = {"runtime": "llama.cpp", "precision": "q4_k_m", "batch": 512, "input_tokens": 1024, "output_tokens": 128}
    asked = predict_batch("llama-3.1-8b", device, **how).asked.question()
    for quantity in ("first token", "token"):
        found = relative.nearest(asked, records, quantity, limit=3)
        assert {records.texts["runtime"][row] for row in found.rows} == {"llama.cpp"}
        assert found.total[0] < relative.FAR and 0.01 < found.factor[0] < 100


@pytest.mark.parametrize(
    ("question", "command"),
    [
        (["llama-3.1-8b", "--device", "rtx-4090", "--runtime", "llama.cpp", "--precision", "q4_k_m"], "llm"),
        (["llama-3.1-8b", "--device", "a100", "--runtime", "transformers"], "llm"),
        (["llama-3.1-8b", "--device", "l40s", "--concurrency", "16"], "llm"),
        (["t5-large", "--device", "a100"], "predict"),
        (["bert-base", "--device", "t4"], "predict"),
    ],
)
def test_evidence_asks_what_the_command_of_the_same_arguments_answers(capsys, question, command):
    """A model of both commands: an engine without a server is no server's, an encoder-decoder is a graph."""

    def said(name):
        assert cli.main([name, *question, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    def medians(value):
        if isinstance(value, dict) and "median" in value:
            return [value["median"] * (1e3 if value.get("unit") == "s" else 1.0)]
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return [m for v in inner for m in medians(v)]

    answered, found = medians(said(command)), said("evidence")["quantities"]
    shown = [m for q in found if q["quantity"] in ("time", "first token", "token") for m in medians(q["predicted"])]
    assert shown and all(any(m == pytest.approx(a, rel=1e-6) for a in answered) for m in shown)


@pytest.mark.parametrize("quantity", ["token", "request energy"])
def test_requests_with_images_and_unstated_prompts_are_far_from_requests_of_text(records, quantity):
    asked = perfpass.predict_llm("llama-3.1-8b", "h100-sxm", concurrency=8).asked.question()
    found = relative.nearest(asked, records, quantity, limit=None)
    images = np.array([records.texts["task"][row].startswith("mllm") for row in found.rows])
    unstated = ~np.isfinite(records.numbers["input_tokens"][found.rows])
    apart = found.distances[:, relative.DIMENSIONS.index("scope")]
    assert images.any() and not images[:10].any()
    assert np.allclose(apart, 0.5 * images + 0.8 * unstated)
    if quantity == "token":  # of the energy of a request nothing else is known on such a device
        assert not unstated[:3].any() and (found.copied[:3] / 7.6 > 0.5).all() and (found.copied[:3] / 7.6 < 2).all()


def test_a_record_asks_its_own_question_whatever_its_task_is(records):
    """The baseline that copies the nearest record is graded on these."""
    rows = [i for i in range(len(records)) if records.texts["task"][i].startswith("mllm")]
    assert records.question(rows[0]).timed == ""


def test_what_every_source_timed_is_sorted(records):
    kind = np.array(records.texts["kind"].values)[records.texts["kind"].code]
    timed = np.array(records.texts["timing"].values)[records.texts["timing"].code]
    assert set(timed[np.isin(kind, scope.TIMED_KINDS)]) == set(scope.SCOPES)


def test_a_prediction_has_its_evidence_and_can_still_be_copied_and_pickled():
    found = perfpass.predict("examples/resnet50.onnx", "t4", batch=8)
    one = found.evidence.to_dict()
    assert [part["quantity"] for part in one["quantities"]] == ["time", "memory", "energy"]
    first = one["quantities"][0]
    assert first["predicted"]["median"] == found.latency_ms.median
    assert first["records"][0]["distance"]["total"] < 0.2 and "resnet50" in first["records"][0]["model"]
    for again in (pickle.loads(pickle.dumps(found)), copy.deepcopy(found)):
        assert again == found and again.evidence.to_dict() == one
    assert json.loads(json.dumps(one, allow_nan=False)) == one


def test_the_question_is_not_counted_before_it_is_asked(monkeypatch):
    from perfpass.predictors.relative import work

    def fail(*arguments):
        raise AssertionError("counted")

    monkeypatch.setattr(work, "of_run", fail)
    found = perfpass.predict("examples/resnet50.onnx", "t4")
    with pytest.raises(AssertionError, match="counted"):
        _ = found.evidence


def test_serving_and_a_batch_without_a_server_have_evidence():
    from offline_batches import predict_batch

    served = perfpass.predict_llm("llama-3.1-8b", "h100", concurrency=8).evidence.to_dict()
    names = [part["quantity"] for part in served["quantities"]]
    assert names == ["first token", "token", "request energy", "memory"]
    assert all(part["records"][0]["copied"] > 0 for part in served["quantities"][:2])
    batch = predict_batch("llama-2-7b", "a100-40gb", batch=16, input_tokens=128, output_tokens=128).evidence
    assert batch.to_dict()["quantities"][0]["records"][0]["distance"]["total"] < 0.2


def test_a_refusal_to_predict_keeps_what_was_asked():
    from perfpass.predictors.relative.question import AskedServing, kept

    asked = perfpass.predict_llm("llama-3.1-8b", "h100").asked
    assert isinstance(asked, AskedServing)
    with pytest.raises(UnsupportedError) as caught, kept(asked):
        raise UnsupportedError("too wide")
    assert evidence.of(caught.value).to_dict()["refused"] == "too wide"
    with pytest.raises(UnsupportedError, match="predict it anew"):
        evidence.of(UnsupportedError("no question"))


def test_text_fits_a_terminal_and_says_the_same_twice(capsys):
    command = ["evidence", "examples/resnet50.onnx", "--device", "a100-80gb:1g.10gb", "--batch", "8"]
    texts = []
    for _ in range(2):
        assert cli.main(command) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] and max(map(len, texts[0].splitlines())) <= WIDTH
    assert "away by" in texts[0] and "to narrow it, measure" in texts[0]


def test_json_of_the_command_is_that_of_the_prediction(capsys):
    assert cli.main(["evidence", "llama-3.1-8b", "--device", "l40s", "--json", "--limit", "1"]) == 0
    found = json.loads(capsys.readouterr().out)
    own = perfpass.predict_llm("llama-3.1-8b", "l40s")
    assert found == evidence.of(own, limit=1).to_dict()
    assert all(len(part["records"]) <= 1 for part in found["quantities"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["bert-base", "--device", "t4", "--batch", "1", "--concurrency", "8"], "leave out one"),
        (["examples/resnet50.onnx", "--device", "t4", "--limit", "0"], "at least 1"),
        (["examples/resnet50.onnx", "--device", "t4", "--leave-out", "weather=rain"], "WHAT=NAME"),
        (["no-such-model-anywhere", "--device", "t4"], "neither a file nor a known model"),
    ],
)
def test_a_wrong_question_is_one_line(arguments, said, capsys):
    assert cli.main(["evidence", *arguments]) in (2, 3)
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_a_model_that_cannot_be_read_is_looked_up_by_its_name(capsys):
    assert cli.main(["evidence", "esrgan", "--device", "t4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    times = found["quantities"][0]["records"]
    assert found["refused"] and times
    assert all("esrgan" in record["model"].lower() for record in times[:1]) and times[0]["copied"] is None


def test_nothing_near_is_said(records):
    from perfpass.evidence.answer import look_up

    row = measured(records, "time", kinds=("inference",))[0]
    alone = {"source": set(records.texts["source"].values)}
    parts = look_up(records.question(row), records, leave_out=alone).to_dict()["quantities"]
    assert all(part["records"] == [] and "no record" in part["note"] for part in parts)


def test_every_record_names_its_source_and_licence(records):
    for name in ("source", "repository", "licence", "kind", "model"):
        assert "" not in records.texts[name].values


def test_what_was_measured_is_what_the_records_say(records):
    from perfpass.records import schema
    from perfpass.records.location import data_directory

    for name, kind, columns in (
        ("vision", "vision", ["latency_ms", "batch"]),
        ("networks", "network", ["latency_ms", "throughput_per_s", "peak_memory_bytes", "energy_j"]),
        ("serving", "serving", ["ttft_ms", "tpot_ms"]),
        ("generation", "generation", ["latency_ms", "ttft_ms", "tpot_ms", "power_w"]),
    ):
        rows = schema.read(data_directory() / "records" / f"{name}.parquet", kind)
        shipped = np.isin(
            records.texts["source"].code, [records.texts["source"].values.index(s) for s in set(rows.source)]
        )
        for column in columns:
            ours = records.numbers[column][shipped]
            theirs = rows[column].to_numpy(float)
            assert np.isin(theirs[np.isfinite(theirs) & (theirs > 0)], ours).all(), (name, column)


def test_what_was_counted_is_what_would_be_counted_now(records):
    """Else the table is of other physics: `python -m perfpass.evidence.build`, and work.VERSION."""
    from perfpass.evidence.build.graphs import Graphs
    from perfpass.evidence.build.language import Language

    class Row:
        pass

    graphs, language = Graphs(), Language()
    rows = [
        r for r in measured(records, "time", 40) if records.texts["source"][r] in ("timm", "torchvision", "argonne")
    ]
    assert len(rows) > 5
    for row in rows:
        own = Row()
        for name, column in records.texts.items():
            setattr(own, name, column[row])
        for name in evidence.table.NUMBERS + evidence.table.FIGURES:
            setattr(own, name, records.number(name, row))
        counted = graphs.of(own) if own.source != "argonne" else language.of(own)
        now = counted.run_ms if own.source != "argonne" else counted.work["run_ms"]
        assert now == pytest.approx(records.number("run_ms", row), rel=1e-4)


def test_without_pyarrow_the_error_names_the_extra(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UnsupportedError, match=r"perfpass\[evidence\]"):
        evidence.table.read(evidence.path())


def _spoiled(table, name, tmp_path):
    import pyarrow.parquet

    file = tmp_path / f"{name}.parquet"
    pyarrow.parquet.write_table(table, file)
    return file


@pytest.mark.parametrize("spoil", ["cut", "text", "column", "type", "version", "null", "print"])
def test_a_table_that_is_none_is_one_error(spoil, tmp_path):
    import pyarrow.parquet

    content = evidence.path().read_bytes()
    file = tmp_path / "table.parquet"
    table = pyarrow.parquet.read_table(evidence.path()).slice(0, 50)
    if spoil == "cut":
        file.write_bytes(content[: len(content) // 2])
    elif spoil == "text":
        file.write_text("kind,source\n")
    elif spoil == "column":
        file = _spoiled(table.drop_columns(["licence"]), spoil, tmp_path)
    elif spoil == "type":
        place = table.schema.get_field_index("batch")
        file = _spoiled(table.set_column(place, "batch", pyarrow.array(["one"] * 50)), spoil, tmp_path)
    elif spoil == "version":
        file = _spoiled(
            table.replace_schema_metadata({b"perfpass evidence": b'{"schema_version": 99}'}), spoil, tmp_path
        )
    elif spoil == "null":
        place = table.schema.get_field_index("device")
        unknown = pyarrow.array([None] * 50, pyarrow.string())
        file = _spoiled(table.set_column(place, "device", unknown), spoil, tmp_path)
    else:
        place = table.schema.get_field_index("fingerprint")
        file = _spoiled(table.set_column(place, "fingerprint", pyarrow.array([b"abc"] * 50)), spoil, tmp_path)
    with pytest.raises(PerfPassError) as caught:
        evidence.table.read(file)
    assert isinstance(caught.value, FormatError) and str(file) in str(caught.value)


# Every board of which the table has runs, in the software and precision of the commonest of them.
_ASKED = [
    ("bert-base", "t4", "torch", "fp32"),
    ("bert-base", "t4", "tensorrt", "fp16"),
    ("resnet50", "t4", "tensorrt", "int8"),
    ("resnet50", "l4", "torch", "amp"),
    ("vit_base_patch16_224", "a100", "torch", "fp16"),
    ("resnet50", "v100", "torch", "fp32"),
    ("bert-large", "h100", "torch", "fp16"),
    ("resnet50", "jetson-agx-orin-64gb", "tensorrt", "fp16"),
]


@pytest.mark.parametrize(("model", "device", "runtime", "precision"), _ASKED)
@pytest.mark.parametrize("mode", ["inference", "training"])
def test_support_never_says_that_nothing_was_measured(model, device, runtime, precision, mode):
    """Reasons speak of what was learned from: records of the table stand beside them, which nothing learned."""
    if mode == "training" and (runtime, precision) != ("torch", "fp32"):
        runtime, precision = "torch", "amp"
    found = perfpass.predict(model, device, runtime=runtime, precision=precision, mode=mode, batch=8)
    assert found.evidence.parts[0].records
    said = " ".join(found.support.reasons)
    assert not any(words in said for words in ("no measurement", "not measured", "never measured", "measured network"))


def test_requests_and_batches_never_say_that_nothing_was_measured():
    served = perfpass.predict_llm("llama-3.1-8b", "l40s", concurrency=16)
    run = {"input_length": 512, "output_length": 128}
    offline = perfpass.predict_offline("llama-2-7b", "a100", runtime="vllm", concurrency=16, **run)
    counted = perfpass.predict_offline("llama-3.1-8b", "rtx-4090", runtime="llama.cpp", precision="q4_k_m", **run)
    for found in (served, offline, counted):
        said = " ".join(found.support.reasons)
        assert not any(words in said for words in ("no measurement", "not measured", "was measured"))
