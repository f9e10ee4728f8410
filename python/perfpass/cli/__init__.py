"""Command line: one module per command; results go to stdout, one-line errors to stderr (docs/reference/cli.md)."""

from __future__ import annotations

from perfpass.cli.entry import command, main

__all__ = ["command", "main"]
