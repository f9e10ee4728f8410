"""A difference in the forms that tools read: each by a reader that is not ours."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

import perfpass
from perfpass.deploy.difference.junit import junit
from perfpass.deploy.difference.sarif import sarif
from small_networks import network

pydantic_sarif = pytest.importorskip("pydantic_sarif.model")
junitparser = pytest.importorskip("junitparser")

LIMITS = {"latency": "5%", "throughput": "60%", "memory": "0", "parameters": "200%"}
HOSTILE = 'a|b`c*\x1b[31m<script>alert("x")</script>]]>&\x00\ud800@everyone.onnx'


@pytest.fixture(scope="module")
def found():
    return perfpass.diff(network(), network(blocks=4), ["t4", "h100"], fail=LIMITS, confidence=0.9)


@pytest.fixture(scope="module")
def hostile(found):
    operators = tuple(replace(change, name=HOSTILE, what=HOSTILE) for change in found.changes.operators)
    return replace(found, old=HOSTILE, new=HOSTILE, changes=replace(found.changes, operators=operators))


def answers(found):
    return [verdict.answer for verdict in found.verdicts]


def test_the_example_has_every_answer(found):
    assert set(answers(found)) == {"held", "broken", "cannot say"}


@pytest.mark.parametrize("which", ["found", "hostile"])
def test_sarif_is_what_its_schema_says(which, request):
    one = request.getfixturevalue(which)
    told = json.loads(json.dumps(sarif([one, one]), allow_nan=False))
    log = pydantic_sarif.StaticAnalysisResultsFormatSarifVersion210JsonSchema.model_validate(told)
    assert log.version.value == "2.1.0" if hasattr(log.version, "value") else log.version == "2.1.0"
    run = told["runs"][0]
    kinds = {"held": ("pass", "none"), "broken": ("fail", "error"), "cannot say": ("open", "warning")}
    assert [(r["kind"], r["level"]) for r in run["results"]] == [kinds[a] for a in answers(one)] * 2
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        assert uri.isascii() and uri.isprintable() and " " not in uri and ":" not in uri


def test_sarif_names_the_file_of_a_commit_by_its_path(found):
    one = replace(found, new="git:HEAD~1:models/my net.onnx")
    uri = sarif([one])["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == "models/my%20net.onnx"


@pytest.mark.parametrize("which", ["found", "hostile"])
def test_junit_is_read_with_every_limit_as_a_case(which, request, tmp_path):
    one = request.getfixturevalue(which)
    (tmp_path / "diff.xml").write_text(junit([one, one]), encoding="utf-8")
    suites = list(junitparser.JUnitXml.fromfile(str(tmp_path / "diff.xml")))
    assert len(suites) == 2
    for suite in suites:
        assert (suite.tests, suite.failures, suite.skipped, suite.errors) == (
            len(answers(one)), answers(one).count("broken"), answers(one).count("cannot say"), 0
        )  # fmt: skip
        for case, answer in zip(suite, answers(one), strict=True):
            kinds = {"held": [], "broken": [junitparser.Failure], "cannot say": [junitparser.Skipped]}
            assert [type(result) for result in case.result] == kinds[answer]
    assert ElementTree.fromstring(junit([one])).tag == "testsuites"


def test_markdown_has_the_headline_the_tables_and_what_changed(found):
    text = found.to_markdown()
    assert text.startswith("**LIMIT BROKEN: ") and "| figure | old | new | ratio | 90 % interval |" in text
    assert text.count("| latency |") == 2 and "❌ broken" in text and "added Conv conv3" in text
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert all(line.endswith(" |") for line in tables)


def test_names_of_a_model_mean_nothing_to_markdown_or_a_terminal(hostile):
    text = hostile.to_markdown()
    outside_code = re.sub("`[^`\n]*`", "", text)
    assert "<script" not in outside_code.replace("\\<", "") and "@everyone" not in outside_code.replace("\\@", "")
    assert not {"\x1b", "\x00", "\ud800"} & set(text + str(hostile))
