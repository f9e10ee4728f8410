"""Writes the Paddle programs of this folder: `python tests/importers/files/make_paddle.py`, from the repository's root.

With paddlepaddle 3.3.1 it writes PIR programs (``.json``), with 2.6.2 ProgramDescs (``.pdmodel``), of which the call
stacks are dropped: they name the folders of the machine. Compressed; parameters are not kept.
"""

from __future__ import annotations

import gzip
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path.cwd() / "benchmarks" / "coverage"))

import paddle
from paddle.static import InputSpec
from paddle.vision.models import mobilenet_v3_small
from paddle_networks import networks, quantised

FOLDER = Path(__file__).resolve().parent / "paddle"
OLD = ("bert", "choosing", "gru", "unet", "channels_last", "detector")


def without_call_stacks(content: bytes) -> bytes:
    """A ProgramDesc whose operators do not say where they were written."""
    from paddle.base.proto import framework_pb2

    program = framework_pb2.ProgramDesc.FromString(content)
    for block in program.blocks:
        for operator in block.ops:
            kept = [a for a in operator.attrs if a.name != "op_callstack"]
            del operator.attrs[:]
            operator.attrs.extend(kept)
    return program.SerializeToString()


def main() -> None:
    """Every network, exported by the installed release."""
    image = [InputSpec([None, 3, 224, 224], "float32", "image")]
    new = paddle.__version__.startswith("3")
    made = networks() | ({"mobilenet_v3_small": (mobilenet_v3_small(), image), "quantised": quantised()} if new else {})
    for name, (network, declared) in made.items():
        if not new and name not in OLD:
            continue
        with tempfile.TemporaryDirectory() as folder:
            network.eval()
            paddle.jit.save(network, f"{folder}/model", input_spec=declared)
            end = "json" if new else "pdmodel"
            content = Path(f"{folder}/model.{end}").read_bytes()
        content = content if new else without_call_stacks(content)
        (FOLDER / f"{name}.{end}.gz").write_bytes(gzip.compress(content, 9, mtime=0))


if __name__ == "__main__":
    main()
