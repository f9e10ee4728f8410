"""Kept inputs of the fuzzing give right figures or one error of ours; the judge of that sees what it must see."""

from __future__ import annotations

import json
import random
import time

import pytest

from perfpass.errors import FormatError
from perfpass.importers.formats import FORMATS

from . import corpus, libfuzzer, oracle
from .documents import Json, JsonLines, Toml, Xml
from .engines import minimised
from .target import ROOT
from .targets import READERS, TARGETS

KEPT = [(target, one) for target in TARGETS for one in corpus.read(target)]


def test_every_format_of_models_has_a_target() -> None:
    read = {module for name in READERS for module in TARGETS[name].modules}
    for one in FORMATS:
        assert any(module.startswith(f"python/perfpass/importers/formats/{one.module}") for module in read), one.name


def test_every_target_of_the_core_is_fuzzed_from_seeds_and_counted_by_its_sources() -> None:
    programs = {path.stem for path in (ROOT / "cpp_kernels" / "fuzz").glob("fuzz_*.cpp")}
    assert {program for program, _ in libfuzzer.SOURCES.values()} == programs
    for name, (_, folders) in libfuzzer.SOURCES.items():
        assert TARGETS[name.removeprefix(libfuzzer.PREFIX)].seeds()
        assert all((ROOT / "cpp_kernels" / "src" / folder).is_dir() for folder in folders)


def test_the_core_is_fuzzed_with_what_the_build_takes_and_the_sanitizers_of_its_tests() -> None:
    build, script = ((ROOT / name).read_text() for name in ("CMakeLists.txt", "bootstrap.sh"))
    for setting in libfuzzer.BUILT_WITH:
        name, value = setting.removeprefix("-D").split("=")
        assert f"option({name} " in build if value == "ON" else f"{setting} " in script


@pytest.mark.parametrize("target", TARGETS)
def test_seeds_are_answered(target: str) -> None:
    for data in TARGETS[target].seeds():
        how, problem = oracle.judged(TARGETS[target].run, data, TARGETS[target].seconds)
        assert problem is None
        assert how == "answered" or target == "annotated-file"


@pytest.mark.parametrize(("target", "kept"), KEPT, ids=[f"{t}-{i}" for i, (t, _) in enumerate(KEPT)])
def test_a_kept_input_gives_figures_or_an_error(target: str, kept: corpus.Kept) -> None:
    assert oracle.judged(TARGETS[target].run, kept.data, 60)[1] is None, kept.why


def test_every_kept_input_says_what_it_is_kept_for() -> None:
    assert all(kept.why.startswith(("found: ", "reaches ")) for _, kept in KEPT)
    assert {path.stem for path in corpus.FOLDER.iterdir()} <= set(TARGETS)


def forever(data: bytes) -> None:
    while True:
        pass


@pytest.mark.parametrize(
    ("answer", "identity"),
    [
        (lambda data: {}["x"], "KeyError in none of ours"),
        (lambda data: oracle.figures({"median": 1.0, "low": 2.0, "high": 3.0}), "an interval out of order"),
        (lambda data: oracle.figures({"a": [float("nan")]}), "a figure that is not finite and at least 0"),
        (lambda data: oracle.figures({"a": -1}), "a figure that is not finite and at least 0"),
        (lambda data: oracle.names(FormatError("of nothing"), "a/b.toml"), "an error that does not name its file"),
    ],
)  # fmt: skip
def test_a_wrong_answer_is_a_problem(answer, identity) -> None:
    how, problem = oracle.judged(answer, b"")
    assert how == "problem" and problem.identity.startswith(identity)


def test_an_answer_that_never_comes_is_a_problem() -> None:
    started = time.process_time()
    assert oracle.judged(forever, b"", 0.2)[1].identity.startswith("hang")
    assert time.process_time() - started < 30


def test_an_error_of_ours_is_an_answer() -> None:
    def refuse(data: bytes) -> None:
        raise FormatError("config.json: bits is -4; allowed are 2, 3, 4, 8")

    assert oracle.judged(refuse, b"") == ("FormatError", None)


@pytest.mark.parametrize("target", TARGETS)
def test_damage_is_decided_by_the_seed_alone(target: str) -> None:
    form, seed = TARGETS[target].form, TARGETS[target].seeds()[0]
    first, second = ([form.mutated(seed, random.Random(n)) for n in range(20)] for _ in range(2))
    assert first == second and len(set(first)) > 10


@pytest.mark.parametrize(
    ("form", "data"),
    [
        (Json(), json.dumps({"a": {"b": [1, 2, {"bad": 1}], "c": 3}, "rest": "x" * 50}).encode()),
        (Xml(), b"<net a='1'><bad b='2'/><rest>" + b"x" * 50 + b"</rest></net>"),
        (JsonLines(), b'{"a": 1}\n{"b": 2, "bad": {"c": 3}}\n{"rest": 4}\n'),
        (Toml(), b'a = 1\n\n[b]\nbad = 2\nc = "x"\n\n[[rest]]\ne = 3\n'),
    ],
)
def test_a_problem_is_kept_without_what_it_does_not_need(form, data) -> None:
    def run(text: bytes) -> None:
        if b"bad" in text:
            raise oracle.Violation("bad")

    small = minimised(run, form.smaller, data, "bad")
    assert b"bad" in small and len(small) < len(data) and b"x" not in small and b"rest" not in small
