"""`perfpass features`: a model as tensors in a file."""

from __future__ import annotations

from typing import Any

from perfpass.cli.options import add_model, model_sizes, new_command
from perfpass.errors import ArgumentError, about
from perfpass.text import unknown

_SCHEMAS = ("operator", "dippm", "trappm", "nnlqp")


def add(commands: Any) -> None:
    """The command's options."""
    command = new_command(
        commands,
        "features",
        run,
        "write a model's node features, edges and statics to a file",
        "FILE ends in .npz (NumPy; nodes [N, F], edge_index [2, E], statics [S] and their names). The schemas are\n"
        "described in docs/reference/schemas.md.\n\n"
        "example:\n  perfpass features model.onnx --schema trappm -o model.npz",
    )
    add_model(command)
    command.add_argument("--schema", required=True, metavar="S", help=", ".join(_SCHEMAS))
    command.add_argument("-o", "--output", required=True, metavar="FILE", help="file to write")


def run(options: Any) -> int:
    """Writes the file and says what is in it."""
    from perfpass.features import extract, save
    from perfpass.importers import load

    if options.schema not in _SCHEMAS:
        raise ArgumentError(unknown("schema", options.schema, _SCHEMAS))
    with about(options.model):
        found = extract(load(options.model, **model_sizes(options)), options.schema)
    save(found, options.output)
    nodes, width = found.nodes.shape
    print(
        f"{options.output}: schema {found.schema} version {found.version}, {nodes} nodes x {width} features, "
        f"{found.edge_index.shape[1]} edges, {len(found.statics)} statics"
    )
    return 0
