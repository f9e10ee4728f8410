"""Command line: `perfpass COMMAND`, a module of this package for each command."""

from __future__ import annotations

from perfpass.cli.program import EXIT_BROKEN_PIPE, EXIT_INTERNAL, EXIT_INTERRUPTED, main

__all__ = ["EXIT_BROKEN_PIPE", "EXIT_INTERNAL", "EXIT_INTERRUPTED", "main"]
