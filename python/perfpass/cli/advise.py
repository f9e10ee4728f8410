"""`perfpass advise`: what would surely run faster, cheaper or in less, and the rewritten file."""

from __future__ import annotations

from typing import Any

from perfpass.cli.options import (
    add_device_file,
    add_device_files,
    add_json,
    add_limits,
    add_model,
    find_device,
    limits,
    model_sizes,
    new_command,
    print_json,
)

_EPILOG = """\
MODEL is what `perfpass predict` takes. Each change is predicted beside what is, with the interval of the ratio (as
`perfpass diff` has it); the surest large gain is kept, then the next is sought from there. What is not better with the
probability --confidence is not advised, and said so. ONNX files with their weights are also rewritten: what is idle is
folded, norms, GELU and attention become single operators, weights 16 or 8 bits. Both files run in ONNX Runtime on this
CPU: outputs may be off by rounding, or by --tolerance where a change is marked "changes numbers". What the runtime does
itself as it loads a file is told as no gain. The first --device and --runtime are where it runs now, others may be
changed to. Training a language model: `perfpass train-cost --advise`.

examples:
  perfpass advise model.onnx --device cpu                          what runs faster on this CPU
  perfpass advise model.onnx --device cpu -o faster                and the rewritten file, into a folder
  perfpass advise resnet50 --device t4 --keep-precision --runtime torch --runtime torch.compile
  perfpass advise model.onnx --device a100 --device l4 --slices --target price --latency 20
  perfpass advise resnet50 --device rtx-4090 --mode training --batch 64 --target throughput"""


def add(commands: Any) -> None:
    """The command's options."""
    command = new_command(commands, "advise", run, "changes that surely run faster, cheaper or in less", _EPILOG)
    add_model(command)
    command.add_argument(
        "--device", action="append", required=True, metavar="NAME",
        help="where it runs, or cpu for this machine; further ones: where it may run",
    )  # fmt: skip
    command.add_argument(
        "--target", default="latency", metavar="T", help="latency (default), throughput, memory, energy, price"
    )
    command.add_argument("--precision", default="fp32", metavar="P", help="what it runs in (default: fp32)")
    command.add_argument(
        "--runtime", action="append", metavar="R",
        help="what it runs in (default: onnxruntime for ONNX files, else torch); further ones: what it may run in "
        "(default: any)",
    )  # fmt: skip
    command.add_argument("--layout", default="nchw", metavar="L", help="nchw or nhwc (default: nchw)")
    command.add_argument("--mode", default="inference", metavar="M", help="inference, or training: one whole step")
    command.add_argument("--optimizer", metavar="O", help="none, sgd, momentum, adam, adamw (training)")
    command.add_argument("--slices", action="store_true", help="MIG slices of the devices too")
    command.add_argument("--keep-precision", action="store_true", help="nothing that changes numbers beyond rounding")
    command.add_argument("--keep-batch", action="store_true", help="as many samples at once as now")
    add_limits(command)
    command.add_argument(
        "--tolerance", type=float, default=0.05, metavar="E",
        help="the most that outputs may be off where numbers change, relative (default: 0.05)",
    )  # fmt: skip
    command.add_argument("--no-rewrites", action="store_true", help="settings alone: the file is not run")
    command.add_argument("-o", "--output", metavar="DIR", help="folder for the rewritten file; none is replaced")
    add_device_file(command)
    command.add_argument(
        "--no-calibration", action="store_true", help="ignore what `perfpass calibrate` has learned of the device"
    )
    add_json(command)


def run(options: Any) -> int:
    """Prints the path, and writes the file where one is asked for."""
    from perfpass.deploy.advise import advise

    add_device_files(options)
    found = advise(
        options.model,
        [find_device(options, name) for name in dict.fromkeys(options.device)],
        **model_sizes(options),
        target=options.target,
        precision=options.precision,
        runtime=options.runtime,
        layout=options.layout,
        mode=options.mode,
        optimizer=options.optimizer,
        slices=options.slices,
        keep_precision=options.keep_precision,
        keep_batch=options.keep_batch,
        limits=limits(options),
        tolerance=options.tolerance,
        rewrites=not options.no_rewrites,
        output=options.output,
        calibration=not options.no_calibration,
    )
    print_json(found.to_dict()) if options.json else print(found)
    return 0
