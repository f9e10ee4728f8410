"""A misspelt name is answered with the nearest ones, in one line: commands, options, devices, models and choices."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfpass.cli import main

RESNET = str(Path(__file__).resolve().parents[2] / "examples" / "resnet50.onnx")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("predcit {} --device a100", "unknown command 'predcit'; did you mean predict?"),
        ("predict {} --devcie a100", "there is no option --devcie; did you mean --device"),
        ("predict {} -device a100", "there is no option -device; did you mean --device"),
        ("predict {} --device a100 --bathc=8", "there is no option --bathc; did you mean --batch?"),
        ("predict {} --device a100 --precision f16", "did you mean fp16"),
        ("predict {} --device a100 --runtime tensorRT", "did you mean tensorrt?"),
        ("predict {} --device a100 --mode trainig", "did you mean training?"),
        ("predict {} --device a100 --mode training --optimizer adamW2", "did you mean adamw"),
        ("predict {} --device a100 --predictor dipm", "did you mean dippm?"),
        ("predict {} --device h10", "did you mean h100-sxm5-80gb"),
        ("predict {} --device g5.xlrge", "did you mean g5.xlarge"),
        ("llm lama-3.1-8b --device h100", "did you mean llama-3.1-8b"),
        ("llm llama-3.1-8b --device h100 --runtime vlm", "did you mean vllm?"),
        ("llm llama-3.1-8b --device h100 --precision bf-16", "did you mean bf16"),
        ("llm llama-3.1-8b --device h100 --input-lenght 8", "did you mean --input-length"),
        ("operator gem --device h100", "did you mean gemm?"),
        ("operator gemm --device h100 --m 8 --n 8 --k 8 --dtpe fp8", "did you mean --dtype?"),
        ("compare {} --readers rlay", "did you mean relay"),
        ("features {} --schema trapm -o x.npz", "did you mean trappm"),
        ("measure timm:resnet18 --list --precision f16", "did you mean fp16"),
        ("llm llama-3.1-8b --device h100 --offline --runtime llama.cpp --precision q4km", "did you mean q4_k_m"),
        ("train --area infrence", "did you mean inference or difference?"),
        ("devices --jsno", "did you mean --json?"),
        ("mig", "perfpass predict MODEL --device a100:1g.5gb"),
    ],
)
def test_a_near_miss_is_answered_with_the_nearest_names(arguments, says, capsys):
    code = main(arguments.format(RESNET).split())
    said = capsys.readouterr()
    assert code in (2, 3, 9) and said.out == "" and said.err.count("\n") == 1
    assert says in said.err, said.err


def test_what_is_like_nothing_is_answered_with_what_there_is(capsys):
    main(["frobnicate"])
    said = capsys.readouterr().err
    assert "unknown command 'frobnicate'; allowed are predict, " in said and "did you mean" not in said


def test_values_that_begin_like_an_option_are_values(capsys):
    assert main(["predict", RESNET, "--device", "l4", "--carbon-intensity", "-5"]) == 2
    assert "there is no option" not in capsys.readouterr().err
    assert main(["annotate", RESNET, "--device", "l4", "-o/nonexistent/x.onnx"]) == 3
    assert "there is no option" not in capsys.readouterr().err
