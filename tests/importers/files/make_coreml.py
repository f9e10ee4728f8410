"""Makes the small Core ML models beside this file: coremltools 9.0 and torch; run from this folder.

    python make_coreml.py

Of packages the weights are left out: no reader of perfpass opens them.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import coremltools as ct
import coremltools.optimize.coreml as compress
import numpy as np
import torch
from coremltools.converters.mil import Builder as mb
from torch import nn

from small_networks import Block, Images, trained

HERE = Path(__file__).resolve().parent


def save(model: ct.models.MLModel, name: str) -> None:
    path = HERE / name
    if path.is_dir():
        shutil.rmtree(path)
    model.save(str(path))
    if path.is_dir():
        shutil.rmtree(path / "Data" / "com.apple.CoreML" / "weights")


@mb.program(input_specs=[mb.TensorSpec(shape=(5, 1, 4)), mb.TensorSpec(shape=(1,))], opset_version=ct.target.iOS18)
def control(x: Any, limit: Any) -> Any:
    """A recurrent layer of both directions, a loop around it, and a branch whose sides differ."""
    sides = ("", "_back")
    rows = {f"weight_ih{s}": np.full((32, 4), 0.1, np.float32) for s in sides}
    rows |= {f"weight_hh{s}": np.full((32, 8), 0.1, np.float32) for s in sides}
    rows |= {f"bias{s}": np.full((32,), 0.1, np.float32) for s in sides}
    start = np.zeros((1, 16), np.float32)
    y, _, _ = mb.lstm(x=x, initial_h=start, initial_c=start, direction="bidirectional", output_sequence=True, **rows)
    once = np.full((16, 16), 0.1, np.float32)
    y, _ = mb.while_loop(
        _cond=lambda y, left: mb.squeeze(x=mb.greater(x=left, y=0.0), axes=[0]),
        _body=lambda y, left: (mb.matmul(x=y, y=once), mb.sub(x=left, y=1.0)),
        loop_vars=(y, limit),
    )
    wide = np.full((16, 64), 0.1, np.float32)
    chosen = mb.squeeze(x=mb.greater(x=limit, y=1.0), axes=[0])
    return mb.cond(
        pred=chosen,
        _true_fn=lambda: mb.matmul(x=y, y=wide),
        _false_fn=lambda: mb.tile(x=y, reps=[1, 1, 4]),
    )


def main() -> None:
    traced = torch.jit.trace(trained(Images()), torch.zeros(1, 3, 32, 32))
    image = [ct.TensorType(name="x", shape=(1, 3, 32, 32))]
    save(ct.convert(traced, inputs=image, convert_to="neuralnetwork"), "cm_images.mlmodel")
    target = ct.target.iOS18
    whole = ct.convert(traced, inputs=image, convert_to="mlprogram", minimum_deployment_target=target)
    save(whole, "cm_images.mlpackage")
    block = torch.jit.trace(trained(Block()), torch.zeros(1, 8, dtype=torch.long))
    ids = [ct.TensorType(name="ids", shape=(1, 8), dtype=int)]
    save(ct.convert(block, inputs=ids, minimum_deployment_target=target), "cm_block.mlpackage")
    rows = trained(nn.Sequential(nn.Embedding(50, 32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)))
    rows_traced = torch.jit.trace(rows, torch.zeros(1, 8, dtype=torch.long))
    for old, version in (("cm_rows_lut4", ct.target.iOS16), ("cm_rows_lut4_ios18", ct.target.iOS18)):
        model = ct.convert(rows_traced, inputs=ids, minimum_deployment_target=version)
        config = compress.OptimizationConfig(compress.OpPalettizerConfig(mode="uniform", nbits=4, weight_threshold=512))
        save(compress.palettize_weights(model, config), f"{old}.mlpackage")
    model = ct.convert(rows_traced, inputs=ids, minimum_deployment_target=target)
    blocks = compress.OpLinearQuantizerConfig(
        dtype="int4", granularity="per_block", block_size=16, weight_threshold=512
    )
    save(compress.linear_quantize_weights(model, compress.OptimizationConfig(blocks)), "cm_rows_int4.mlpackage")
    save(ct.convert(control, minimum_deployment_target=target), "cm_control.mlpackage")
    image = [ct.TensorType(name="x", shape=(1, 3, 32, 32))]  # a conversion writes its types into the list
    first = ct.convert(traced, inputs=image, convert_to="neuralnetwork")
    (between,) = (output.name for output in first.get_spec().description.output)
    head = torch.jit.trace(trained(nn.Linear(10, 3)), torch.zeros(1, 10))
    second = ct.convert(head, inputs=[ct.TensorType(name=between, shape=(1, 10))], convert_to="neuralnetwork")
    save(ct.utils.make_pipeline(first, second), "cm_pipeline.mlmodel")


if __name__ == "__main__":
    main()
