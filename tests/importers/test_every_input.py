"""Every kind of input against what is wrong with files everywhere: one typed error of one line, soon, and no figure."""

from __future__ import annotations

import io
import json
import os
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import perfpass
from perfpass import npz, safetensors
from perfpass.annotation import file as annotated
from perfpass.annotation import metadata
from perfpass.cli import compare, main
from perfpass.declared import Choice, Table, Text, too_large
from perfpass.deploy.carbon import read_grids
from perfpass.deploy.money import read_prices
from perfpass.devices import device
from perfpass.devices.toml_file import read as read_devices
from perfpass.errors import FileError, FormatError, InputWarning, LimitError, PerfPassError
from perfpass.features import extract
from perfpass.features import files as features
from perfpass.graph.difference import Summary, summarise
from perfpass.importers.model_sources import CONFIGURATIONS
from perfpass.llm import language_model
from perfpass.measure import journal
from perfpass.measure.campaign_file import read_campaign
from perfpass.predictors.calibration import device_file, posterior
from perfpass.predictors.learned.artefacts import Artefact
from perfpass.records import own_device, schema
from refusals import refused

ROOT = Path(__file__).resolve().parents[2]
DEVICE = (ROOT / "examples" / "custom_device.toml").read_text()
PRICES = '[[price]]\ndevice = "t4"\nprovider = "A"\nusd_per_hour = 0.36\ndate = "2026-11-02"\nsource = "its page"\n'
GRIDS = 'year = 2025\nsource = "its page"\n[grid]\nDE = 300\n'
CAMPAIGN = 'name = "a"\n[[sweep]]\nmodel = "timm:resnet18"\nbatch = 1\n'
LLAMA = json.loads((CONFIGURATIONS / "llama-3.1-8b.json").read_text())
FACTS = {"kind": "facts", "schema": 1, "id": "e", "device": {"name": "this machine", "catalogue_id": "host-cpu"}}
RECORD = {
    "kind": "record",
    "schema": 1,
    "key": "k",
    "environment": "e",
    "status": "ok",
    "configuration": {"model": "timm:resnet18", "batch": 1},
    "latency_ms": {"median": 18.5, "p10": 18.0},
    "flags": [],
}
POINT = {"predictor": "inference", "software": "torch", "log_ratio": 0.1, "traits": [0.0] * len(posterior.TRAITS)}


def lines(*entries: Any) -> bytes:
    return b"".join(json.dumps(entry, separators=(",", ":")).encode() + b"\n" for entry in entries)


def calibration(**change: Any) -> bytes:
    content = {"schema_version": 1, "device": "h100", "kind": "gpu", "predictors": {}, "provenance": {}}
    content |= {"traits": list(posterior.TRAITS), "points": [POINT] * 3} | change
    return json.dumps(device_file.digested(content)).encode()


def summary(**change: Any) -> bytes:
    found = summarise(perfpass.load(ROOT / "examples" / "resnet50.onnx"), "file").to_dict()
    found["nodes"] = [{**found["nodes"][0], **change}, *found["nodes"][1:]]
    return json.dumps(found).encode()


def feature_file(suffix: str, folder: Path) -> bytes:
    found = extract(perfpass.load(ROOT / "examples" / "resnet50.onnx"))
    return features.save(found, folder / f"valid{suffix}").read_bytes()


@dataclass(frozen=True)
class Input:
    """A kind: its file's name, a valid content, how Python and how the command line read it."""

    name: str
    content: Callable[[Path], bytes]
    read: Callable[[Path], Any]
    command: tuple[str, ...] = ()


MODEL = str(ROOT / "examples" / "resnet50.onnx")
ASK = ("predict", MODEL, "--device", "t4")
INPUTS = {
    "device file": Input("d.toml", lambda _: DEVICE.encode(), read_devices, (*ASK, "--device-file")),
    "price table": Input("p.toml", lambda _: PRICES.encode(), read_prices, (*ASK, "--region", "DE", "--price-table")),
    "table of grids": Input("g.toml", lambda _: GRIDS.encode(), read_grids, (*ASK, "--region", "DE", "--grid-table")),
    "campaign": Input("c.toml", lambda _: CAMPAIGN.encode(), read_campaign, ("measure", "--campaign")),
    "journal": Input("j.jsonl", lambda _: lines(FACTS, RECORD), journal.read),
    "records of a device": Input(
        "r.jsonl",
        lambda _: lines(FACTS, RECORD),
        lambda path: own_device.read(path, device("cpu")),
        ("calibrate", "--device", "cpu", "--records"),
    ),
    "table of records": Input(
        "t.parquet", lambda _: (ROOT / "data/records/mig.parquet").read_bytes(), lambda path: schema.read(path, "mig")
    ),
    "configuration": Input(
        "config.json",
        lambda _: json.dumps(LLAMA).encode(),
        language_model,
        ("llm", "--device", "h100", "--input-length", "100", "--output-length", "10", "--concurrency", "1"),
    ),
    "calibration": Input("x.calibration.json", lambda _: calibration(), posterior.read),
    "graph summary": Input(
        "s.json",
        lambda _: summary(),
        lambda path: Summary.from_dict(compare._read(str(path))),
        ("compare", MODEL, "--readers", "file", "--summary"),
    ),
    "features, npz": Input("f.npz", lambda folder: feature_file(".npz", folder), features.load),
    "features, safetensors": Input("f.safetensors", lambda folder: feature_file(".safetensors", folder), features.load),
    "artefact": Input(
        "manifest.json", lambda _: b'{"schema_version": 1, "files": {}}', lambda path: Artefact(path.parent)
    ),
    "annotated model": Input("m.onnx", lambda _: Path(MODEL).read_bytes(), annotated.read, ("inspect",)),
    "model": Input("m.onnx", lambda _: Path(MODEL).read_bytes(), perfpass.load, ("predict", "--device", "t4")),
}
TOML = [name for name, one in INPUTS.items() if one.name.endswith(".toml")]
JSON = [name for name, one in INPUTS.items() if one.name.endswith((".json", ".jsonl"))]


def pipe(path: Path) -> None:
    os.mkfifo(path)


def loop(path: Path) -> None:
    path.symlink_to(path)


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(100 << 30)


SPECIAL: dict[str, Callable[[Path], Any]] = {
    "a pipe": pipe,
    "a link to /dev/zero": lambda path: path.symlink_to("/dev/zero"),
    "a folder": lambda path: path.mkdir(),
    "a link to itself": loop,
    "100 GiB": huge,
    "nothing": lambda path: None,
}


@pytest.mark.parametrize("kind", INPUTS)
def test_what_is_valid_is_read(tmp_path, kind):
    one = INPUTS[kind]
    (tmp_path / one.name).write_bytes(one.content(tmp_path))
    one.read(tmp_path / one.name)


@pytest.mark.parametrize("special", SPECIAL)
@pytest.mark.parametrize("kind", INPUTS)
def test_what_is_no_file_of_bounded_size_is_refused_soon(tmp_path, kind, special):
    one = INPUTS[kind]
    path = tmp_path / "there" / one.name
    path.parent.mkdir()
    SPECIAL[special](path)
    with pytest.raises(PerfPassError) as caught:
        one.read(path)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 1000
    assert isinstance(caught.value, (FileError, FormatError, LimitError)) or kind == "artefact", caught.value


@pytest.mark.parametrize("special", SPECIAL)
@pytest.mark.parametrize("kind", [kind for kind, one in INPUTS.items() if one.command])
def test_the_command_line_refuses_the_same_in_one_line(tmp_path, capsys, kind, special):
    one = INPUTS[kind]
    path = tmp_path / "there" / one.name
    path.parent.mkdir()
    SPECIAL[special](path)
    code = main([*one.command, str(path)])
    said = capsys.readouterr()
    assert code in (3, 4, 5), said.err
    assert said.out == "" and said.err.count("\n") == 1 and said.err.startswith("perfpass: error: ")


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("part", [0.0, 0.3, 0.6])
def test_a_file_that_was_cut_off_is_refused_or_is_whole_without_its_end(tmp_path, kind, part):
    one = INPUTS[kind]
    content = one.content(tmp_path)
    path = tmp_path / one.name
    path.write_bytes(content[: int(len(content) * part)])
    if kind == "journal":  # what a kill leaves: the whole lines are read
        assert len(journal.read(path).records) <= 1
        return
    with pytest.raises((PerfPassError, UserWarning)) as caught:
        one.read(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", TOML)
@pytest.mark.parametrize(
    ("added", "error", "says"),
    [
        ("zzz = 1\n", PerfPassError, "unknown 'zzz'; allowed are"),
        ("schema = 1\nschema = 1\n", FormatError, "not a TOML file"),
        (f"zzz = {'9' * 5000}\n", FormatError, "digits"),
        (f"zzz = {10**30}\n", FormatError, "zzz is a whole number of about 30 digits; at most 64 bits"),
        (f"zzz = 0x{'f' * 20_000}\n", FormatError, "at most 64 bits"),
        (f"zzz = {'[' * 100}{']' * 100}\n", FormatError, "nested over 64 deep"),
        (f"zzz = {'[' * 5000}{']' * 5000}\n", FormatError, "not a TOML file"),
        ("a." * 60_000 + "a = 1\n", LimitError, "line 1: a key of over 16 parts"),
        ('"a b" . ' * 60_000 + "a = 1\n", LimitError, "line 1: a key of over 16 parts"),
        ("\0", FormatError, "not a TOML file"),
    ],
    ids=["unknown", "twice", "digits", "wide", "hexadecimal", "nested", "deep", "long key", "quoted key", "NUL"],
)
def test_toml_is_checked_as_a_whole_before_it_is_read(tmp_path, kind, added, error, says):
    one = INPUTS[kind]
    path = tmp_path / one.name
    path.write_bytes(added.encode() + one.content(tmp_path))
    with pytest.raises(error, match=says) as caught:
        one.read(path)
    assert len(str(caught.value)) < 1000 and one.name in str(caught.value)
    path.write_bytes(b"\xef\xbb\xbf" + one.content(tmp_path))  # a mark that some editors write
    one.read(path)


def changed(content: bytes, kind: str, new: bytes) -> bytes:
    """The last object of a JSON text, with more in it."""
    assert content.rstrip().endswith(b"}"), kind
    return content.rstrip()[:-1] + b", " + new + b"}\n"


@pytest.mark.parametrize("kind", JSON)
@pytest.mark.parametrize(
    ("new", "says"),
    [
        (b'"zzz": 1, "zzz": 2', "the key 'zzz' occurs twice"),
        (b'"zzz": ' + b"[" * 200 + b"]" * 200, "nested over 64 deep"),
        (b'"zzz": ' + b"[" * 100_000 + b"]" * 100_000, "nested too deep"),
        (b'"zzz": ' + b"9" * 5000, "digits"),
        (b'"zzz": NaN', "NaN is no number of JSON"),
        (b'"zzz": -Infinity', "-Infinity is no number of JSON"),
        (b'"zzz": 1e999', "zzz is inf, no finite number"),
        (b'"zzz": 1' + b"0" * 30, "zzz is a whole number of about 30 digits; at most 64 bits"),
        (b'"zzz": "\xff"', "is not JSON"),
        (b'"zzz": 1 "y": 2', "is not JSON"),
    ],
    ids=["twice", "nested", "deep", "digits", "NaN", "Infinity", "1e999", "wide", "encoding", "comma"],
)
def test_json_is_checked_as_a_whole_before_it_is_read(tmp_path, kind, new, says):
    one = INPUTS[kind]
    path = tmp_path / one.name
    path.write_bytes(changed(one.content(tmp_path), kind, new))
    if kind == "configuration" and any(number in new for number in (b"NaN", b"Infinity", b"1e999", b"0" * 30)):
        one.read(path)  # transformers writes them, in fields that change no cost
        return
    with pytest.raises(PerfPassError, match=says) as caught:
        one.read(path)
    assert len(str(caught.value)) < 1000 and "\n" not in str(caught.value)


def test_an_unknown_key_is_an_error_or_a_named_warning(tmp_path):
    for kind, says in (("calibration", "SHA-256"), ("graph summary", "unknown 'zzz'; allowed are")):
        path = tmp_path / INPUTS[kind].name
        path.write_bytes(changed(INPUTS[kind].content(tmp_path), kind, b'"zzz": 1'))
        with pytest.raises(FormatError, match=says):
            INPUTS[kind].read(path)
    (tmp_path / "c").write_bytes(calibration(zzz=1))
    with pytest.raises(FormatError, match=r"unknown 'zzz'; allowed are .*--no-calibration"):
        posterior.read(tmp_path / "c")
    (tmp_path / "j").write_bytes(lines(FACTS, {**RECORD, "zzz": 1}))
    with pytest.warns(InputWarning, match="unknown entries 'zzz' are passed over"):
        assert "zzz" not in journal.read(tmp_path / "j").records[0]


def test_the_command_line_says_a_warning_about_an_input_as_a_line(tmp_path, capsys):
    (tmp_path / "j").write_bytes(lines(FACTS, {**RECORD, "zzz": 1, "status": "failed"}))
    assert main(["calibrate", "--device", "cpu", "--records", str(tmp_path / "j")]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[0].endswith("unknown entries 'zzz' are passed over") and said[0].startswith("perfpass: warning: ")


WRONG_RECORDS = [
    ({"latency_ms": {"median": "18"}}, "latency_ms.median '18'; it is a finite number"),
    ({"latency_ms": {"median": True}}, "latency_ms.median True"),
    ({"latency_ms": {"median": -5}}, "latency_ms.median -5"),
    ({"latency_ms": [1]}, r"latency_ms \[1\]; it is a table"),
    ({"environment": [1]}, r"environment \[1\]"),
    ({"status": "great"}, "status 'great'; allowed are ok"),
    ({"flags": 3}, "flags 3"),
    ({"memory": {"host_peak_rss_bytes": "much"}}, "memory.host_peak_rss_bytes 'much'"),
    ({"energy": {"energy_j": -1}}, "energy: energy_j -1"),
    ({"configuration": "timm:resnet18"}, "configuration 'timm:resnet18'"),
]


@pytest.mark.parametrize(("change", "says"), WRONG_RECORDS)
def test_a_record_of_wrong_types_or_figures_is_refused_by_line_and_name(tmp_path, change, says):
    (tmp_path / "j").write_bytes(lines(FACTS, {**RECORD, **change}))
    with pytest.raises(FormatError, match=f"line 2.*{says}"):
        journal.read(tmp_path / "j")


WRONG_POINTS = [
    ({"log_ratio": "0.1"}, "log_ratio '0.1'"),
    ({"log_ratio": 21.0}, "log_ratio 21.0; .* as no run is further off"),
    ({"traits": [1e300] * len(posterior.TRAITS)}, r"traits, value 1, 1e\+300"),
    ({"traits": [0.0]}, r"traits \[0.0\]; it is a list of"),
    ({"software": 7}, "software 7"),
]


@pytest.mark.parametrize(("change", "says"), WRONG_POINTS)
def test_a_calibration_of_wrong_types_or_figures_is_refused_though_its_digest_holds(tmp_path, change, says):
    (tmp_path / "c").write_bytes(calibration(points=[POINT, {**POINT, **change}]))
    with pytest.raises(FormatError, match=f"points 2: {says}.*--no-calibration"):
        posterior.read(tmp_path / "c")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"flops": "x"}, "flops 'x'"),
        ({"macs": -1}, "macs -1"),
        ({"reads": "ab"}, "reads 'ab'"),
        ({"reads": [0]}, "do not fit one another"),
        ({"op": 7}, "op 7"),
        ({"zzz": 7}, "unknown 'zzz'"),
    ],
)
def test_a_graph_summary_of_wrong_types_or_figures_is_refused(tmp_path, change, says):
    (tmp_path / "s").write_bytes(summary(**change))
    with pytest.raises(FormatError, match=says):
        Summary.from_dict(compare._read(str(tmp_path / "s")))


def stored(prediction: dict[str, Any]) -> dict[str, str]:
    text = json.dumps({"schema_version": 1, "predictions": {"t4": prediction}, "model_bytes": {}})
    return {metadata.PREDICTIONS_KEY: text}


def test_annotated_figures_are_numbers_in_order():
    found = perfpass.predict(MODEL, "t4").to_dict()
    assert metadata.from_metadata(stored(found)).predictions["t4"] == found
    for key, value, says in (
        ("median", "3", "latency_ms: median '3'"),
        ("median", float("nan"), "NaN is no number of JSON"),
        ("median", 10**400, "at most 64 bits"),
        ("low", 1e9, "in an interval from"),
        ("high", -1, "high -1"),
    ):
        with pytest.raises(FormatError, match=says):
            metadata.from_metadata(stored({**found, "latency_ms": {**found["latency_ms"], key: value}}))


# ---- Arrays


def npy(shape: tuple[int, ...], kind: str = "<f4", data: bytes = b"") -> bytes:
    header = str({"descr": kind, "fortran_order": False, "shape": shape}).encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def archive(**members: bytes) -> io.BytesIO:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return out


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (npy((10**10,)), "that has 0 bytes"),
        (npy((10**30,)), "that has 0 bytes"),
        (npy((-1,)), "shape"),
        (npy((2,), "<f4", bytes(9)), "that has 9 bytes"),
        (npy((2,), "|O", bytes(16)), "an array of object, which is not read"),
        (npy((2,), "|V0"), "which is not read"),
        (npy((2,), "<M8[s]", bytes(16)), "which is not read"),
        (b"\x93NUMPY\x01\x00" + struct.pack("<H", 9000) + b"(" * 9000, "no array of NumPy"),
        (b"\x93NUMPY\x09\x00", "no array of NumPy|the NumPy format"),
        (b"", "no array of NumPy"),
    ],
)
def test_an_array_has_the_bytes_that_it_says(content, says):
    with pytest.raises(FormatError, match=says):
        npz.array(content)
    with pytest.raises(FormatError, match=says):
        npz.arrays(archive(a=content), 1 << 30, {"a": "f"})


def test_arrays_are_read_as_numpy_writes_them():
    for made in (np.arange(6.0).reshape(2, 3), np.asfortranarray(np.eye(3)), np.array("text"), np.zeros((0, 4), "<i4")):
        out = io.BytesIO()
        np.save(out, made, allow_pickle=False)
        assert np.array_equal(npz.array(out.getvalue()), made) and npz.array(out.getvalue()).shape == made.shape


def test_an_archive_of_arrays_is_bounded_unpacked_and_has_what_is_declared():
    with pytest.raises(LimitError, match="bytes unpacked; at most 1048576"):
        npz.arrays(archive(a=npy((2**20,), "<f4", bytes(2**22))), 2**20, {"a": "f"})
    one = npy((1,), "<f4", bytes(4))
    for members, kinds, says in (
        ({"a": one, "b": one}, {"a": "f"}, "arrays .* it has a, once each"),
        ({"a": one}, {"a": "f", "b": "f"}, "it has a, b"),
        ({"a": one}, {"a": "i"}, "a holds float32, not of kind i"),
    ):
        with pytest.raises(FormatError, match=says):
            npz.arrays(archive(**members), 2**20, kinds)
    with pytest.raises(FormatError, match="no archive of arrays"):
        npz.arrays(io.BytesIO(b"PK\x03\x04"), 2**20, {"a": "f"})


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_features_that_no_graph_has_are_refused(tmp_path, suffix):
    found = extract(perfpass.load(ROOT / "examples" / "resnet50.onnx"))
    for change, says in (
        ({"nodes": found.nodes[0]}, "nodes of shape"),
        ({"nodes": found.nodes[:, 1:]}, "nodes of shape"),
        ({"nodes": found.nodes * np.nan}, "no finite number"),
        ({"edge_index": found.edge_index + len(found.nodes)}, "leads out of"),
        ({"edge_index": found.edge_index[0]}, "edges of shape"),
        ({"statics": found.statics[1:]}, "statics of shape"),
        ({"schema": "poem"}, "schema 'poem'; known are operator"),
    ):
        path = features.save(replace(found, **change), tmp_path / f"f{suffix}")
        with pytest.raises(FormatError, match=says):
            features.load(path)


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"dtype": "F32", "shape": [10**30], "data_offsets": [0, 4]}, "at most 64 bits"),
        ({"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}, "shape, value 1, -1"),
        ({"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}, "shape, value 1, True"),
        ({"dtype": "F32", "shape": [1], "data_offsets": [0, 1e300]}, "data_offsets, value 2"),
        ({"dtype": "F32", "shape": [1], "data_offsets": [0, 8]}, "outside the file"),
        ({"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}, "damaged"),
        ({"dtype": ["F32"], "shape": [1], "data_offsets": [0, 4]}, "dtype .*; allowed are F64"),
        ({"dtype": "F32", "shape": [1], "data_offsets": [0, 4], "zzz": 1}, "unknown 'zzz'"),
        ({"dtype": "F32", "shape": [1]}, "lacks data_offsets"),
        (7, "'a' 7; it is a table"),
    ],
)
def test_a_safetensors_header_is_checked_entry_by_entry(entry, says):
    text = json.dumps({"a": entry}).encode()
    with pytest.raises(FormatError, match=says):
        safetensors.decode(len(text).to_bytes(8, "little") + text + bytes(4))


# ---- Tables


def test_a_parquet_file_is_bounded_by_what_it_states_before_a_column_is_read(tmp_path):
    import pyarrow
    from pyarrow import parquet

    note = parquet.read_schema(ROOT / "data/records/mig.parquet").metadata
    count = 10_000_001
    repeated = pyarrow.DictionaryArray.from_arrays(pyarrow.array(np.zeros(count, np.int32)), pyarrow.array(["x"]))
    parquet.write_table(pyarrow.table({"model": repeated}).replace_schema_metadata(note), tmp_path / "rows.parquet")
    assert (tmp_path / "rows.parquet").stat().st_size < 1 << 20
    with pytest.raises(LimitError, match="10,000,001 rows; a table of records has at most 10,000,000"):
        schema.read(tmp_path / "rows.parquet", "mig")
    wide = pyarrow.table({f"c{i}": [1] for i in range(501)}).replace_schema_metadata(note)
    parquet.write_table(wide, tmp_path / "columns.parquet")
    with pytest.raises(LimitError, match="501 columns"):
        schema.read(tmp_path / "columns.parquet", "mig")


def test_a_table_of_records_has_the_columns_types_and_ranges_of_its_kind(tmp_path):
    import pyarrow
    from pyarrow import parquet

    whole = parquet.read_table(ROOT / "data/records/mig.parquet").slice(0, 3)

    def with_column(name: str, values: list[Any]) -> Any:
        place = whole.schema.get_field_index(name)
        return (
            whole.set_column(place, name, pyarrow.array(values)) if place >= 0 else whole.append_column(name, [values])
        )

    for table, says in (
        (whole.append_column("zzz", [[1, 2, 3]]), "unknown column 'zzz'"),
        (whole.append_column("model", [["a", "b", "c"]]), "two columns are called 'model'|Multiple matches"),
        (with_column("batch", ["1", "2", "3"]), "column 'batch' holds string; it is of int"),
        (with_column("model", [[1], [2], [3]]), "column 'model' holds list"),
        (with_column("latency_ms", [1.0, -1.0, 2.0]), "row 2: latency_ms -1; it is finite and above 0"),
        (with_column("latency_ms", [1.0, 2.0, float("inf")]), "row 3: latency_ms inf"),
        (whole.replace_schema_metadata({b"perfpass": b"[1]"}), "it is a table of schema_version, kind"),
        (whole.replace_schema_metadata({b"perfpass": b"[" * 90_000}), "its metadata is not JSON"),
    ):
        parquet.write_table(table, tmp_path / "t.parquet")
        with pytest.raises(FormatError, match=says):
            schema.read(tmp_path / "t.parquet", "mig")


# ---- Files, wherever they are given


@pytest.mark.parametrize("special", ["a pipe", "a link to /dev/zero", "a folder"])
def test_a_session_and_tvms_frontends_wait_for_no_pipe(tmp_path, special):
    import ort_extension
    from tvm_perfpass import onnx_model

    SPECIAL[special](tmp_path / "m.onnx")
    providers = ["CPUExecutionProvider"]
    assert "regular file" in refused(lambda: ort_extension.InferenceSession(tmp_path / "m.onnx", providers=providers))
    assert "regular file" in refused(lambda: onnx_model.relay_graph(tmp_path / "m.onnx", {}))


def test_a_misspelt_key_or_choice_is_answered_with_the_nearest():
    prices = Table({"currency": Choice(("USD", "EUR")), "price": Text()})
    with pytest.raises(
        FormatError, match=r"a table: unknown 'curency'; did you mean currency\? allowed are currency, "
    ):
        prices.take({"curency": "USD"}, "a table")
    with pytest.raises(FormatError, match=r"a table: currency 'EURO'; did you mean EUR\? allowed are USD, EUR"):
        prices.take({"currency": "EURO"}, "a table")
    with pytest.raises(FormatError, match=r"a table: currency 7; allowed are USD, EUR"):
        prices.take({"currency": 7}, "a table")


@pytest.mark.parametrize("wrong", [2**65, -(2**65), float("inf"), float("nan")])
@pytest.mark.parametrize("depth", [1, 3, 62])
def test_what_no_document_has_is_found_at_any_depth_and_said_with_its_place(wrong, depth):
    content: Any = wrong
    for level in range(depth):
        content = {"a": 1, "b": content} if level % 2 else [2.5, content, "c"]
    asked = {"numbers": isinstance(wrong, int), "finite": isinstance(wrong, float)}
    said = too_large(content, **asked)
    assert said is not None and said.startswith("b" if depth % 2 == 0 else "[1]")
    assert too_large(content, **{key: not value for key, value in asked.items()}) is None


def test_documents_are_64_levels_deep_at_most():
    content: Any = []
    for _ in range(63):
        content = {"a": content}
    assert too_large(content) is None
    said = too_large({"a": content})
    assert said is not None and "nested over 64 deep" in said
