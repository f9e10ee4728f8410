"""Differences as JUnit XML, which CI servers show: a suite a model, a test case for each limit on each device."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from perfpass.deploy.difference.text import said, table, times

if TYPE_CHECKING:
    from perfpass.deploy.difference.found import Found

# Characters that XML 1.0 has no way to write.
_UNWRITABLE = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(found: Sequence[Found]) -> str:
    """A broken limit is a failure, one of which nothing can be said is skipped, with the reason."""
    suites = ElementTree.Element("testsuites", name="perfpass diff")
    for one in found:
        answers = [v.answer for v in one.verdicts]
        suite = ElementTree.SubElement(
            suites, "testsuite", name=_text(one.new), tests=str(len(answers)), failures=str(answers.count("broken")),
            errors="0", skipped=str(answers.count("cannot say")),
        )  # fmt: skip
        for verdict in one.verdicts:
            case = ElementTree.SubElement(
                suite, "testcase", classname=_text(f"perfpass.{verdict.device or 'model'}"), name=_text(verdict.limit)
            )
            message = _text(f"{times(verdict.ratio)}; {said(verdict)}")
            if verdict.answer == "broken":
                ElementTree.SubElement(case, "failure", message=message, type="limit").text = _text(table(one))
            elif verdict.answer == "cannot say":
                ElementTree.SubElement(case, "skipped", message=message)
        ElementTree.SubElement(suite, "system-out").text = _text(table(one))
    for name in ("tests", "failures", "errors", "skipped"):
        suites.set(name, str(sum(int(suite.get(name, "0")) for suite in suites)))
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _text(value: str) -> str:
    return _UNWRITABLE.sub("?", value)
