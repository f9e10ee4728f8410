"""A pytest plugin: a skip that skips.toml does not list fails the session where CI is set, and is printed elsewhere.

A test that is skipped keeps no promise, and nobody sees it. So every place where a skip is right is written down. Under
pytest-xdist a skipped test reaches the controller as a report; a module that is skipped whole does not, so each worker
hands its own over when it ends.
"""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import tomllib

LIST = Path(__file__).with_name("skips.toml")
FAILED = 1


class ListedSkips:
    """Skips of one process, and those of its workers; ``listed`` as in skips.toml."""

    def __init__(self, listed: list[dict[str, str]]) -> None:
        self.listed = listed
        self.unlisted: list[str] = []
        self.modules: list[tuple[str, str]] = []

    def see(self, test: str, reason: str) -> None:
        """Note a skip that is not listed."""
        reason = reason.removeprefix("Skipped: ")
        if not any(entry["reason"] == reason and fnmatchcase(test, entry["tests"]) for entry in self.listed):
            self.unlisted.append(f"{test}: {reason}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self.see(report.nodeid, reason_of(report))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self.modules.append((report.nodeid, reason_of(report)))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        # Both workers collect every module.
        for module in map(tuple, getattr(node, "workeroutput", {}).get("skipped_modules", [])):
            if module not in self.modules:
                self.modules.append(module)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["skipped_modules"] = self.modules
            return
        for module in self.modules:
            self.see(*module)
        if self.unlisted and os.environ.get("CI") and session.exitstatus in (0, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.unlisted:
            terminalreporter.section(f"skips that are not in {LIST.name}", red=True)
            for line in self.unlisted:
                terminalreporter.line(line)


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """What a skip says; pytest gives (file, line, reason), or the text of an exception."""
    return report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(ListedSkips(tomllib.loads(LIST.read_text())["skip"]), "perfpass-listed-skips")
