"""Latency and power of single kernels on GPUs: matrix products, attention, mixtures of experts, collectives.

    from perfpass.predictors.kernels import predictor as kernels
    times = kernels.load().gemm("h100", m=[1, 4096], n=4096, k=4096, dtype="fp8", stack="vllm")
    times.seconds, times.low_s, times.high_s, times.power_w        # arrays [2]

Sizes broadcast against each other like NumPy arrays; one call is one device and one piece of software. Learned from
kernels of serving stacks (docs/predictors/kernels.md); scoring needs NumPy and the compiled core.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from perfpass.devices import device as find_device
from perfpass.errors import ArgumentError, ArtefactError, DeviceError
from perfpass.prediction import Support
from perfpass.predictors.kernels import physics as kernel_physics
from perfpass.predictors.kernels.efficiency import level_keys
from perfpass.predictors.kernels.model import (
    OUTSIDE_FACTOR,
    WORDS,
    OperatorModel,
    Software,
    lacks,
    offsets,
    relative,
    unseen_evidence,
)
from perfpass.predictors.kernels.physics import COLLECTIVES, Figures, Terms, figures_of
from perfpass.predictors.kernels.power import KernelPower
from perfpass.predictors.kernels.software import (
    FAMILIES,
    PRECISIONS,
    TORCH_OPERATORS,
    family,
    generation,
    precision_code,
    runtime_code,
    version_number,
)
from perfpass.predictors.learned import artefacts, width_words

if TYPE_CHECKING:
    from perfpass.devices import Device

FEATURE_VERSION = 2
OPERATORS = ("gemm", "prefill_attention", "decode_attention", "moe", "collective", "torch")


@dataclass(frozen=True)
class KernelTimes:
    """Medians and 90 % bounds of N kernels in seconds, ``power_w`` of one GPU with the kernel back to back, [N] each.

    ``evidence`` says what stands behind them (kernel_model.EVIDENCE), ``support`` the same in the words of every
    prediction, ``outside`` [N] which rows are beyond the measured sizes. ``shares`` [N, 5]: floor, compute, memory,
    chain of dependent steps, and what runs before and after. ``software`` is what the figures are of.
    """

    seconds: np.ndarray
    low_s: np.ndarray
    high_s: np.ndarray
    power: Callable[[], np.ndarray]
    shares: np.ndarray
    outside: np.ndarray
    evidence: str
    support: Support
    software: Software

    @cached_property
    def power_w(self) -> np.ndarray:
        """[N]; worked out when it is first asked for."""
        return self.power()


def unstated(device: Device) -> list[str]:
    """What a device's entry leaves out and the time of any kernel needs, in words."""
    figures = {"sm_count": device.sm_count, "boost_mhz": device.clock_hz}
    return [name for name, value in figures.items() if not value]


class KernelPredictor:
    """The trained models of all operators."""

    def __init__(self, folder: Path | str | None = None) -> None:
        """Reads the shipped artefact, or the one in ``folder``. Raises ArtefactError."""
        artefact = artefacts.Artefact(folder or artefacts.shipped("kernels"))
        manifest = artefact.manifest
        if manifest.get("feature_version") != FEATURE_VERSION or set(manifest.get("operators", ())) != set(OPERATORS):
            raise ArtefactError(
                f"{artefact.folder}: made for other features or operators than this version's; run `perfpass train`"
            )
        self.manifest = manifest
        self._artefact = artefact
        self._models: dict[str, OperatorModel] = {}
        self._offsets: dict[tuple[str, tuple[str, ...]], np.ndarray] = {}

    def model(self, operator: str) -> OperatorModel:
        """The model of one of OPERATORS, read when it is first asked for."""
        if operator not in self._models:
            trees = [self._artefact.trees(f"{operator}-{kind}") for kind in ("portable", "known")]
            self._models[operator] = OperatorModel(self.manifest["operators"][operator], *trees)
        return self._models[operator]

    def gemm(
        self,
        device: str | Device,
        m: ArrayLike,
        n: ArrayLike,
        k: ArrayLike,
        dtype: str = "bf16",
        *,
        stack: str | None = None,
        version: str | None = None,
        kernel: str | None = None,
    ) -> KernelTimes:
        """[m, k] x [k, n]. ``dtype`` is one of kernel_software.PRECISIONS ("int4_wo": 4-bit weights, 16-bit products).

        ``stack`` (trtllm, vllm, sglang) and ``version`` default to the newest measured on the device, or on its likes;
        ``kernel`` to the implementation that version takes. Raises ArgumentError, DeviceError.
        """
        sizes = _sizes(m=m, n=n, k=k)
        return self._predict(
            "gemm",
            device,
            sizes,
            (dtype, ""),
            (stack, version, kernel),
            lambda d, chosen: kernel_physics.gemm(d, sizes["m"], sizes["n"], sizes["k"], _codes(dtype, sizes)),
        )

    def attention_prefill(
        self,
        device: str | Device,
        batch: ArrayLike,
        tokens: ArrayLike,
        heads: ArrayLike,
        kv_heads: ArrayLike,
        head_dim: ArrayLike = 128,
        dtype: str = "bf16",
        *,
        window: ArrayLike = 0,
        kv_dtype: str | None = None,
        stack: str | None = None,
        version: str | None = None,
        kernel: str | None = None,
    ) -> KernelTimes:
        """Causal attention of ``tokens`` new tokens per sequence, without a cached prefix; ``window`` 0 sees all.

        ``kv_dtype`` (default: ``dtype``) is what the cache is written in. The rest as in `gemm`.
        """
        sizes = _sizes(batch=batch, tokens=tokens, heads=heads, kv_heads=kv_heads, head_dim=head_dim)
        chosen = (stack, version, kernel)
        return self._attention("prefill_attention", device, sizes, window, dtype, kv_dtype, chosen)

    def attention_decode(
        self,
        device: str | Device,
        batch: ArrayLike,
        context: ArrayLike,
        heads: ArrayLike,
        kv_heads: ArrayLike,
        head_dim: ArrayLike = 128,
        dtype: str = "bf16",
        *,
        window: ArrayLike = 0,
        kv_dtype: str | None = None,
        stack: str | None = None,
        version: str | None = None,
        kernel: str | None = None,
    ) -> KernelTimes:
        """One new token per sequence over ``context`` cached tokens, itself included. As `attention_prefill`."""
        sizes = _sizes(batch=batch, tokens=context, heads=heads, kv_heads=kv_heads, head_dim=head_dim)
        chosen = (stack, version, kernel)
        return self._attention("decode_attention", device, sizes, window, dtype, kv_dtype, chosen)

    def _attention(
        self,
        operator: str,
        device: str | Device,
        sizes: dict[str, np.ndarray],
        window: ArrayLike,
        dtype: str,
        kv_dtype: str | None,
        chosen: tuple[str | None, str | None, str | None],
    ) -> KernelTimes:
        kv_dtype = kv_dtype or dtype
        windows = np.asarray(window, dtype=np.float64)
        if (windows < 0).any():
            raise ArgumentError(f"window is {windows.min():g}; 0 (all tokens) or a number of tokens")
        if (sizes["heads"] < sizes["kv_heads"]).any():
            raise ArgumentError("kv_heads is above heads; each key-value head serves one query head or more")
        shape = np.broadcast_shapes(sizes["tokens"].shape, windows.ravel().shape)
        sizes = {name: np.broadcast_to(v, shape) for name, v in sizes.items()}
        columns = (sizes[name] for name in ("batch", "tokens", "heads", "kv_heads", "head_dim"))
        physics = (*columns, np.broadcast_to(windows.ravel(), shape), _codes(dtype, sizes), _codes(kv_dtype, sizes))
        decode = operator == "decode_attention"
        return self._predict(
            operator,
            device,
            sizes,
            (dtype, kv_dtype),
            chosen,
            lambda d, software: kernel_physics.attention(d, *physics, decode=decode),
        )

    def moe(
        self,
        device: str | Device,
        tokens: ArrayLike,
        hidden: ArrayLike,
        intermediate: ArrayLike,
        experts: ArrayLike,
        active_experts: ArrayLike,
        dtype: str = "bf16",
        *,
        tensor_parallel: ArrayLike = 1,
        expert_parallel: ArrayLike = 1,
        skew: float = 0.0,
        stack: str | None = None,
        version: str | None = None,
        kernel: str | None = None,
    ) -> KernelTimes:
        """The experts of one GPU of a parallel split, for ``tokens`` of the whole expert-parallel group.

        ``skew``: exponent of a power law of tokens over experts (measured: 1.01 and 1.2), 0 for an even choice.
        """
        sizes = _sizes(
            tokens=tokens,
            hidden=hidden,
            intermediate=intermediate,
            experts=experts,
            active_experts=active_experts,
            moe_tensor_parallel=tensor_parallel,
            moe_expert_parallel=expert_parallel,
        )
        if not 0.0 <= skew <= 3.0:
            raise ArgumentError(f"skew is {skew}; 0 (even) to 3")
        rows = len(sizes["tokens"])

        def physics(d: Figures, software: Software) -> Terms:
            gated = np.full(rows, software.family != "nongated")
            columns = [*sizes.values(), np.full(rows, skew), _codes(dtype, sizes), gated]
            return kernel_physics.moe(d, *columns)

        return self._predict("moe", device, sizes, (dtype, ""), (stack, version, kernel), physics)

    def collective(
        self,
        device: str | Device,
        operation: str,
        n_devices: ArrayLike,
        elements: ArrayLike,
        dtype: str = "bf16",
        *,
        stack: str | None = None,
        version: str | None = None,
        kernel: str | None = None,
    ) -> KernelTimes:
        """One of COLLECTIVES among 2 to 8 GPUs of one node; ``elements`` of the whole message.

        ``stack``: nccl (default but for all_reduce in bf16, which the serving stacks' own kernels do).
        """
        if operation not in COLLECTIVES:
            raise ArgumentError(f"unknown collective {operation!r}; allowed are {', '.join(COLLECTIVES)}")
        sizes = _sizes(n_devices=n_devices, elements=elements)
        if (sizes["n_devices"] < 2).any():
            raise ArgumentError("a collective needs at least 2 devices")
        if stack in (None, "nccl"):
            stack = "nccl"
            dtype = {"bf16": "fp16", "fp8": "int8"}.get(dtype, dtype)  # NCCL moves bytes; what was measured stands in
        kind = np.full(len(sizes["elements"]), COLLECTIVES.index(operation))
        width = kernel_physics.element_bytes(dtype)
        return self._predict(
            "collective",
            device,
            sizes,
            (dtype, ""),
            (stack, version, kernel),
            lambda d, software: kernel_physics.collective(d, kind, sizes["n_devices"], sizes["elements"] * width),
        )

    def torch_operator(self, device: str | Device, operator: str, sizes: ArrayLike) -> KernelTimes:
        """One PyTorch operator in fp32 (TF32 off), ``operator`` of kernel_software.TORCH_OPERATORS.

        ``sizes`` [N, D] or [D]: bmm and linear b, m, n, k with n reduced; conv b, in channels, out channels, kernel
        size, input size, stride, padding (square); all others b, h. Raises ArgumentError, DeviceError.
        """
        if operator not in TORCH_OPERATORS:
            raise ArgumentError(f"unknown operator {operator!r}; allowed are {', '.join(TORCH_OPERATORS)}")
        table = np.atleast_2d(np.asarray(sizes, dtype=np.float64))
        wanted = kernel_physics.TORCH_SIZES.get(operator, 2)
        least = np.ones(wanted) if operator != "conv" else np.array([1, 1, 1, 1, 1, 1, 0])
        if table.ndim != 2 or table.shape[1] != wanted or not ((table >= least) & (table < 2**40)).all():
            raise ArgumentError(f"{operator} takes {wanted} whole numbers of 1 or more for each kernel")
        chosen = ("torch", None, operator)
        names = {"rows": table[:, 0]}

        def physics(d: Figures, software: Software) -> Terms:
            return kernel_physics.torch_operator(d, operator, table)

        return self._predict("torch", device, names, ("fp32", ""), chosen, physics)

    def adapted(self, operator: str, predicted: KernelTimes, measured_s: ArrayLike) -> KernelPredictor:
        """A predictor that also knows a few measurements of one operator in one piece of software on one device.

        ``predicted`` is what this predictor says of the measured kernels, ``measured_s`` [n] their seconds; the device
        and the software are those of ``predicted``. Ten are enough for the five regimes. Raises ArgumentError.
        """
        measured = np.asarray(measured_s, dtype=np.float64)
        if operator not in OPERATORS or measured.shape != predicted.seconds.shape or not (measured > 0).all():
            raise ArgumentError("measured_s must hold one positive time per prediction, of a known operator")
        out = KernelPredictor.__new__(KernelPredictor)
        out.__dict__.update(self.__dict__)
        key = (operator, _identity(predicted.software))
        fitted = offsets(np.log(measured / predicted.seconds), predicted.shares)
        out._offsets = {**self._offsets, key: self._offsets.get(key, 0.0) + fitted}
        return out

    def _predict(
        self,
        operator: str,
        device: str | Device,
        sizes: dict[str, np.ndarray],
        precision: tuple[str, str],
        chosen: tuple[str | None, str | None, str | None],
        physics: Callable[[Figures, Software], Terms],
    ) -> KernelTimes:
        found = find_device(device)
        if found.kind != "gpu":
            raise DeviceError(f"{found.name} is no GPU; kernels were measured on GPUs alone")
        if absent := unstated(found):
            raise DeviceError(f"{found.name} states no {' and no '.join(absent)}, which the time of a kernel needs")
        for name in filter(None, precision):
            precision_code(name)
        model = self.model(operator)
        joined = "/".join(filter(None, precision))
        software, evidence, reasons = self._software(model, found, joined, *chosen)
        rate = PRECISIONS[precision[0]][2]
        unrated = float(rate not in found.peak_flops and evidence != "measured")
        if unrated:
            # Whatever runs there widens the operands or packs them: another kernel than the one that was measured.
            reasons.append(f"{found.name} has no {rate} rate")
        figures = figures_of(found)
        terms = physics(figures, software)
        rows = len(terms.ramp)
        keys = _keys(software, joined, found.id)
        named = (software.runtime, joined, software.family)
        near = relative(model.software, found, software.capability, *named)
        carried = None if near is None else _keys(software, joined, near)
        row = [
            runtime_code(software.runtime),
            version_number(software.version),
            FAMILIES.index(software.family),
            precision_code(precision[0]),
            precision_code(precision[1]) if precision[1] else -1,
        ]
        columns = np.broadcast_to(np.array(row, dtype=np.float32), (rows, len(row)))
        log_s, shares = model.log_seconds(terms, figures, columns, keys, carried)
        if near not in (None, found.id) and evidence not in ("measured", "version unseen"):
            reasons.append(f"carried over from the {find_device(near).name}, the nearest that was measured")
        log_s = log_s + shares @ self._offsets.get((operator, _identity(software)), np.zeros(shares.shape[1]))
        outside, far = np.zeros(rows, dtype=bool), np.zeros(rows)
        for name, (least, most) in model.ranges.items():
            size = np.broadcast_to(sizes[name], (rows,))
            beyond = (size * OUTSIDE_FACTOR < least) | (size > most * OUTSIDE_FACTOR)
            if beyond.any():
                reasons.append(f"{name} was measured from {least:g} to {most:g}")
            outside |= beyond
            far += np.maximum(np.log(np.maximum(least / size, size / most)), 0.0)
        lacking = lacks([evidence], laboratory=1.0, shape=1.0, load=far, rate=unrated)
        low, high = model.spread.bounds(lacking)
        wide = bool(np.median(high - low) > np.log(width_words.OUTSIDE_FROM))
        if wide:
            causes = ", ".join(width_words.wide_by(model.spread, lacking, WORDS))
            apart = width_words.factor(np.exp(np.median(high - low)))
            reasons.append(f"bounds lie a factor of {apart} apart, mostly by {causes}")
        seconds = np.exp(log_s)
        far_off = evidence == "outside" or unrated or wide or outside.any()
        level: Any = "outside" if far_off else "near" if reasons else "in range"
        return KernelTimes(
            seconds=seconds,
            low_s=seconds * np.exp(low),
            high_s=seconds * np.exp(high),
            power=partial(self._watts, found, operator, terms, seconds, shares, columns),
            shares=shares,
            outside=outside,
            evidence=evidence,
            support=Support(level, tuple(reasons)),
            software=software,
        )

    def _watts(self, *kernels: Any) -> np.ndarray:
        if not hasattr(self, "_power_model"):
            self._power_model = KernelPower(self._artefact.trees("power"))
        return self._power_model.watts(*kernels)

    def _software(
        self,
        model: OperatorModel,
        device: Device,
        precision: str,
        stack: str | None,
        version: str | None,
        kernel: str | None,
    ) -> tuple[Software, str, list[str]]:
        """What the figures are of, what stands behind them, and what does not."""
        capability = generation(device)
        here = [s for s in model.software if s.device == device.id]
        options = model.candidates(device.id, capability, precision)
        if stack is not None:
            runtime_code(stack)
            options = [s for s in options if s.runtime == stack] or [
                s for s in model.software if s.runtime == stack and s.precision == precision
            ]
        reasons: list[str] = []
        if not here:
            reasons.append(f"no kernel of this kind on {device.name} to learn from")
        if not options:
            reasons.append(f"{precision}{f' in {stack}' if stack else ''} was not learned from on any device")
            blank = Software(device.id, capability, stack or "vllm", precision, version or "0", "default", 0, False)
            if kernel:
                blank = replace(blank, family=family(kernel))
            return blank, "outside", reasons
        if stack is None:
            rows: dict[str, int] = {}
            for s in options:
                rows[s.runtime] = rows.get(s.runtime, 0) + s.rows
            options = [s for s in options if s.runtime == max(rows, key=lambda r: (rows[r], r))]
        wanted = version_number(version) if version else None
        if wanted is None:
            usable = [s for s in options if not s.host_bound] or options
            newest = max(version_number(s.version) for s in usable)
            near = [s for s in usable if version_number(s.version) == newest]
        else:
            gap = min(abs(version_number(s.version) - wanted) for s in options)
            near = [s for s in options if abs(version_number(s.version) - wanted) == gap]
        best = max(near, key=lambda s: (s.rows, s.family))
        chosen = replace(
            best,
            device=device.id,
            capability=capability,
            version=version or best.version,
            family=family(kernel) if kernel else best.family,
        )
        depth = model.efficiencies.depth(
            level_keys([precision], [chosen.runtime], [chosen.family], [capability], [device.id], [chosen.version])[0]
        )
        version_known = wanted is None or any(version_number(s.version) == wanted for s in options)
        if depth == 4:
            return chosen, "measured", reasons
        if not version_known:
            reasons.append(f"no {chosen.runtime} {chosen.version} to learn from; nearest is {best.version}")
        if depth == 3:
            return chosen, "version unseen", reasons or [f"no {chosen.runtime} {chosen.version} to learn from here"]
        if here:
            reasons.append(f"no {chosen.runtime} in {precision} on {device.name} to learn from")
            return chosen, "software unseen", reasons
        if device.compute_capability is None:
            reasons.append(f"nor on any device of {device.vendor}")
            return chosen, "outside", reasons
        named = (capability, chosen.runtime, precision, chosen.family)
        found = unseen_evidence(model.software, *named, version_known=version_known)
        if found == "generation unseen":
            reasons.append(f"nor on another device of compute capability {capability}")
        elif found == "device and software unseen":
            reasons.append(f"nor {chosen.runtime} in {precision} on another of compute capability {capability}")
        return chosen, found, reasons


@lru_cache(maxsize=1)
def load() -> KernelPredictor:
    """The shipped predictor, read once per process. Raises ArtefactError."""
    return KernelPredictor()


def _sizes(**values: ArrayLike) -> dict[str, np.ndarray]:
    """Columns of one length. Raises ArgumentError for sizes that are not above 0 or do not broadcast."""
    arrays = {name: np.asarray(v, dtype=np.float64) for name, v in values.items()}
    try:
        shape = np.broadcast_shapes(*(a.shape for a in arrays.values()))
    except ValueError:
        shapes = ", ".join(f"{name} {a.shape}" for name, a in arrays.items())
        raise ArgumentError(f"sizes do not broadcast: {shapes}; give single numbers or arrays of one length") from None
    if len(shape) > 1:
        raise ArgumentError(f"sizes have {len(shape)} dimensions; give numbers or one-dimensional arrays")
    for name, a in arrays.items():
        if not (np.isfinite(a).all() and (a >= 1).all() and (a < 2**40).all()):
            wrong = a[~(np.isfinite(a) & (a >= 1) & (a < 2**40))].flat[0]
            raise ArgumentError(f"{name} must be whole numbers from 1 to 2^40, got {wrong:g}")
    return {name: np.broadcast_to(a, shape).ravel() for name, a in arrays.items()}


def _keys(software: Software, precision: str, device: str) -> np.ndarray:
    """[LEVELS] keys of a piece of software on a device."""
    named = (software.runtime, software.family, software.capability, device, software.version)
    return level_keys([precision], *([name] for name in named))[0]


def _identity(software: Software) -> tuple[str, ...]:
    """What a few measurements speak of."""
    return software.device, software.runtime, software.version, software.precision, software.family


def _codes(dtype: str, sizes: dict[str, np.ndarray]) -> np.ndarray:
    return np.full(len(next(iter(sizes.values()))), precision_code(dtype))
