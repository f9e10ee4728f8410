"""Parameters that are counted from configurations against those of the modules that transformers builds of them.

    python benchmarks/model_layouts.py [--names a,b] [--output benchmarks/results/model_layouts.json]

Every public configuration that ships is asked: the module is built on the meta device, without weights, and its
tensors are added up (parameters, and the correction biases of routers, which checkpoints hold and modules keep as
buffers). Bytes are those of 16-bit checkpoints, 2 for each. Towers of vision and speech are left out on both sides.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import transformers

from perfpass.errors import PerfPassError
from perfpass.importers.configuration_names import first
from perfpass.importers.model_sources import huggingface, read_configuration
from perfpass.llm import language_model

_INNER = ("text_config", "llm_config", "language_config", "thinker_config")
_GENERATING = {
    "t5": "T5ForConditionalGeneration",
    "mt5": "MT5ForConditionalGeneration",
    "bart": "BartForConditionalGeneration",
    "mbart": "MBartForConditionalGeneration",
    "pegasus": "PegasusForConditionalGeneration",
    "marian": "MarianMTModel",
    "m2m_100": "M2M100ForConditionalGeneration",
    "blenderbot": "BlenderbotForConditionalGeneration",
    "whisper": "WhisperForConditionalGeneration",
}
_KEPT_AS_BUFFERS = ("e_score_correction_bias", "balancing_biases", "expert_bias")


def tensors(content: dict[str, Any]) -> int:
    """Elements of the tensors of the language model that a configuration describes. Raises UnsupportedError."""
    for key in _INNER:
        if isinstance(content.get(key), dict) and content[key].get("model_type"):
            inherited = {k: content[k] for k in ("tie_word_embeddings",) if k in content}
            content = {**inherited, **content[key]}
            break
    content = {k: v for k, v in content.items() if k not in ("architectures", "auto_map")}
    if content.get("is_encoder_decoder", content["model_type"] in _GENERATING):
        content["architectures"] = [_GENERATING.get(content["model_type"], "") or content["model_type"]]
    module: Any = huggingface(content, dtype="float32", causal=True)
    buffers = sum(b.numel() for n, b in module.named_buffers() if n.endswith(_KEPT_AS_BUFFERS))
    total = sum(p.numel() for p in module.parameters()) + buffers
    if module.get_output_embeddings() is None and not module.config.tie_word_embeddings:
        total += module.get_input_embeddings().weight.numel()  # transformers has no class of it with a head
    return int(total)


def compared(name: str) -> dict[str, Any]:
    """What is counted of a configuration and what transformers builds; ``left_out``: why where one of them cannot."""
    content = read_configuration(name, run_code=False)
    found: dict[str, Any] = {"name": name, "model_type": content["model_type"]}
    try:
        found["counted"] = language_model(name).parameters
    except PerfPassError as error:
        return {**found, "left_out": f"no decoder here: {type(error).__name__}"}
    try:
        found["built"] = tensors(content)
    except PerfPassError:
        return {**found, "left_out": "transformers builds no such model type"}
    except (RuntimeError, TypeError, ValueError, AttributeError, KeyError) as error:
        return {**found, "left_out": f"transformers fails: {type(error).__name__}"}
    return {**found, "equal": found["counted"] == found["built"]}


def main(arguments: list[str]) -> int:
    """Compares, prints what differs, and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--names", default="", help="configurations with commas between them (default: all)")
    parser.add_argument("--output", default="benchmarks/results/model_layouts.json")
    options = parser.parse_args(arguments)
    started = time.monotonic()
    names = [name for name in options.names.split(",") if name] or sorted(first())
    rows = []
    for name in names:
        rows.append(compared(name))
        row = rows[-1]
        if not row.get("equal"):
            print(json.dumps(row), flush=True)
    both = [row for row in rows if "equal" in row]
    found = {
        "transformers": transformers.__version__,
        "configurations": len(rows),
        "compared": len(both),
        "equal": sum(row["equal"] for row in both),
        "model_types": len({row["model_type"] for row in both if row["equal"]}),
        "seconds": round(time.monotonic() - started, 1),
        "left_out": dict(Counter(row["left_out"] for row in rows if "left_out" in row)),
        "unequal": [row for row in both if not row["equal"]],
        "equal_names": [row["name"] for row in both if row["equal"]],
    }
    print(json.dumps({key: value for key, value in found.items() if key not in ("unequal", "equal_names")}))
    Path(options.output).write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
