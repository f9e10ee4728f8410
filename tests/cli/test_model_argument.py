"""A model is called the same in every command: a file, a folder, a shipped name, timm:NAME, torchvision:NAME."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import perfpass
from perfpass.cli import main
from perfpass.errors import ArgumentError, FileError, FormatError, UnsupportedError
from perfpass.importers.model_argument import understood

ROOT = Path(__file__).resolve().parents[2]
RESNET = ROOT / "examples" / "resnet50.onnx"
TINY = ROOT / "python" / "perfpass" / "configurations" / "bert-tiny.json"


@pytest.fixture(scope="module")
def places(tmp_path_factory) -> dict[str, str]:
    """A model of every form, by what it is."""
    folder = tmp_path_factory.mktemp("places")
    for name in ("checkpoint", "one", "two", "none"):
        (folder / name).mkdir()
    shutil.copy(TINY, folder / "checkpoint" / "config.json")
    shutil.copy(RESNET, folder / "one" / "net.onnx")
    for name in ("a.onnx", "b.onnx"):
        shutil.copy(RESNET, folder / "two" / name)
    return {
        "file": str(folder / "one" / "net.onnx"),
        "prefixed file": f"onnx:{folder / 'one' / 'net.onnx'}",
        "folder with one model": str(folder / "one"),
        "configuration": str(folder / "checkpoint" / "config.json"),
        "checkpoint": str(folder / "checkpoint"),
        "shipped": "bert-tiny",
        "prefixed shipped": "hf:bert-tiny",
        "timm": "timm:resnet18",
        "torchvision": "torchvision:resnet18",
        "definition": "definitions:yolov5n",
        "plain name": "resnet18",
        "folder": str(folder),
    }


FORMS = ("file", "prefixed file", "folder with one model", "configuration", "checkpoint", "shipped", "prefixed shipped",
         "timm", "torchvision", "definition", "plain name")  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_predicted_inspected_and_written_as_features(places, form, tmp_path, capsys):
    model = places[form]
    assert main(["predict", model, "--device", "a100-80gb", "--json"]) == 0
    predicted = json.loads(capsys.readouterr().out)
    assert main(["inspect", model, "--json"]) == 0
    inspected = json.loads(capsys.readouterr().out)
    assert predicted["provenance"]["graph"]["nodes"] == inspected["nodes"]
    assert main(["features", model, "--schema", "operator", "-o", str(tmp_path / "x.npz")]) == 0
    assert main(["measure", model, "--runtime", "onnxruntime", "--list"]) == 0
    assert ":" in capsys.readouterr().out.splitlines()[-1].split()[0]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "command", ["annotate --device l4 -o {}", "compare --readers file", "partition --device l4 -o {}"]
)
def test_what_needs_an_onnx_file_says_so_in_one_line(places, form, command, tmp_path, capsys):
    name, *options = command.format(tmp_path / "out").split()
    code = main([name, places[form], *options])
    said = capsys.readouterr().err
    if understood(places[form]).kind == "onnx":
        assert code == 0, said
    else:
        assert code == UnsupportedError.exit_code and said.count("\n") == 1
        assert "needs an ONNX file" in said and "export it to ONNX" in said


def test_a_model_that_is_no_language_model_is_named_and_sent_to_predict(places, capsys):
    for form in ("file", "timm", "torchvision", "definition"):
        assert main(["llm", places[form], "--device", "h100"]) == UnsupportedError.exit_code
        assert "`perfpass predict " in capsys.readouterr().err


def test_a_model_of_a_library_is_predicted_as_its_module():
    import timm

    module = timm.create_model("resnet18", pretrained=False)
    for how in ({}, {"mode": "training", "batch": 4}):
        asked = perfpass.predict(module, "h100", input_shape=(3, 224, 224), **how).to_dict()
        assert perfpass.predict("timm:resnet18", "h100", dims={"image_size": 224}, **how).to_dict() == asked
        # Its own size is the same question; that nobody asked for it is said.
        asked["workload"]["assumed"] = ["image_size"]
        assert perfpass.predict("timm:resnet18", "h100", **how).to_dict() == asked
    small, large = (perfpass.load("timm:resnet18", dims={"image_size": n}) for n in (160, 320))
    assert tuple(large.shape(int(large.graph_inputs[0]))) == (1, 3, 320, 320) and large.node_count == small.node_count
    with pytest.raises(ArgumentError, match="no dimension 'sequence'"):
        perfpass.load("timm:resnet18", dims={"sequence": 4})
    with pytest.raises(ArgumentError, match="image_size=N"):
        perfpass.load("timm:resnet18", input_shape={"x": (1, 3, 64, 64)})


@pytest.mark.parametrize(
    ("model", "kind", "says"),
    [
        ("timm:resnet51", UnsupportedError, "did you mean resnet5"),
        ("timm:hf-hub:timm/resnet50", UnsupportedError, "nothing is downloaded"),
        ("torchvision:resnet51", UnsupportedError, "did you mean resnet50"),
        ("timm:", ArgumentError, "timm:resnet50"),
        ("lama-3.1-8b", FileError, "did you mean llama-3.1-8b"),
        ("someone/llama-2-13b-hf", FileError, "did you mean .*llama-2-13b"),
        (str(RESNET.with_suffix(".onx")), FileError, "did you mean resnet50.onnx"),
        (str(RESNET.with_name("resnet.onnx")), FileError, "did you mean resnet50.onnx"),
        ("hf:" + str(RESNET), FormatError, "an ONNX file"),
    ],
)
def test_a_near_miss_is_answered_with_the_nearest_names(model, kind, says):
    with pytest.raises(kind, match="(?s).*" + says):
        perfpass.load(model)


def test_a_folder_without_one_model_says_what_it_holds(places):
    with pytest.raises(FormatError, match=r"2 ONNX files; give one of them: a\.onnx, b\.onnx"):
        perfpass.load(str(Path(places["folder"]) / "two"))
    with pytest.raises(FormatError, match=r"without config\.json, one \.gguf or an \.onnx file"):
        perfpass.load(str(Path(places["folder"]) / "none"))


def test_a_quantised_checkpoint_is_predicted_unquantised_and_says_so(tmp_path):
    content = json.loads(TINY.read_text())
    for quantization, says in (
        ({"quant_method": "gptq", "bits": 4}, "int4_wo"),
        ({"quant_method": "fp8"}, "fp8"),
        (None, ""),
    ):
        (tmp_path / "config.json").write_text(json.dumps({**content, "quantization_config": quantization}))
        found = perfpass.predict(tmp_path, "l4", precision="fp16").support
        told = [reason for reason in found.reasons if "stores its weights" in reason]
        assert bool(told) == bool(says) and all(f"as {says};" in t and "in fp16" in t for t in told)
    (tmp_path / "config.json").write_text(json.dumps({**content, "quantization_config": {"quant_method": "magic"}}))
    with pytest.raises(UnsupportedError, match="'magic' is not counted"):
        perfpass.predict(tmp_path, "l4")


def test_the_device_that_was_understood_is_said(capsys):
    for arguments in (["predict", str(RESNET)], ["llm", "llama-3.1-8b"]):
        assert main([*arguments, "--device", "a100"]) == 0
        assert "read as a100-sxm4-40gb; also of that name: a100-sxm4-80gb" in capsys.readouterr().out
        assert main([*arguments, "--device", "h100"]) == 0
        assert "also of that name: h100-pcie-80gb, h100-nvl-94gb and 2 more" in capsys.readouterr().out
        assert main([*arguments, "--device", "a100-sxm4-80gb"]) == 0
        assert "also of that name" not in capsys.readouterr().out
        for name, gpu in (("g5.xlarge", "A10G"), ("a2-highgpu-1g", "A100"), ("Standard_NC24ads_A100_v4", "A100")):
            assert main([*arguments, "--device", name, "--json"]) == 0
            said = capsys.readouterr()
            device = json.loads(said.out)
            device = (
                device["provenance"]["device"]
                if "provenance" in device and "graph" in device["provenance"]
                else (device["device"])
            )
            assert name in said.err and gpu in said.err and device["read_as"] in said.err
