"""`perfpass partition`: the file of node memory statistics that ONNX Runtime partitions by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from perfpass import extensions
from perfpass.cli.options import (
    add_device_file,
    add_json,
    add_model,
    find_device,
    model_sizes,
    new_command,
    onnx_file,
    print_json,
)
from perfpass.errors import UnsupportedError, about

_GROUP = "perfpass.commands"  # what other packages execute of our commands
_EPILOG = """\
ONNX Runtime gives nodes to its CUDA provider until the statistics of FILE add up to a limit; this writes FILE without
the profiling run on the GPU that it usually comes from. See docs/reference/partition-format.md.

examples:
  perfpass partition model.onnx --device l4 --dim batch=8 -o model.csv
  perfpass partition model.onnx --device a100-80gb:1g.10gb --source file -o model.csv --json"""


def add(commands: Any) -> None:
    """The command's options."""
    command = new_command(
        commands,
        "partition",
        run,
        "write the node memory statistics that ONNX Runtime's resource partitioning reads",
        _EPILOG,
    )
    add_model(command, assumes=False)
    command.add_argument("--device", required=True, metavar="NAME", help="device whose memory is the limit")
    command.add_argument("-o", "--output", required=True, metavar="FILE", help="CSV file to write")
    command.add_argument(
        "--source",
        choices=("auto", "onnxruntime", "file"),
        default="auto",
        help="whose graph: onnxruntime's after its basic optimisations, or the file's (default: the first if possible)",
    )
    add_device_file(command)
    add_json(command, "text")


def run(options: Any) -> int:
    """Writes the file and says what to set."""
    from perfpass.text import paragraph, size

    options.model = onnx_file(
        options, "`perfpass partition`, for sessions of onnxruntime,", "export it to ONNX (torch.onnx.export) first"
    )
    device = find_device(options)
    partition = extensions.find(_GROUP, "partition")
    if partition is None:
        raise UnsupportedError("`perfpass partition` needs ort_extension: pip install 'perfpass[onnxruntime]'")
    sizes = model_sizes(options)
    with about(options.model):
        found = partition(
            options.model,
            device,
            batch=sizes["batch"],
            dims=sizes["dims"],
            input_shapes=sizes["input_shape"],
            source=options.source,
        )
    output = Path(options.output)
    model = Path(options.model).resolve().parent
    # onnxruntime looks for the file from the model's folder.
    named = output.name if output.resolve().parent == model else str(output.resolve())
    setting = found.setting(named)
    found.write(output)
    facts = {
        "setting": {found.name: setting},
        "source": found.source,
        "nodes": len(found.nodes),
        "left_out": found.left_out,
        "charged_bytes": found.total_bytes,
        "limit_bytes": found.limit_kb * 1024,
        "why_file": found.why_file or None,
    }
    if options.json:
        print_json(facts)
        return 0
    print(f"{output.name}: {len(found.nodes)} nodes of {'onnxruntime' if found.source != 'file' else 'the file'}")
    fits = "fits" if found.total_bytes <= found.limit_kb * 1024 else "does not fit: nodes beyond it stay on the CPU"
    print(paragraph("charged", f"{size(found.total_bytes)} of {size(found.limit_kb * 1024)} on {device.id}; {fits}"))
    print(paragraph("set", f"{found.name} = {setting}"))
    if found.left_out:
        print(
            paragraph("note", f"{found.left_out} nodes of subgraphs have no line; onnxruntime charges nothing for them")
        )
    if found.why_file:
        print(paragraph("note", f"names are those of the file, as {found.why_file}"))
    return 0
