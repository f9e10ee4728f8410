"""Options of `perfpass llm --offline` for what an engine leaves to the host: layers, experts, and how fast it is."""

from __future__ import annotations

from typing import Any

from perfpass.cli.options import whole
from perfpass.errors import ArgumentError

_OPTIONS = ("host_layers", "host_experts", "host_bandwidth")


def add_host(command: Any) -> None:
    """With --offline and llama.cpp, ollama or ktransformers."""
    for name, text in (
        ("host-layers", "layers left to the host, as all less llama.cpp's -ngl (default: none)"),
        ("host-experts", "layers whose experts are left to it, as --n-cpu-moe (default: none; all in ktransformers)"),
    ):
        command.add_argument(f"--{name}", type=whole, metavar="N", help=text)
    command.add_argument(
        "--host-bandwidth", type=float, metavar="GB/S", help="of the host's memory (default: 83, two channels of DDR5)"
    )


def host_options(options: Any) -> dict[str, Any]:
    """As `assumed_batch` takes them."""
    return {name: getattr(options, name, None) for name in _OPTIONS}


def refuse_host(options: Any) -> None:
    """Raises ArgumentError where a server is asked with options of what is left to the host."""
    for name in _OPTIONS:
        if getattr(options, name) is not None:
            raise ArgumentError(f"--{name.replace('_', '-')} is for engines without a server; add --offline")
