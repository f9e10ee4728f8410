"""llm-d-inference-sim: the latency fields of its configuration (`--config FILE`).

Source: llm-d/llm-d-inference-sim, its page on latency simulation. A prompt takes `prefill-overhead` and a time a token,
a token `inter-token-latency`, and all up to `time-factor-under-load` times as long with `max-num-seqs` in flight.
"""

from __future__ import annotations

import numpy as np

from perfpass.errors import needs
from perfpass.llm import EngineBatch, step_costs
from perfpass.llm.costs import peak_flops
from perfpass.llm.memory import served
from perfpass.simulators.deployed import Deployed


def configuration(one: Deployed) -> str:
    """YAML of the fields, for prompts up to twice the asked length and as many requests as are in flight at most."""
    serving = one.serving
    most = int(min(max(serving.concurrency / serving.workers, 1.0), _room(one)))
    context = serving.input_length + serving.output_length / 2
    tokens = np.linspace(1.0, 2.0 * serving.input_length, 33)
    slope, start = np.polyfit(tokens, one.prompt_s(tokens), 1)
    alone, full = one.decode_s(np.array([1.0, most]), np.array([context, context]))
    # With every slot taken each decode step also waits for its share of the others' prompts.
    stalled = full + one.prompt_s(np.array([float(serving.input_length)]))[0] * (most - 1) / serving.output_length
    fields = {
        "engine": "vllm",
        "model": one.model.name,
        "max-num-seqs": most,
        "latency-calculator": "per-token",
        "prefill-overhead": _duration(max(start, 0.0)),
        "prefill-time-per-token": _duration(max(slope, 0.0)),
        "inter-token-latency": _duration(alone),
        "time-factor-under-load": round(max(float(stalled / alone), 1.0), 3),
    }
    with needs("pack", "writing YAML"):
        import yaml
    return str(yaml.safe_dump(fields, sort_keys=False))


def _room(one: Deployed) -> int:
    return max(served(one.model, one.device, one.serving).most_requests // one.serving.workers, 1)


def _duration(seconds: float) -> str:
    """A duration as Go writes it, in whole nanoseconds."""
    return f"{round(seconds * 1e9)}ns"


def hardware(one: Deployed) -> dict[str, dict[str, float]]:
    """An entry of BLIS' hardware_config.json (inference-sim, its page on the roofline) for its roofline.

    The roofline takes the longer of work over `TFlopsPeak` times `mfuPrefill` or `mfuDecode`, and bytes over
    `BwPeakTBs`. So that its steps are ours, the shares are what our prefill reaches of the peak, and the bandwidth is
    what our decode step reaches; all are of this model, precision and length.
    """
    serving, split = one.serving, one.serving.parallelism
    prompt = EngineBatch.of([(serving.input_length, 0)])
    requests = min(max(serving.concurrency / serving.workers, 1.0), _room(one))
    context = serving.input_length + serving.output_length / 2
    decode = EngineBatch(decodes=requests, decode_context=requests * context)
    peak = peak_flops(one.device.peak_flops, "bf16")
    work = step_costs(one.model, split, serving.quantization, prompt.prefill())
    flops = sum(float(np.sum(part.flops)) for part in work.parts.values())
    moved = step_costs(one.model, split, serving.quantization, decode.decode())
    size = sum(float(np.sum(part.memory_bytes)) for part in moved.parts.values())
    prefill_s, decode_s = (float(one.steps.seconds(batch)[0]) for batch in (prompt, decode))
    return {
        one.device.id: {
            "TFlopsPeak": peak / 1e12,
            "BwPeakTBs": round(size / decode_s / 1e12, 6),
            "mfuPrefill": round(min(flops / prefill_s / peak, 1.0), 6),
            "mfuDecode": 1.0,
            "MemoryGiB": round(one.device.usable_bytes / 2**30, 3),
        }
    }
