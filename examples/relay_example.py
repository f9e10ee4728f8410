"""A Relay module gets its prediction, is built, exported, loaded again, and still knows it.

`tvm.relay.testing`, from which the network comes, imports pytest.
"""

import tvm
from tvm.relay.testing import resnet

import tvm_perfpass
from tvm_perfpass.relay import PredictPerformance

mod, params = resnet.get_workload(num_layers=18, batch_size=8)
mod = PredictPerformance(device="a100-80gb", params=params)(mod)
print("latency", mod.attrs["perfpass.latency_ms"], "MIG", mod.attrs["perfpass.mig"]["profile"])
library = tvm_perfpass.build(mod, "llvm", params, device="a100-80gb")
library.export_library("resnet18.so")
print(tvm_perfpass.read_prediction(tvm.runtime.load_module("resnet18.so"))["latency_ms"])
