"""PyTorch, eager or compiled: inference, training step, prefill and decode, on the CPU or a CUDA device."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import torch

from perfpass.errors import ArgumentError, UnsupportedError
from perfpass.measure.configuration import Configuration
from perfpass.measure.models import Built, sequence_length

_CAST = {"fp16": torch.float16, "bf16": torch.bfloat16}
_AUTOCAST = {"amp": torch.float16, "amp_bf16": torch.bfloat16}
_LEARNING_RATE = 1e-6  # weights stay what they are: their values, and so the power, do not change while measuring


class TorchSession:
    """One configuration in PyTorch. fp32 is exact: TF32 is off for it, on for tf32, in matmuls and in convolutions."""

    def __init__(self, configuration: Configuration, built: Built) -> None:
        self._configuration = configuration
        self._device = torch.device(configuration.device)
        self._check(built)
        training = configuration.mode == "training"
        self._module: Any = built.module
        self._module.train(training)
        self._module.requires_grad_(training)
        set_math(configuration.precision)
        self._module.to(_CAST.get(configuration.precision, torch.float32))
        nhwc = configuration.layout == "nhwc"
        self._format = torch.channels_last if nhwc else torch.contiguous_format
        if built.image_shape is not None:
            self._module.to(memory_format=self._format)
        self._inputs = self._cast_inputs(built.inputs(configuration, configuration.device))
        self._cuda = self._device.type == "cuda"
        self._before: Callable[[], None] = _nothing
        self._forward = self._compiled(self._module) if configuration.runtime == "torch.compile" else self._module
        self._step = self._training_step(built) if training else self._inference_step(built)
        if self._cuda:
            self._events = (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
        self.facts: dict[str, Any] = {
            **built.facts(configuration),
            "attention": getattr(getattr(built.module, "config", None), "_attn_implementation", None),
            "threads": None if self._cuda else torch.get_num_threads(),
        }

    def _check(self, built: Built) -> None:
        c = self._configuration
        if self._device.type == "cpu" and c.precision == "tf32":
            raise UnsupportedError("the CPU has no TF32; use fp32 or bf16")
        if built.context_limit is not None and c.mode != "inference" and sequence_length(c) >= built.context_limit:
            raise ArgumentError(
                f"sequence_length {sequence_length(c)}; {c.model} has positions for {built.context_limit} tokens"
            )

    def _cast_inputs(self, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        dtype = _CAST.get(self._configuration.precision, torch.float32)
        return {
            name: x.to(dtype=dtype, memory_format=self._format) if x.is_floating_point() else x
            for name, x in inputs.items()
        }

    def _compiled(self, module: Any) -> Any:
        torch._dynamo.reset()
        return torch.compile(module)

    def _autocast(self) -> Any:
        dtype = _AUTOCAST.get(self._configuration.precision)
        return contextlib.nullcontext() if dtype is None else torch.autocast(self._device.type, dtype)

    def _call(self, **extra: Any) -> Any:
        with self._autocast():
            if "x" in self._inputs:
                return self._forward(self._inputs["x"])
            return self._forward(**self._inputs, **extra)

    def _inference_step(self, built: Built) -> Callable[[], Any]:
        mode = self._configuration.mode
        if built.kind != "causal":
            return lambda: self._call()
        if mode == "inference":
            return lambda: self._call(use_cache=False)
        if mode == "prefill":
            # A server needs the logits of the last token only; models that can leave the others out do.
            return lambda: self._call(use_cache=True, logits_to_keep=1)
        return self._decode_step()

    @torch.no_grad()
    def _decode_step(self) -> Callable[[], Any]:
        """One token with a cache of `sequence_length` tokens, filled by a prefill; cut back before each iteration."""
        c = self._configuration
        length = sequence_length(c)
        prompt = self._inputs["input_ids"].expand(c.batch, length).contiguous()
        with self._autocast():
            cache = self._module(input_ids=prompt, use_cache=True, logits_to_keep=1).past_key_values
        if not hasattr(cache, "crop"):
            raise UnsupportedError(f"{c.model} keeps no cache that can be cut back; decode cannot be measured")

        def cut_back() -> None:
            added = cache.get_seq_length() - length
            if added > 0:
                cache.crop(-added)

        self._before = cut_back
        return lambda: self._call(past_key_values=cache, use_cache=True, logits_to_keep=1)

    def _training_step(self, built: Built) -> Callable[[], Any]:
        """Forward, loss, backward and the optimizer's step; gradients are set to None between iterations."""
        c = self._configuration
        parameters = [p for p in self._module.parameters() if p.requires_grad]
        optimizer: torch.optim.Optimizer
        if c.optimizer == "adamw":
            # fp16 cannot hold the usual epsilon of 1e-8, and a zero there would make the weights NaN.
            epsilon = 1e-4 if c.precision == "fp16" else 1e-8
            optimizer = torch.optim.AdamW(parameters, lr=_LEARNING_RATE, eps=epsilon)
        else:
            optimizer = torch.optim.SGD(parameters, lr=_LEARNING_RATE, momentum=0.9)
        scaler = torch.amp.GradScaler(self._device.type, enabled=c.precision == "amp")
        labels = self._labels(built)

        def step() -> None:
            optimizer.zero_grad(set_to_none=True)
            extra = {"use_cache": False, "labels": self._inputs["input_ids"]} if built.kind == "causal" else {}
            with self._autocast():
                output = (
                    self._forward(self._inputs["x"]) if "x" in self._inputs else self._forward(**self._inputs, **extra)
                )
                loss = _loss(output, labels)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

        return step

    def _labels(self, built: Built) -> torch.Tensor | None:
        classes = getattr(built.module, "num_classes", None)
        if built.image_shape is None or not isinstance(classes, int) or classes < 2:
            return None
        return torch.randint(0, classes, (self._configuration.batch,), device=self._device)

    def lap(self) -> float:
        """One iteration: on CUDA the time between events around it, on the CPU the monotonic clock; in ms."""
        self._before()
        with torch.set_grad_enabled(self._configuration.mode == "training"):
            if not self._cuda:
                start = time.perf_counter_ns()
                self._step()
                return (time.perf_counter_ns() - start) / 1e6
            start_event, end_event = self._events
            start_event.record()
            self._step()
            end_event.record()
            end_event.synchronize()
            return float(start_event.elapsed_time(end_event))

    def reset_memory(self) -> None:
        """New peaks of the CUDA allocator."""
        if self._cuda:
            torch.cuda.reset_peak_memory_stats(self._device)

    def memory(self) -> dict[str, int]:
        """Peak allocated and reserved bytes of the CUDA caching allocator; empty on the CPU."""
        if not self._cuda:
            return {}
        return {
            "allocated_peak_bytes": torch.cuda.max_memory_allocated(self._device),
            "reserved_peak_bytes": torch.cuda.max_memory_reserved(self._device),
        }

    def kernels(self) -> list[dict[str, Any]]:
        """Nothing: kernels are measured in TVM alone."""
        return []

    def close(self) -> None:
        """Gradients, optimizer, cache and compiled code go; the model stays."""
        self._module.zero_grad(set_to_none=True)
        self._step, self._before, self._forward = _nothing, _nothing, None
        self._inputs = {}
        if self._cuda:
            torch.cuda.empty_cache()


def set_math(precision: str) -> None:
    """TF32 on for tf32 and off for everything else; cuDNN chooses its algorithms by trying them."""
    tf32 = precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = True


def _loss(output: Any, labels: torch.Tensor | None) -> torch.Tensor:
    """Cross entropy for classifiers, a language model's own loss, else the mean of all floating outputs."""
    if getattr(output, "loss", None) is not None:
        found: torch.Tensor = output.loss
        return found
    if labels is not None and isinstance(output, torch.Tensor) and output.dim() == 2:
        return torch.nn.functional.cross_entropy(output, labels)
    tensors = output.values() if hasattr(output, "values") else output if isinstance(output, list | tuple) else [output]
    means = [x.float().mean() for x in tensors if isinstance(x, torch.Tensor) and x.is_floating_point()]
    if not means:
        raise UnsupportedError("the model gives no floating tensor, so there is nothing to train on")
    return torch.stack(means).sum()


def _nothing() -> None:
    """Before an iteration that needs no preparation."""
