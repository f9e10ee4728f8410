"""How InferenceX started its servers on one node, where the table of its runs does not say: drafts, how often
SGLang's scheduler looks at its queue, and the type of the cache.

Facts of `benchmarks/single_node/*.sh`, of the scripts before them in `benchmarks/` and of the list of sweeps
(`.github/configs/nvidia-master.yaml`; SemiAnalysisAI/InferenceX, Apache-2.0). The scripts of SGLang on Blackwell set
`--scheduler-recv-interval` 10 below 16 requests and 30 from there on, but for DeepSeek in fp8 on four GPUs (10),
Qwen3.5 in fp4 on B200 (30) and in fp8 on B300 with images from 0.5.10 on (10); those of GLM-5 and of Hopper do not set
it, which is 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas

# Servers that draft, by image and first and last day: the images and changes of the list. Three tokens, or one with
# attention data-parallel.
_DRAFTING = (
    ("trtllm", "1.2.0rc6.post3", "", "9"),
    ("trtllm", "1.1.0rc2.post2", "2026-01-14", "2026-01-20"),
)
_OF_SGLANG = "0.5.9"
_BLACKWELL = ("b200-sxm-180gb", "b300-sxm-288gb")
_SELDOM, _OFTEN, _MANY = 30, 10, 16


def drafts(rows: pandas.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """[N] tokens that a step drafts of each request (-1: not known), and whether times per token told that.

    ``rows``: `inferencex_sweeps.found`, with ``tensor_parallel``, ``moe_expert_parallel`` and ``inferencex``, whether
    InferenceX ran them. DeepSeek in fp8 with SGLang on eight B200 was listed with drafts at 4 to 512 requests, and
    without at up to 64, of prompts of 8,192 tokens at 4 alone: where both were measured, drafts are the faster.
    Qwen3.5 in fp8 is listed on four GPUs without expert parallelism with drafts alone.
    """
    found, by_times = np.full(len(rows), -1), np.zeros(len(rows), dtype=bool)
    alone = ~rows.disaggregated & rows.inferencex
    for runtime, version, first, last in _DRAFTING:
        own = alone & (rows.family == "deepseek-v3") & (rows.runtime == runtime)
        own &= (rows.runtime_version == version) & (rows.day >= first) & (rows.day <= last)
        found[own] = np.where(rows.data_parallel[own] > 1, 1, 3)
    fp8 = alone & (rows.runtime == "sglang") & (rows.runtime_version == _OF_SGLANG) & (rows.moe_expert_parallel == 1)
    fp8 &= rows.precision.isin(["fp8", "fp8_block"])
    found[fp8 & (rows.family == "qwen3.5-397b-a17b") & (rows.tensor_parallel == 4)] = 3
    both = fp8 & (rows.family == "deepseek-v3") & (rows.device == _BLACKWELL[0]) & (rows.tensor_parallel == 8)
    for _, part in rows[both].groupby(["input_tokens", "output_tokens", "requests"]):
        places = rows.index.get_indexer(part.index)
        plain = (part.requests <= 64) & ((part.input_tokens < 8192) | (part.requests == 4))
        several = part.measurement.nunique() > 1
        if several:
            found[places] = np.where(part.tpot_ms == part.tpot_ms.min(), 2, 0)
        elif not plain.any():
            found[places] = 2
        by_times[places] = several
    return found, by_times


def looks(rows: pandas.DataFrame) -> np.ndarray:
    """[N] steps from one look of SGLang's scheduler at its queue to the next; -1 where no script tells.

    ``rows``: as `drafts`.
    """
    own = np.asarray(~rows.disaggregated & rows.inferencex & (rows.runtime == "sglang"))
    usual = np.where(rows.requests >= _MANY, _SELDOM, _OFTEN)
    fp8 = rows.precision.isin(["fp8", "fp8_block"])
    deepseek, qwen = rows.family == "deepseek-v3", rows.family == "qwen3.5-397b-a17b"
    found = np.where(rows.device.isin(_BLACKWELL) & (deepseek | qwen), usual, 1)
    found[deepseek & fp8 & (rows.tensor_parallel == 4) & (found > 1)] = _OFTEN
    found[qwen & (rows.precision == "nvfp4") & (rows.device == _BLACKWELL[0])] = _SELDOM
    found[qwen & fp8 & (rows.device == _BLACKWELL[1]) & (rows.runtime_version != _OF_SGLANG)] = _OFTEN
    return np.where(own, found, -1)


def caches(rows: pandas.DataFrame) -> np.ndarray:
    """[N] type of the cache; "" where no script tells.

    ``rows``: as `drafts`. Scripts of gpt-oss ask for 8 bits on B200 with either engine and for nothing on Hopper, those
    of DeepSeek and GLM-5 with SGLang likewise for 8 bits on Blackwell and for nothing on Hopper. Nothing is as wide as
    activations. Those of Qwen3.5 ask for 8 bits where the weights are in fp8, and for nothing in bf16.
    """
    alone = ~rows.disaggregated & rows.inferencex
    hopper = ~rows.device.isin(_BLACKWELL) & ~rows.device.str.startswith("gb")
    gpt = alone & (rows.family == "gpt-oss-120b") & (rows.device.isin(_BLACKWELL[:1]) | hopper)
    latent = alone & rows.family.isin(["deepseek-v3", "glm-5"]) & (rows.runtime == "sglang")
    qwen = alone & (rows.family == "qwen3.5-397b-a17b") & (rows.runtime == "sglang")
    qwen &= rows.precision.isin(["fp8", "fp8_block", "bf16"])
    wide = (gpt | latent) & hopper | qwen & (rows.precision == "bf16")
    return np.where(wide, "bf16", np.where(gpt | latent | qwen, "fp8", ""))
