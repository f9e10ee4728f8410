"""`perfpass export-core`: what the core needs to predict one way of running from C or C++, as a file."""

from __future__ import annotations

import json
from typing import Any

from perfpass.cli.options import add_device_file, find_device, new_command

_EPILOG = """\
The file holds one device, one runtime and one precision; libperfpass_core reads it (docs/guides/cpp.md) and gives the
latency, throughput, power, energy and memory, with bounds, that `perfpass predict` gives without a calibration.

examples:
  perfpass export-core --device a100-80gb --runtime tensorrt --precision fp16 -o a100-tensorrt-fp16.json
  perfpass export-core --device cpu --runtime onnxruntime -o here.json"""


def add(commands: Any) -> None:
    """The command's options."""
    command = new_command(commands, "export-core", run, "write what libperfpass_core predicts one device from", _EPILOG)
    command.add_argument(
        "--device", required=True, metavar="NAME", help="device, device:profile for a MIG slice, or cpu"
    )
    command.add_argument("--runtime", required=True, metavar="R", help="tensorrt, onnxruntime, tvm, relax or torch")
    command.add_argument("--precision", default="fp32", metavar="P", help="as of `perfpass predict` (default: fp32)")
    command.add_argument("-o", "--output", required=True, metavar="FILE", help="the bundle")
    add_device_file(command)


def run(options: Any) -> int:
    """Writes the bundle."""
    from perfpass.predictors.core_bundle import core_bundle
    from perfpass.whole_file import write_whole

    bundle = core_bundle(find_device(options), runtime=options.runtime, precision=options.precision)
    write_whole(options.output, json.dumps(bundle, allow_nan=False) + "\n")
    print(f"{options.output}: {bundle['device']['id']}, {bundle['runtime']}, {bundle['precision']}")
    return 0
