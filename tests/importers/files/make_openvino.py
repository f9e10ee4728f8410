"""Makes the small OpenVINO models beside this file: openvino 2026.4.1, nncf 3 and torch; run from this folder.

python make_openvino.py
"""

from __future__ import annotations

import re
from pathlib import Path

import nncf
import numpy as np
import openvino as ov
import torch
from openvino import opset13 as op
from torch import nn

from small_networks import Block, Images, trained

HERE = Path(__file__).resolve().parent


def save(model: ov.Model, name: str, *, bin_too: bool = False, fp16: bool = False) -> None:
    path = HERE / f"{name}.xml"
    ov.save_model(model, path, compress_to_fp16=fp16)
    path.write_text(re.sub(r"\n\t+", "\n", path.read_text()))  # without indentation, to be small
    if not bin_too:
        path.with_suffix(".bin").unlink()


def control() -> ov.Model:
    """A Loop of five trips around an If whose branches differ, behind a TensorIterator's slices."""
    x = op.parameter([4, 1, 8], np.float32, name="x")
    part, state = op.parameter([1, 1, 8], np.float32), op.parameter([1, 1, 8], np.float32)
    weight = op.constant(np.ones((8, 8), np.float32))
    step = op.tanh(op.add(op.matmul(part, weight, False, False), state))
    iterator = op.tensor_iterator()
    iterator.set_body(ov.Model([op.result(step)], [part, state], "step"))
    iterator.set_sliced_input(part, x.output(0), 0, 1, 1, -1, 0)
    start = op.constant(np.zeros((1, 1, 8), np.float32))
    iterator.set_merged_input(state, start.output(0), iterator.get_body().get_results()[0].output(0))
    last = iterator.get_iter_value(iterator.get_body().get_results()[0].output(0), -1)
    whole = iterator.get_concatenated_slices(iterator.get_body().get_results()[0].output(0), 0, 1, 1, -1, 0)
    chosen = op.if_op(
        op.greater(op.reduce_max(x, op.constant([0, 1, 2]), False), op.constant(np.float32(0.5))).output(0)
    )
    heavy, light = op.parameter([4, 1, 8], np.float32), op.parameter([4, 1, 8], np.float32)
    product = op.matmul(heavy, op.constant(np.ones((8, 16), np.float32)), False, False)
    padded = op.concat([light, light], 2)
    then, other = ov.Model([op.result(product)], [heavy], "then"), ov.Model([op.result(padded)], [light], "else")
    chosen.set_then_body(then)
    chosen.set_else_body(other)
    chosen.set_input(whole, heavy, light)
    out = chosen.set_output(then.get_results()[0], other.get_results()[0])
    return ov.Model([op.result(out), op.result(last)], [x], "control")


def main() -> None:
    images = trained(Images())
    fixed = ov.convert_model(images, example_input=torch.zeros(1, 3, 32, 32), input=[1, 3, 32, 32])
    save(fixed, "ov_images_fp16", fp16=True)
    save(ov.convert_model(images, example_input=torch.zeros(1, 3, 32, 32)), "ov_images_open", bin_too=True)
    block = trained(Block())
    ids = torch.zeros(1, 8, dtype=torch.long)
    save(ov.convert_model(block, example_input=ids), "ov_block_open", bin_too=True)
    save(ov.convert_model(block, example_input=ids, input=[1, 8]), "ov_block")
    rows = trained(nn.Sequential(nn.Embedding(50, 32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)))
    packed = ov.convert_model(rows, example_input=ids, input=[1, 8])
    mode = nncf.CompressWeightsMode.INT4_ASYM
    save(nncf.compress_weights(packed, mode=mode, group_size=16, all_layers=True), "ov_rows_int4")
    packed = ov.convert_model(images, example_input=torch.zeros(1, 3, 32, 32), input=[1, 3, 32, 32])
    save(nncf.quantize(packed, nncf.Dataset([np.zeros((1, 3, 32, 32), np.float32)])), "ov_images_int8")
    recurrent = trained(nn.LSTM(4, 8, batch_first=True, bidirectional=True))
    save(ov.convert_model(recurrent, example_input=torch.zeros(1, 5, 4), input=[1, 5, 4]), "ov_lstm")
    save(control(), "ov_control")


if __name__ == "__main__":
    main()
