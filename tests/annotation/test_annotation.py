"""`perfpass annotate`: the prediction in a model's metadata, and every way in which writing it may go wrong."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys

import pytest

import perfpass
from hostile_files import plain, varint
from perfpass.annotation import file as annotated_file
from perfpass.annotation import metadata as annotation
from perfpass.annotation.file import annotate, read, remove
from perfpass.annotation.layout import SEAL_KEY, block_of
from perfpass.errors import DeviceError, FileError, FormatError, LimitError


@pytest.fixture(scope="module")
def predictions(examples):
    """The predictions of one model for two devices, one of them a MIG slice."""
    return [
        perfpass.predict(examples / "resnet50.onnx", device=name, limits=perfpass.Limits(latency_ms=5))
        for name in ("rtx-4090", "a100-sxm4-80gb:2g.20gb")
    ]


def test_metadata_holds_every_prediction_for_programs_and_a_line_per_figure_for_people(predictions):
    noted = annotation.Annotation()
    for prediction in predictions:
        noted = noted.with_prediction(prediction, model_bytes=7)
    metadata = noted.to_metadata()
    assert annotation.from_metadata({"other": "key", **metadata}) == noted
    assert list(noted.predictions) == ["rtx-4090", "a100-sxm4-80gb:2g.20gb"]
    assert noted.predictions["rtx-4090"] == predictions[0].to_dict()
    assert metadata["perfpass.latency_ms"].count(" on ") == 2
    assert metadata["perfpass.workload"].startswith("batch 1, fp32, inference, torch, nchw on rtx-4090; ")
    assert all(key.startswith("perfpass.") and isinstance(value, str) for key, value in metadata.items())


def test_a_second_prediction_for_a_device_takes_the_place_of_the_first(predictions):
    noted = annotation.Annotation().with_prediction(predictions[0], 7).with_prediction(predictions[0])
    assert list(noted.predictions) == ["rtx-4090"] and noted.model_bytes == {}


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"schema_version": 2}', "schema version 2"),
        ("[]", "schema version None"),
        ('{"schema_version": 1}', "lacks predictions"),
        ('{"schema_version": 1, "predictions": {"x": {}}}', "predictions.x: lacks latency_ms"),
        ('{"schema_version": 1, "predictions": {}, "model_bytes": {"x": "9"}}', r"model_bytes\.x '9'; it is a whole"),
    ],
)
def test_damaged_metadata_is_a_format_error_that_says_what_is_wrong(value, says):
    with pytest.raises(FormatError, match=says):
        annotation.from_metadata({annotation.PREDICTIONS_KEY: value})


def test_a_prediction_of_wrong_types_is_refused(predictions):
    stored = json.loads(annotation.Annotation().with_prediction(predictions[0]).to_metadata()["perfpass.predictions"])
    stored["predictions"]["rtx-4090"]["latency_ms"]["median"] = [1]
    with pytest.raises(FormatError, match=r"latency_ms: median \[1\]; it is a finite number"):
        annotation.from_metadata({annotation.PREDICTIONS_KEY: json.dumps(stored)})


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        (("latency_ms", "unit"), "s", "unit 's'"),
        (("energy_j", "low"), 1e9, "the median"),
        (("workload", "device"), "t4", "is a prediction for 't4'"),
    ],
)
def test_a_figure_in_another_unit_or_of_another_device_is_refused(predictions, place, value, says):
    stored = json.loads(annotation.Annotation().with_prediction(predictions[0]).to_metadata()["perfpass.predictions"])
    stored["predictions"]["rtx-4090"][place[0]][place[1]] = value
    with pytest.raises(FormatError, match=f"{says}.*annotate the model again"):
        annotation.from_metadata({annotation.PREDICTIONS_KEY: json.dumps(stored)})


@pytest.fixture
def model(examples, tmp_path):
    """A model file of one's own."""
    path = tmp_path / "model.onnx"
    path.write_bytes((examples / "resnet50.onnx").read_bytes())
    return path


@pytest.fixture(scope="module")
def block(predictions):
    """What one annotation appends, for the file of `model`."""
    return block_of(annotation.Annotation().with_prediction(predictions[0]).to_metadata())


def with_weights(path, opset=17, functions=False):
    """A small network with its weights, saved by onnx."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    w = numpy_helper.from_array(rng.standard_normal((8, 3, 3, 3)).astype(np.float32), "w")
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["y"], ["z"])]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 32, 32])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [2, 8, 32, 32])],
        [w],
    )
    own = helper.make_function(
        "own", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", opset)]
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    made = helper.make_model(graph, opset_imports=opsets, functions=[own] if functions else [], ir_version=9)
    helper.set_model_props(made, {"author": "somebody"})
    onnx.save(made, path)


def test_runtime_checker_and_loader_accept_the_annotated_file_and_outputs_are_identical(tmp_path):
    import numpy as np
    import onnx
    import onnxruntime

    path = tmp_path / "model.onnx"
    with_weights(path)
    x = np.random.default_rng(1).standard_normal((2, 3, 32, 32)).astype(np.float32)
    before = onnxruntime.InferenceSession(path).run(None, {"x": x})[0]
    annotate(path, ["h100", "l4"], precision="fp16", runtime="onnxruntime")
    annotate(path, "l4")
    session = onnxruntime.InferenceSession(path)
    metadata = session.get_modelmeta().custom_metadata_map
    assert metadata["author"] == "somebody" and "on h100-sxm5-80gb; " in metadata["perfpass.latency_ms"]
    noted = annotation.from_metadata(metadata)
    assert noted == read(path).annotation
    assert {name: p["workload"]["precision"] for name, p in noted.predictions.items()} == {
        "h100-sxm5-80gb": "fp16",
        "l4": "fp32",
    }
    assert session.run(None, {"x": x})[0].tobytes() == before.tobytes()
    onnx.checker.check_model(path, full_check=True)
    assert {entry.key for entry in onnx.load(path).metadata_props} == set(metadata)


def test_removing_restores_the_file_byte_for_byte(model):
    original, node = model.read_bytes(), model.stat().st_ino
    for device in ("h100", "l4", "h100"):
        annotate(model, device)
    assert model.read_bytes().startswith(original) and model.stat().st_ino == node
    assert remove(model)
    assert model.read_bytes() == original
    assert not remove(model)


def test_annotating_again_replaces_and_does_not_pile_up(model):
    annotate(model, "h100")
    size = model.stat().st_size
    annotate(model, "h100")
    assert model.stat().st_size == size
    assert list(annotate(model, "h100", batch=8).predictions) == ["h100-sxm5-80gb"]
    assert model.read_bytes().count(annotation.PREDICTIONS_KEY.encode()) == 1


def test_whatever_part_of_a_write_reached_the_disk_the_model_can_be_restored(model, block, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda file: None)  # hundreds of times: the disk has nothing to do with it
    original = model.read_bytes()
    for cut in (*range(300), *range(300, len(block) - 200, 97), *range(len(block) - 200, len(block) + 1)):
        model.write_bytes(original + block[:cut])
        if 0 < cut < 6:  # nothing of the key is there yet: any program's bytes could end so
            with pytest.raises(FormatError, match="truncated"):
                remove(model)
            continue
        assert read(model).interrupted == (0 < cut < len(block))
        assert remove(model) == (cut > 0)
        assert model.read_bytes() == original


@pytest.mark.parametrize("lost", [(0, 64), (64, 512), (512, 1024), (0, 2000)])
def test_pages_of_zeros_that_a_power_cut_leaves_are_taken_out(model, block, lost):
    original = model.read_bytes()
    first, last = lost
    model.write_bytes(original + block[:first] + bytes(last - first) + block[last:])
    assert read(model).interrupted
    annotate(model, "l4")
    assert list(read(model).annotation.predictions) == ["l4"] and not read(model).interrupted
    remove(model)
    assert model.read_bytes() == original


def test_no_byte_of_a_damaged_block_stays_where_it_is_called_removed(model, block, monkeypatch):
    """One bit, one byte more, one byte less, at every place where the block's frame is and at many of its values."""
    monkeypatch.setattr(os, "fsync", lambda file: None)
    original = model.read_bytes()
    heads = [block.index(key.encode()) for key in (*annotation.KEYS, SEAL_KEY)]
    places = {at for head in heads for at in range(max(head - 6, 0), head + 30)} | set(range(0, len(block), 61))
    removed = refused = 0
    for at in sorted(place for place in places if place < len(block)):
        flipped = [block[:at] + bytes([block[at] ^ 1 << bit]) + block[at + 1 :] for bit in (at % 8, (at + 3) % 8)]
        inserted = [block[:at] + bytes([value]) + block[at:] for value in (0, 0x08, 0x72, 0xFF)]
        for damaged in (*flipped, *inserted, block[:at] + block[at + 1 :]):
            model.write_bytes(original + damaged)
            try:
                assert remove(model)
            except FormatError as error:
                assert f"head -c {len(original)} " in str(error) and model.read_bytes() == original + damaged
                refused += 1
            else:
                assert model.read_bytes() == original
                removed += 1
    assert removed > 10 * refused


def test_damage_in_two_places_of_a_block_never_takes_a_field_of_the_model_with_it(tmp_path, block):
    """As many bytes are missing as the model's last field has: the seal's length then leads to that field."""
    path, original = tmp_path / "model.onnx", plain()
    for missing in range(1, 17):
        middle = len(block) // 2
        damaged = bytearray(block[:middle] + block[middle + missing :])
        damaged[middle - 300] ^= 4
        path.write_bytes(original + damaged)
        try:
            assert remove(path)
        except FormatError:
            assert path.read_bytes() == original + damaged
        else:
            assert path.read_bytes() == original


def test_a_torn_block_with_a_damaged_key_is_not_called_removed_while_its_first_entry_stays(tmp_path, block):
    path, original = tmp_path / "model.onnx", plain()
    second, refused = block.index(b"perfpass.peak") - 6, 0
    for end in range(second, second + 60):
        damaged = original + block[:end].replace(b"latency_ms", b"lqtency_ms", 1)
        path.write_bytes(damaged)
        try:
            removed = remove(path)
        except FormatError:
            refused += 1
            removed = False
        # A whole entry alone, of another key than ours, is another program's.
        assert path.read_bytes() == (original if removed else damaged)
    assert refused


def test_an_interrupted_replacement_keeps_what_was_there(model):
    annotate(model, "l4")
    before = model.read_bytes()
    annotate(model, "h100")
    new = model.read_bytes()
    block = new[new.rindex(b"}}", 0, len(before)) :]
    for cut in (1, 5, 100, len(block)):
        model.write_bytes(before + block_of(read(model).annotation.to_metadata())[:cut])
        assert list(read(model).annotation.predictions)[:1] == ["l4"]
        annotate(model, "t4")
        assert {"l4", "t4"} <= set(read(model).annotation.predictions) and not read(model).interrupted


@pytest.mark.parametrize(("annotated_before", "failing_call"), [(False, 1), (True, 1), (True, 2)])
def test_a_write_that_fails_leaves_the_file_as_it_was(model, monkeypatch, annotated_before, failing_call):
    if annotated_before:
        annotate(model, "l4")
    before, calls, write = model.read_bytes(), [], os.pwrite

    def full(file, data, offset):
        calls.append(offset)
        if len(calls) == failing_call:
            write(file, bytes(data)[:100], offset)
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data, offset)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(FileError, match="No space left on device; it is as it was"):
        annotate(model, "h100")
    assert model.read_bytes() == before


def test_a_file_that_may_not_grow_is_as_it_was(model):
    before = model.read_bytes()
    limit = len(before) + 1000

    def limited():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    for output in ([], ["-o", str(model.with_name("copy.onnx"))]):
        done = subprocess.run(
            [sys.executable, "-B", "-m", "perfpass", "annotate", str(model), "--device", "l4", *output],
            capture_output=True,
            text=True,
            preexec_fn=limited,
        )
        assert done.returncode == FileError.exit_code and "File too large" in done.stderr
        assert model.read_bytes() == before and os.listdir(model.parent) == [model.name]


def test_annotators_of_the_same_file_wait_for_one_another(model):
    devices = ["h100-sxm5-80gb", "l4", "t4", "rtx-4090"]
    program = "import sys, perfpass; perfpass.annotate(sys.argv[1], sys.argv[2])"
    running = [subprocess.Popen([sys.executable, "-c", program, str(model), name]) for name in devices]
    assert [process.wait(60) for process in running] == [0] * len(devices)
    assert set(read(model).annotation.predictions) == set(devices)
    assert not read(model).interrupted


def test_a_model_that_another_program_wrote_anew_keeps_one_set_of_keys(tmp_path):
    import onnx

    path = tmp_path / "model.onnx"
    with_weights(path, functions=True)
    original = onnx.load(path).SerializeToString(deterministic=True)
    annotate(path, "l4")
    anew = onnx.load(path)  # functions are written behind the metadata
    entry = anew.metadata_props.add()
    entry.key, entry.value = "later", "another program's"
    onnx.save(anew, path)
    assert read(path).scattered and list(read(path).annotation.predictions) == ["l4"]
    annotate(path, "h100")
    onnx.checker.check_model(path)
    assert list(read(path).annotation.predictions) == ["l4", "h100-sxm5-80gb"] and not read(path).scattered
    remove(path)
    left = onnx.load(path)
    assert left.metadata_props.pop().key == "later"
    assert left.SerializeToString(deterministic=True) == original


def test_predictions_of_a_model_that_was_changed_since_are_called_stale(tmp_path):
    import onnx

    path = tmp_path / "model.onnx"
    with_weights(path)
    annotate(path, "l4")
    assert read(path).stale == ()
    changed = onnx.load(path)
    changed.graph.node[1].op_type = "Sigmoid"
    onnx.save(changed, path)
    assert read(path).stale == ("l4",)
    annotate(path, "l4")
    assert read(path).stale == ()


def test_a_copy_is_written_whole_and_the_model_left_alone(model):
    before = model.read_bytes()
    model.chmod(0o440)
    copy = model.with_name("copy.onnx")
    annotate(model, "l4", copy)
    assert model.read_bytes() == before and copy.read_bytes().startswith(before)
    assert list(read(copy).annotation.predictions) == ["l4"]
    annotate(copy, "t4", copy)
    assert list(read(copy).annotation.predictions) == ["l4", "t4"]
    remove(copy, model.with_name("third.onnx"))
    assert model.with_name("third.onnx").read_bytes() == before
    assert sorted(os.listdir(model.parent)) == ["copy.onnx", "model.onnx", "third.onnx"]


def test_the_copy_without_help_of_the_kernel_is_the_same(model, monkeypatch):
    annotate(model, "l4", model.with_name("fast.onnx"))

    def refused(*_):
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "copy_file_range", refused)
    monkeypatch.setattr(annotated_file.fcntl, "ioctl", refused)
    monkeypatch.setattr(annotated_file, "_COPY_BYTES", 1000)
    annotate(model, "l4", model.with_name("plain.onnx"))
    assert model.with_name("plain.onnx").read_bytes() == model.with_name("fast.onnx").read_bytes()


def test_files_that_others_share_or_protected_are_not_changed_in_place(model):
    before = model.read_bytes()
    link = model.with_name("link.onnx")
    link.symlink_to(model)
    with pytest.raises(FileError, match="is a link to "):
        annotate(link, "l4")
    link.unlink()
    os.link(model, link)
    with pytest.raises(FileError, match="2 names"):
        annotate(model, "l4")
    link.unlink()
    model.chmod(0o444)
    with pytest.raises(FileError, match="read-only"):
        annotate(model, "l4")
    assert model.read_bytes() == before


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"ir_version: 8\ngraph { }\n", "a text file"),
        (b'{"irVersion": "8"}', "a text file"),
        (b"", "empty"),
        (b"\x08\x00\x00\x00ORTM" + bytes(100), r"\.ort"),
        (bytes(range(200, 256)) * 40, "ONNX"),
    ],
)
@pytest.mark.parametrize("act", [lambda p: annotate(p, "l4"), read, remove], ids=["annotate", "read", "remove"])
def test_what_is_no_onnx_file_is_refused_and_not_touched(tmp_path, content, says, act):
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=says):
        act(path)
    assert path.read_bytes() == content


def test_a_truncated_model_is_not_repaired(model, block):
    whole = model.read_bytes()
    for cut in (len(whole) - 1, len(whole) - 20, len(whole) // 2):
        model.write_bytes(whole[:cut])
        with pytest.raises(FormatError):
            remove(model)
        model.write_bytes(whole[:cut] + block)
        with pytest.raises(FormatError):
            remove(model)
        assert model.read_bytes() == whole[:cut] + block


def test_folders_pipes_and_missing_files_are_refused(tmp_path, model):
    os.mkfifo(tmp_path / "pipe.onnx")
    for name in ("pipe.onnx", "missing.onnx", "."):
        with pytest.raises(FileError):
            annotate(tmp_path / name, "l4")
    for output in (tmp_path, tmp_path / "no" / "folder.onnx", tmp_path / "pipe.onnx"):
        with pytest.raises(FileError):
            annotate(model, "l4", output)
    with pytest.raises(DeviceError):
        annotate(model, "no-such-device")


def test_weights_in_other_files_are_not_touched_and_a_copy_elsewhere_names_them(tmp_path):
    import onnx

    path = tmp_path / "model.onnx"
    with_weights(path)
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="model.data", size_threshold=0)
    data = tmp_path / "model.data"
    before = (data.read_bytes(), data.stat().st_mtime_ns)
    data.chmod(0)
    (tmp_path / "elsewhere").mkdir()
    command = [sys.executable, "-m", "perfpass", "annotate", str(path), "--device", "l4"]
    elsewhere = ["-o", str(tmp_path / "elsewhere" / "copy.onnx")]
    assert "model.data" in subprocess.run([*command, *elsewhere], capture_output=True, text=True, check=True).stderr
    assert subprocess.run(command, capture_output=True, text=True, check=True).stderr == ""
    assert (data.read_bytes(), data.stat().st_mtime_ns) == before


def test_a_model_of_two_gigabytes_is_annotated_without_reading_it_and_never_past_what_protobuf_reads(tmp_path):
    import onnx
    from onnx import helper

    def sparse(path, data_bytes):
        """A model whose one weight is a hole in the file."""
        tensor = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=[data_bytes // 4])
        head = tensor.SerializeToString() + b"\x4a" + varint(data_bytes)
        values = [helper.make_tensor_value_info(name, 1, [data_bytes // 4]) for name in ("x", "y")]
        graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", values[:1], values[1:])
        body = graph.SerializeToString() + b"\x2a" + varint(len(head) + data_bytes) + head
        made = helper.make_model(helper.make_graph([], "g", [], []), opset_imports=[helper.make_opsetid("", 17)])
        made.ClearField("graph")
        start = made.SerializeToString() + b"\x3a" + varint(len(body) + data_bytes) + body
        path.write_bytes(start)
        os.truncate(path, len(start) + data_bytes)
        return path

    large = sparse(tmp_path / "large.onnx", 2_000_000_000)
    size = large.stat().st_size
    annotate(large, "l4")
    assert large.stat().st_blocks * 512 < 1 << 20  # still a hole: nothing was rewritten
    assert read(large).annotation.predictions["l4"]["provenance"]["graph"]["parameters"] == 500_000_000
    remove(large)
    assert large.stat().st_size == size
    full = sparse(tmp_path / "full.onnx", 2**31 - 1000)
    with pytest.raises(LimitError, match="2 GiB"):
        annotate(full, "l4")
    assert full.stat().st_size < 2**31


def test_the_command_notes_what_the_predictor_that_was_asked_for_says(root, tmp_path):
    from perfpass.cli import main

    path = tmp_path / "resnet50.onnx"
    shutil.copy(root / "examples" / "resnet50.onnx", path)
    command = ["annotate", str(path), "--device", "rtx-4090", "--batch", "8"]
    said = {}
    for name in ("perfpass", "dippm"):
        assert main([*command, "--predictor", name]) == 0
        (noted,) = read(path).annotation.predictions.values()
        said[name] = noted["latency_ms"]["median"]
        asked = perfpass.predict(path, "rtx-4090", batch=8, predictor=name)
        assert said[name] == asked.latency_ms.median
    assert said["perfpass"] != said["dippm"]
