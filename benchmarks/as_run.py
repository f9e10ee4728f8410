"""What ONNX Runtime, torch.compile and TVM make of real networks, beside the kernels that perfpass believes they make.

Networks are built here with random weights, exported, and optimised by the runtime itself. Of ONNX Runtime (CPU, all
levels) the optimised graph is counted, of torch.compile the kernels and library calls of its generated code, of TVM the
fused functions of the optimised module. Views, shape arithmetic and changes of layout are no kernels on either side.

    python benchmarks/as_run.py [ort] [compile] [tvm]
"""

from __future__ import annotations

import re
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import perfpass
from perfpass.predictors.as_run import AsRun, as_run
from perfpass.predictors.assemble import run_of

# Operators of ONNX Runtime that move nothing, or only bring a tensor into another layout.
_NO_KERNEL = frozenset(
    {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Shape", "Constant", "ReorderInput", "ReorderOutput"}
)
_DEVICE = "xeon-platinum-8380"


def networks() -> dict[str, tuple[Any, tuple[int, ...], str]]:
    """Modules with the shape of their input, batch included, and its type."""
    import torch

    from perfpass.importers.torchvision_schemas import define

    define()
    import torchvision
    from transformers import BertConfig, BertModel

    vision = torchvision.models
    bert = BertConfig(
        hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256, vocab_size=1000
    )

    class Hidden(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = BertModel(bert)

        def forward(self, ids: Any) -> Any:
            return self.model(ids).last_hidden_state

    image = (1, 3, 64, 64)
    return {
        "resnet18": (vision.resnet18(), image, "float32"),
        "mobilenet_v2": (vision.mobilenet_v2(), image, "float32"),
        "mobilenet_v3_small": (vision.mobilenet_v3_small(), image, "float32"),
        "vit, 2 blocks": (vision.VisionTransformer(64, 16, 2, 4, 128, 256), image, "float32"),
        "bert, 2 blocks": (Hidden(), (1, 32), "int64"),
    }


def _sample(shape: tuple[int, ...], dtype: str) -> Any:
    import torch

    return torch.ones(shape, dtype=torch.int64) if dtype == "int64" else torch.randn(shape)


def exported(module: Any, shape: tuple[int, ...], dtype: str, folder: str) -> Path:
    """The module as an ONNX file with its weights, as torch's tracing exporter writes it."""
    import torch

    for parameter in module.parameters():  # equal initial values would be shared in the file
        torch.nn.init.normal_(parameter)
    path = Path(folder) / "model.onnx"
    torch.onnx.export(module.eval(), (_sample(shape, dtype),), str(path), dynamo=False, opset_version=17)
    return path


def of_onnxruntime(path: Path) -> Counter[str]:
    """The operators that a session runs."""
    import onnx
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(path.with_suffix(".optimised.onnx"))
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    nodes = onnx.load(options.optimized_model_filepath).graph.node
    return Counter(node.op_type for node in nodes if node.op_type not in _NO_KERNEL)


def of_inductor(module: Any, shape: tuple[int, ...], dtype: str) -> Counter[str]:
    """The kernels of the code that torch.compile generates, and its calls of libraries."""
    import torch
    from torch._inductor.utils import run_and_get_code

    with torch.no_grad():
        _, codes = run_and_get_code(torch.compile(module.eval()), _sample(shape, dtype))
    body = "\n".join(code.split("def call(")[-1] for code in codes)
    kernels = re.findall(
        r"^\s+(?:buf\d+ = )?(cpp_fused\w*|extern_kernels\.\w+|torch\.ops\.[\w.]+)\(", body, re.MULTILINE
    )
    calls = re.findall(r"= (torch\.ops\.[\w.]+|extern_kernels\.\w+)\(", body)
    return Counter(["fused" for k in kernels if k.startswith("cpp_fused")] + calls)


def of_tvm(module: Any, shape: tuple[int, ...], dtype: str) -> int:
    """How many fused functions Relay's optimisation leaves of what torch traced."""
    import torch
    import tvm
    from tvm import relay

    with torch.no_grad():
        traced = torch.jit.trace(module.eval(), (_sample(shape, dtype),), strict=False)
        module, parameters = relay.frontend.from_pytorch(traced, [("x", (shape, dtype))])
    with tvm.transform.PassContext(opt_level=3):
        module, _ = relay.optimize(module, target="llvm", params=parameters)
    found = 0

    def visit(node: Any) -> None:
        nonlocal found
        found += isinstance(node, relay.Call) and isinstance(node.op, relay.Function)

    relay.analysis.post_order_visit(module["main"], visit)
    return found


def believed(model: Any, runtime: str, **sizes: Any) -> AsRun:
    """What perfpass believes."""
    run = run_of(perfpass.load(model, **sizes), _DEVICE, runtime=runtime)
    return as_run(run, [0.0] * run.graph.node_count)


def main(asked: list[str]) -> None:
    """Prints one line a network and runtime."""
    warnings.simplefilter("ignore")
    print(f"{'network':20} {'runtime':14} {'operators':>9} {'runs':>5} {'believed':>8}")
    for name, (module, shape, dtype) in networks().items():
        with tempfile.TemporaryDirectory() as folder:
            path = exported(module, shape, dtype, folder)
            graph = perfpass.load(path)
            runtimes: dict[str, Callable[[], int]] = {
                "onnxruntime": lambda path=path: of_onnxruntime(path).total(),
                "torch.compile": lambda m=module, s=shape, d=dtype: of_inductor(m, s, d).total(),
                "tvm": lambda m=module, s=shape, d=dtype: of_tvm(m, s, d),
            }
            for runtime, count in runtimes.items():
                if asked and runtime not in asked:
                    continue
                try:
                    real = str(count())
                except Exception as error:  # a runtime that is not here, or does not take the file
                    real = type(error).__name__
                mine = len(believed(path, runtime).kernels)
                print(f"{name:20} {runtime:14} {graph.node_count:9} {real:>5} {mine:8}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
