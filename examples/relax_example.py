"""A Relax module (apache-tvm 0.27) gets its prediction, is built, exported, and still knows it."""

from tvm.relax.frontend import nn

from tvm_perfpass.relax import PredictPerformance, build, read_prediction


class Network(nn.Module):
    """Two dense layers; ``main`` takes [n, 64]."""

    def __init__(self) -> None:
        self.first, self.last = nn.Linear(64, 256), nn.Linear(256, 16)

    def main(self, x: nn.Tensor) -> nn.Tensor:
        """Logits [n, 16]."""
        return self.last(nn.op.relu(self.first(x)))


mod, _ = Network().export_tvm(spec={"main": {"x": nn.spec.Tensor(["n", 64], "float32")}})
predicted = PredictPerformance(device="a100-80gb", bindings={"n": 8})(mod)  # a value for every symbolic size
print("latency", predicted.attrs["perfpass.latency_ms"], "MIG", predicted.attrs["perfpass.mig"]["profile"])
executable = build(mod, "llvm", device="a100-80gb", bindings={"n": 8})  # relax.build, prediction inside
executable.export_library("model.so")  # and model.so.perfpass.json beside it
print(read_prediction("model.so")["latency_ms"])  # nothing native is loaded
