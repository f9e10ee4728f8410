"""`perfpass partition`: the file of node memory statistics that ONNX Runtime partitions by."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def run(options: Any, device: Any) -> int:
    """Writes the file and says what to set."""
    from ort_extension.partition import SETTING, partition
    from perfpass.cli.options import once
    from perfpass.text import paragraph, size

    found = partition(
        options.model,
        device,
        batch=options.batch,
        dims=once(options.dim, "--dim"),
        input_shapes=once(options.input_shape, "--input-shape"),
        source=options.source,
    )
    output = Path(options.output)
    model = Path(options.model).resolve().parent
    # onnxruntime looks for the file from the model's folder.
    named = output.name if output.resolve().parent == model else str(output.resolve())
    setting = found.setting(named)
    found.write(output)
    facts = {
        "setting": {SETTING: setting},
        "source": found.source,
        "nodes": len(found.nodes),
        "left_out": found.left_out,
        "charged_bytes": found.total_bytes,
        "limit_bytes": found.limit_kb * 1024,
        "why_file": found.why_file or None,
    }
    if options.json:
        json.dump(facts, sys.stdout, indent=2)
        print()
        return 0
    print(f"{output.name}: {len(found.nodes)} nodes of {'onnxruntime' if found.source != 'file' else 'the file'}")
    fits = "fits" if found.total_bytes <= found.limit_kb * 1024 else "does not fit: nodes beyond it stay on the CPU"
    print(paragraph("charged", f"{size(found.total_bytes)} of {size(found.limit_kb * 1024)} on {device.id}; {fits}"))
    print(paragraph("set", f"{SETTING} = {setting}"))
    if found.left_out:
        print(
            paragraph("note", f"{found.left_out} nodes of subgraphs have no line; onnxruntime charges nothing for them")
        )
    if found.why_file:
        print(paragraph("note", f"names are those of the file, as {found.why_file}"))
    return 0
