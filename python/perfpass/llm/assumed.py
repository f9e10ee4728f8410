"""What is taken of a load and a deployment where nothing is said, and how that is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from perfpass.devices import Device
from perfpass.errors import ArgumentError
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.costs import PRECISIONS, Parallelism, Quantization
from perfpass.llm.memory import served
from perfpass.llm.serving import Serving, check_split

# The load of vLLM's own benchmark (`vllm bench serve`: random prompts), one request at a time.
INPUT_LENGTH, OUTPUT_LENGTH, CONCURRENCY = 1024, 128, 1
RUNTIME = "vllm"
TENSOR_RANKS = (1, 2, 4, 8)  # of one board of GPUs


def lengths(model: LanguageModel, input_length: int | None, output_length: int | None) -> tuple[int, int]:
    """Tokens of a prompt and of its answer; those that are not given are shorter where the model has fewer positions. A
    window of sound is a prompt of its own length.

    Raises ArgumentError where what is given leaves no position for the other, and for another length of a window.
    """
    if model.window:
        if input_length not in (None, model.window):
            raise ArgumentError(
                f"{model.name} reads windows of {model.window:,} positions, got an input length of {input_length:,}: "
                "leave it out, and ask for as many requests as the sound has windows"
            )
        input_length = model.window
    if model.counts_sides_apart:
        most = model.max_positions or INPUT_LENGTH
        return (
            min(INPUT_LENGTH, most) if input_length is None else input_length,
            min(OUTPUT_LENGTH, most) if output_length is None else output_length,
        )
    most = model.max_positions or INPUT_LENGTH + OUTPUT_LENGTH
    for given in (input_length, output_length):
        if given is not None and None in (input_length, output_length) and given >= most > 0 and model.max_positions:
            raise ArgumentError(f"{given} tokens leave none of the {most} positions of {model.name}; give both lengths")
    if output_length is None:
        output_length = min(OUTPUT_LENGTH, max(1, (most - input_length) if input_length is not None else most // 2))
    if input_length is None:
        input_length = min(INPUT_LENGTH, max(1, most - output_length))
    return input_length, output_length


def ranks_of(device: Device) -> tuple[int, ...]:
    """Numbers of a device that work together; a slice, and a device without a link to others, stand alone.

    So does one that is a machine by itself (`Device.is_machine`), unless somebody asks for several.
    """
    return TENSOR_RANKS[:1] if not device.has_link or device.is_machine else TENSOR_RANKS


def check_together(device: Device, gpus: int) -> None:
    """Raises ArgumentError for several instances of MIG, which cannot share a replica.

    GPUs whose link nobody states reach each other over the network.
    """
    if gpus > 1 and device.mig_profile is not None:
        raise ArgumentError(
            f"{device.id} has no link to others, as no instance of MIG has, so {gpus} of it do not work together; ask "
            f"for one of it, or {device.parent}, the whole device"
        )


def fewest(device: Device, holds: Callable[[int], bool]) -> int:
    """The fewest of `ranks_of` a device for which ``holds`` is true; the most where none does.

    Those for which ``holds`` raises ArgumentError, as over heads that do not divide into them, are passed over.
    """
    possible = []
    for ranks in ranks_of(device):
        try:
            if holds(ranks):
                return ranks
        except ArgumentError:
            continue
        possible.append(ranks)
    return max(possible, default=1)


def fewest_serving(model: LanguageModel, device: Device, serving: Serving, ep: int) -> int:
    """The fewest tensor ranks whose GPUs hold the weights and one request by the settings of the runtime itself."""
    split = serving.parallelism

    def holds(ranks: int) -> bool:
        check_split(model, ranks)
        wider = Parallelism.of(ranks, split.pipeline, split.attention_data, ep)
        return served(model, device, replace(serving, parallelism=wider)).answer == "yes"

    return fewest(device, holds)


def precision_name(used: Quantization) -> str:
    """The name of the command line for the precisions of matrices and experts, else both."""
    # mxfp4 is a precision of the experts: the rest is in either type of 16 bits.
    if used.gemm == used.moe or (used.moe == "mxfp4" and used.gemm in ("bf16", "fp16")):
        return option(used.moe)
    return f"{used.gemm}/{used.moe}"


def option(stored: str) -> str:
    """The name of the command line for a precision of weights, else its own."""
    return next((name for name, (_, moe) in PRECISIONS.items() if moe == stored), stored)


def assumed_line(assumed: Mapping[str, Any]) -> str:
    """What was assumed, as the options that would say it; empty where nothing was."""
    if not assumed:
        return ""
    return "assumed: " + " ".join(f"--{name.replace('_', '-')} {value}" for name, value in assumed.items())
