"""What llama.cpp's own pull requests and pages state of boards that no record has.

Its records are of one Strix Halo, whose prompts take up to ten times as long with one library as with the next, and of
HBM boards in builds of 2023 and 2024. A discrete board has other matrix units, clocks and ways to issue a step. So
some habits are set by hand to lie among figures that llama.cpp's developers print of such boards; each entry says
which. No fit has these figures and they grade nothing. Where they tell of a kind of time, that is no longer told by
another engine, and less is left unknown of the board (`_STATED_DEVICE`, `_STATED_BUILDS` in `generation.engines`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from perfpass.devices import Device

_INTEGER_UNITS = (8, 0)
# Boards without matrix units: what multiplies four integers of 8 bits at once, and what does not.
_DOT_OF_FOUR = ("gcn5.1", "rdna2", "pascal")
_NO_DOT = ("gcn5", "rdna1")


@dataclass(frozen=True)
class Stated:
    """``habits`` (names of `generation.habits.Habits`) of llama.cpp's ``backend`` on the devices that ``on`` takes.

    ``packed``: of packed weights alone; ``mixtures``: of mixtures of experts alone. ``of``: what they tell of, ``by``:
    who states it, in words.
    """

    backend: str
    on: Callable[[Device], bool]
    habits: Mapping[str, float]
    packed: bool = False
    mixtures: bool = False
    of: str = "prompts"
    by: str = "llama.cpp's own pull requests and pages"


def _every(device: Device) -> bool:
    return True


def _of(*architectures: str) -> Callable[[Device], bool]:
    """Boards with memory of their own: a processor's GPU has neither their watts nor their bandwidth."""
    return lambda device: device.architecture in architectures and not device.unified_memory


def _since_ampere(device: Device) -> bool:
    return (device.compute_capability or (0, 0)) >= _INTEGER_UNITS


def _graphed(device: Device) -> bool:
    return _since_ampere(device) and not device.unified_memory


def _multiplies_matrices(device: Device) -> bool:
    return device.peak_flops.get("fp16", 0.0) > device.peak_flops.get("fp32", 0.0)


# Tokens/s of prompts in pieces of 512 and of answers, of Llama 3 8B where nothing else is said; by pull request.
STATED: tuple[Stated, ...] = (
    # Integer matrix units: 8,100 to 12,400 on an RTX 4090, 4,000 on an RTX 3090 (7676, 7860, 8062, 8416 of 2024, 24127
    # of 2026).
    Stated("CUDA (GDDR)", _since_ampere, {"packed_flops": 0.28, "activations": 1.0}, packed=True),
    # 16 bits summed in 16 bits: 11,000 of Llama 2 7B in fp16 on an RTX 4090 (4766).
    Stated("CUDA (GDDR)", _graphed, {"flops": 0.62, "activations": 1.0}),
    # A token is one CUDA graph from Ampere on, whose kernels still take their turns. RTX 3090: 157 in q4_0, 58 in bf16
    # (15802, 14262); RTX 4090: 65 in bf16 (15131); of 1 B 744 in q4_0 on an RTX 3090, 652 in bf16 on an RTX 5090
    # (20586, 24216). Mixtures, of some 30 kernels a layer: gpt-oss-20b 239 on an RTX 3090, 391 on an RTX Pro 6000
    # (20586, 16991), Qwen3-30B-A3B in q4_0 206 on an RTX 4090 after 2,048 tokens, 212 on an RTX 5090 after 8,192
    # (15631, 21086).
    Stated("CUDA (GDDR)", _graphed, {"weights": 0.95, "packed": 0.77, "kernel_s": 1.5e-6}, of="tokens"),
    # 16 bits at the rate of the vectors: Llama 2 7B reaches 0.62 to 0.69 of that peak in 16 bits and 0.57 to 0.78 in 4,
    # M1 Pro to M4 Max, what passes memory beside it counted apart (3084, discussion 4167).
    Stated("Metal", _every, {"flops": 0.79, "packed_flops": 0.75}),
    # The same page: tokens of 12.75 in 16 bits and 36.4 in q4_0 on an M1 Pro (200 GB/s), 41.0 and 94.3 on an M2 Ultra
    # (800), 9.9 and 30.7 on an M3 Pro (150), 31.6 and 83.1 on an M4 Max (546): most of the bandwidth, and 5 ms.
    Stated("Metal", _every, {"weights": 0.92, "packed": 0.93, "kernel_s": 2e-5}, of="tokens"),
    # With matrix units, and in builds of 2026: 21.6 and 66.3 on an M5 Pro (307 GB/s).
    Stated("Metal", _multiplies_matrices, {"kernel_s": 6e-6}, of="tokens"),
    # Of mixtures, whose thirty kernels a layer are small and run side by side: gpt-oss-20b 133 on an M2 Ultra after 512
    # tokens, 123 after 4,096 (16894), 134 (19390).
    Stated("Metal", _every, {"kernel_s": 5e-6}, mixtures=True, of="tokens"),
    # LLM-Inference-Bench: 46 ms a token of 7 B in 16 bits on a Max 1550, listed as a stack of its own, prompts as long
    # as answers. llama.cpp's page on SYCL: 39 in q4_0, then 73 from February 2025 on. So 46 ms, and 19 in between.
    Stated(
        "SYCL (HBM)", _every, {"weights": 0.11, "packed": 0.11, "kernel_s": 3e-5}, of="tokens",
        by="LLM-Inference-Bench in 16 bits and llama.cpp's own page",
    ),
    # The same page: Llama 2 7B in q4_0 at 42, then 55 on an Arc A770 and 39, then 50 on a Flex 170.
    Stated("SYCL", _of("xe-hpg"), {"packed": 0.475}, packed=True, of="tokens"),
    # XMX by oneDNN: 759 of 31 B in q4_K on an Arc B70 (22078).
    Stated("SYCL", _of("xe2-hpg"), {"packed_flops": 0.25, "activations": 1.0}, packed=True),
    # WMMA on integers, at the rate of 16 bits: 3,190 to 3,230 in q4_K on an RX 7900 XTX, 1,990 in q3_K on a W7900,
    # 1,480 to 1,610 of 14 B in q5 (26284, 17576, 18537).
    Stated("HIP (Radeon)", _of("rdna3"), {"packed_flops": 0.42, "activations": 1.0}, packed=True),
    # At twice that rate: 3,400 in q4_1 on an R9700, 4,200 on an RX 9070 XT, 2,000 on an RX 9060 XT after 4,096 tokens
    # (18816, 26697, 28102).
    Stated("HIP (Radeon)", _of("rdna4"), {"packed_flops": 0.17, "activations": 1.0}, packed=True),
    # Dot products of four: 1,680 in q4_0 on an RX 6800 XT, 1,080 on an MI50, 830 in q5_0 and 930 of Llama 2 7B in q4_0
    # on a P40 (12135, 27841, 7716, 4766).
    Stated("HIP (Radeon)", _of(*_DOT_OF_FOUR), {"packed_flops": 0.3, "activations": 1.0}, packed=True),
    Stated("HIP (Instinct)", _of(*_DOT_OF_FOUR), {"packed_flops": 0.3, "activations": 1.0}, packed=True),
    Stated("CUDA (GDDR)", _of(*_DOT_OF_FOUR), {"packed_flops": 0.3, "activations": 1.0}, packed=True),
    # None of these: 319 of Llama 2 7B in q4_0 on an RX 5700 XT in 2024, 468 with Vulkan in 2025 (5835, 13324).
    Stated("HIP (Radeon)", _of(*_NO_DOT), {"packed_flops": 0.3, "activations": 1.0}, packed=True),
    Stated("HIP (Instinct)", _of(*_NO_DOT), {"packed_flops": 0.3, "activations": 1.0}, packed=True),
    # 85 to 92 in q4_0, 150 of 1 B in 16 bits on an MI50 (16715); Instincts with matrix units do not tell of it.
    Stated("HIP (Instinct)", _of("gcn5.1"), {"weights": 0.42, "packed": 0.48}, of="tokens"),
)  # fmt: skip


def stated(backend: str, device: Device, *, packed: bool, mixture: bool) -> tuple[Stated, ...]:
    """What is stated of llama.cpp's ``backend`` on a device; the later holds where two tell of one habit."""
    told = (s for s in STATED if s.backend == backend and s.on(device))
    return tuple(s for s in told if (packed or not s.packed) and (mixture or not s.mixtures))
