"""Whether an engine takes a command line, by the flags of its own sources (benchmarks/publish/engine_flags.py)."""

from __future__ import annotations

import json
from pathlib import Path

ENGINES = json.loads(Path(__file__).with_name("engine_flags.json").read_text())
_STARTS = {
    "vllm": ["vllm", "serve"],
    "sglang": ["python", "-m", "sglang.launch_server"],
    "llama.cpp": ["llama-server"],
    "trtllm": ["trtllm-serve"],
}


def refused(engine: str, command: list[str]) -> None:
    """Fails for a flag that the engine does not have, without its value, or with a value that it does not take."""
    start = _STARTS[engine]
    assert command[: len(start)] == start, command
    flags, words = ENGINES[engine]["flags"], command[len(start) :]
    if engine in ("vllm", "trtllm") and not words[0].startswith("-"):
        words = words[1:]  # the model
    while words:
        name, *words = words
        assert name in flags, f"{engine} has no {name}"
        if flags[name] == "switch":
            continue
        assert words and not words[0].startswith("--"), f"{name} needs a value"
        assert not isinstance(flags[name], list) or words[0] in flags[name], f"{name} takes no {words[0]}"
        words = words[1:]
