"""Single operators of known size: what each computes, the bytes it must move, and a call that runs it in PyTorch.

FLOPs count a multiplication and an addition as two, as everywhere in perfpass
(docs/internals/costs.md). Bytes are the compulsory
traffic: every operand read once and every result written once, whatever the caches do. Arithmetic intensity is
FLOPs over bytes (Williams, Waterman and Patterson, "Roofline", CACM 52(4), 2009).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from perfpass.errors import ArgumentError

ELEMENT_BYTES = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2}
# Function: FLOPs per element, arrays touched. As in docs/internals/costs.md, a special function counts as one FLOP.
ELEMENTWISE = {"relu": (1, 2), "exp": (1, 2), "add": (1, 3), "multiply_add": (2, 4)}
_LARGEST = 2**40


@dataclass(frozen=True, kw_only=True)
class Operator(ABC):
    """What all operators share. ``precision`` is fp32, tf32, fp16 or bf16."""

    name: ClassVar[str] = ""
    precision: str = "fp32"

    def __post_init__(self) -> None:
        if self.precision not in ELEMENT_BYTES:
            raise ArgumentError(f"precision {self.precision!r}; allowed are {', '.join(ELEMENT_BYTES)}")
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "int" and (type(value) is not int or not 1 <= value <= _LARGEST):
                raise ArgumentError(f"{self.name}: {field.name} {value!r}; it is a whole number of at least 1")

    @property
    @abstractmethod
    def flops(self) -> int:
        """Floating-point operations of one call."""

    @property
    @abstractmethod
    def bytes(self) -> int:
        """Bytes that one call must read and write."""

    @property
    def exact(self) -> bool:
        """Whether every library computes just the FLOPs counted, so that the rate reached is the device's."""
        return True

    @property
    def group(self) -> str:
        """The class of operators it is drawn and listed with."""
        return self.name

    @abstractmethod
    def call(self, device: str) -> Callable[[], Any]:
        """A function that starts the operator once, on operands made now: standard normal, on ``device``."""

    def to_dict(self) -> dict[str, Any]:
        """All fields, and the operator's name as ``operator``."""
        return {"operator": self.name, **asdict(self)}

    def _tensor(self, device: str, *shape: int) -> Any:
        import torch

        dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(self.precision, torch.float32)
        return torch.randn(shape, device=device, dtype=dtype)


@dataclass(frozen=True, kw_only=True)
class Gemm(Operator):
    """C [m, n] = A [m, k] B [k, n]: 2 m n k FLOPs; m k + k n + m n elements."""

    name: ClassVar[str] = "gemm"
    m: int
    n: int
    k: int

    @property
    def flops(self) -> int:
        """See the class."""
        return 2 * self.m * self.n * self.k

    @property
    def bytes(self) -> int:
        """See the class."""
        return ELEMENT_BYTES[self.precision] * (self.m * self.k + self.k * self.n + self.m * self.n)

    @property
    def group(self) -> str:
        """Square products make the peak; the others show what thin operands cost."""
        return "GEMM, square" if self.m == self.n == self.k else "GEMM, skinny"

    def call(self, device: str) -> Callable[[], Any]:
        """torch.mm into a result that exists."""
        import torch

        a, b = self._tensor(device, self.m, self.k), self._tensor(device, self.k, self.n)
        out = self._tensor(device, self.m, self.n)
        return lambda: torch.mm(a, b, out=out)


@dataclass(frozen=True, kw_only=True)
class Copy(Operator):
    """b = a, [elements]: no FLOPs; 2 elements moved per element (STREAM's Copy, McCalpin 1995)."""

    name: ClassVar[str] = "copy"
    elements: int

    @property
    def flops(self) -> int:
        """None."""
        return 0

    @property
    def bytes(self) -> int:
        """See the class; also the footprint."""
        return 2 * ELEMENT_BYTES[self.precision] * self.elements

    def call(self, device: str) -> Callable[[], Any]:
        """Tensor.copy_."""
        a, b = (self._tensor(device, self.elements) for _ in range(2))
        return lambda: b.copy_(a)


@dataclass(frozen=True, kw_only=True)
class Triad(Operator):
    """a = b + s c, [elements]: 2 FLOPs and 3 elements moved per element (STREAM's Triad, McCalpin 1995)."""

    name: ClassVar[str] = "triad"
    elements: int

    @property
    def flops(self) -> int:
        """See the class."""
        return 2 * self.elements

    @property
    def bytes(self) -> int:
        """See the class; also the footprint."""
        return 3 * ELEMENT_BYTES[self.precision] * self.elements

    @property
    def group(self) -> str:
        """It is an element-wise operator like any other."""
        return "element-wise"

    def call(self, device: str) -> Callable[[], Any]:
        """torch.add with a factor."""
        import torch

        a, b, c = (self._tensor(device, self.elements) for _ in range(3))
        return lambda: torch.add(b, c, alpha=0.5, out=a)


@dataclass(frozen=True, kw_only=True)
class Elementwise(Operator):
    """``function`` of `ELEMENTWISE` over [elements]: its FLOPs and the arrays it touches, per element."""

    name: ClassVar[str] = "elementwise"
    function: str
    elements: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.function not in ELEMENTWISE:
            raise ArgumentError(f"function {self.function!r}; allowed are {', '.join(ELEMENTWISE)}")

    @property
    def flops(self) -> int:
        """See the class."""
        return ELEMENTWISE[self.function][0] * self.elements

    @property
    def bytes(self) -> int:
        """See the class."""
        return ELEMENTWISE[self.function][1] * ELEMENT_BYTES[self.precision] * self.elements

    @property
    def group(self) -> str:
        """One class for all functions."""
        return "element-wise"

    def call(self, device: str) -> Callable[[], Any]:
        """The torch function of that name, into a result that exists."""
        import torch

        *inputs, out = (self._tensor(device, self.elements) for _ in range(ELEMENTWISE[self.function][1]))
        if self.function == "relu":
            return lambda: torch.clamp_min(inputs[0], 0.0, out=out)
        functions: dict[str, Callable[..., Any]] = {"exp": torch.exp, "add": torch.add, "multiply_add": torch.addcmul}
        function = functions[self.function]
        return lambda: function(*inputs, out=out)


@dataclass(frozen=True, kw_only=True)
class Convolution(Operator):
    """Input [B, C, H, W], weights [F, C / groups, k, k] -> [B, F, H', W'], no bias.

    Padding is k // 2, so H' = (H + 2 (k // 2) - k) // stride + 1. FLOPs: 2 B F H' W' (C / groups) k^2, as if computed
    directly (Winograd's and other fast algorithms need fewer, and can so pass the roof). Bytes: input, weights
    and result. ``transposed``: weights [C, F, k, k], no padding, H' = (H - 1) stride + k; FLOPs 2 B C H W F k^2.
    """

    name: ClassVar[str] = "convolution"
    batch: int
    channels: int
    height: int
    width: int
    filters: int
    kernel: int = 3
    stride: int = 1
    groups: int = 1
    transposed: bool = False
    layout: str = "nchw"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.channels % self.groups or self.filters % self.groups:
            raise ArgumentError(
                f"groups {self.groups}; it must divide the {self.channels} channels and the {self.filters} filters"
            )
        if self.transposed and self.groups != 1:
            raise ArgumentError(f"groups {self.groups}; a transposed convolution has 1 here")
        if self.layout not in ("nchw", "nhwc"):
            raise ArgumentError(f"layout {self.layout!r}; allowed are nchw, nhwc")

    @property
    def result(self) -> tuple[int, int, int, int]:
        """The result's shape [B, F, H', W']."""
        if self.transposed:
            sides = [(side - 1) * self.stride + self.kernel for side in (self.height, self.width)]
        else:
            reach = 2 * (self.kernel // 2) - self.kernel
            sides = [(side + reach) // self.stride + 1 for side in (self.height, self.width)]
        return self.batch, self.filters, sides[0], sides[1]

    @property
    def flops(self) -> int:
        """See the class."""
        b, f, h, w = self.result
        positions = self.height * self.width if self.transposed else h * w
        return 2 * b * f * positions * (self.channels // self.groups) * self.kernel**2

    @property
    def bytes(self) -> int:
        """See the class."""
        b, f, h, w = self.result
        inputs = b * self.channels * self.height * self.width
        weights = f * (self.channels // self.groups) * self.kernel**2
        return ELEMENT_BYTES[self.precision] * (inputs + weights + b * f * h * w)

    @property
    def exact(self) -> bool:
        """Whether no library computes it with fewer operations than counted, so that its rate is the device's.

        Winograd's and FFT algorithms exist for stride 1 only (cuDNN API reference, cudnnConvolutionFwdAlgo_t), and save
        nothing at kernel 1. What is counted at the padded border (a few percent) may still be left out.
        """
        return self.kernel == 1 or self.stride > 1

    @property
    def group(self) -> str:
        """Depthwise, 1 x 1 and the rest: they sit in different places of the roofline."""
        if self.groups > 1 and self.groups == self.channels:
            return "convolution, depthwise"
        return "convolution, 1 x 1" if self.kernel == 1 else "convolution"

    def call(self, device: str) -> Callable[[], Any]:
        """torch.conv2d or conv_transpose2d; the result is allocated by the call, as in a model."""
        import torch

        layout = torch.channels_last if self.layout == "nhwc" else torch.contiguous_format
        x = self._tensor(device, self.batch, self.channels, self.height, self.width).contiguous(memory_format=layout)
        k = self.kernel
        if self.transposed:
            weights = self._tensor(device, self.channels, self.filters, k, k).contiguous(memory_format=layout)
            return lambda: torch.conv_transpose2d(x, weights, stride=self.stride)
        weights = self._tensor(device, self.filters, self.channels // self.groups, k, k).contiguous(
            memory_format=layout
        )
        return lambda: torch.conv2d(x, weights, stride=self.stride, padding=k // 2, groups=self.groups)


_KINDS: dict[str, type[Operator]] = {kind.name: kind for kind in (Gemm, Copy, Triad, Elementwise, Convolution)}


def from_dict(content: Mapping[str, Any]) -> Operator:
    """The inverse of `Operator.to_dict`; fields that are no operator's (``protocol``) are ignored.

    Raises ArgumentError for an unknown operator, a missing field or a value outside the allowed ones.
    """
    kind = _KINDS.get(content.get("operator", ""))
    if kind is None:
        raise ArgumentError(f"operator {content.get('operator')!r}; known are {', '.join(_KINDS)}")
    names = [field.name for field in fields(kind)]
    try:
        return kind(**{name: content[name] for name in names if name in content})
    except TypeError as error:
        raise ArgumentError(f"{kind.name}: {error}") from error
