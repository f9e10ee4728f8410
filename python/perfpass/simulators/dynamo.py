"""Dynamo's mocker and replay, and AISimulate's through them: a table of step times (`--planner-profile-data FILE.npz`).

Source: ai-dynamo/dynamo, lib/mocker/src/common/perf_model.rs. Prefill is interpolated over the new tokens of a step,
decode over the tokens in the cache of all requests and the mean context; outside of the table it goes on linearly.
"""

from __future__ import annotations

import io

import numpy as np

from perfpass.simulators.deployed import Deployed

_TOKENS = 2.0 ** np.arange(0, 16)
_CONTEXTS = np.concatenate([[1.0], 2.0 ** np.arange(4, 18)])
_REQUESTS = 2.0 ** np.arange(0, 11)


def table(one: Deployed) -> dict[str, np.ndarray]:
    """The arrays of the file: ms over ``prefill_isl`` [P], and [K, C] over cached tokens [K] and contexts [C]."""
    cached = np.unique(np.outer(_REQUESTS, _CONTEXTS))
    # The mocker asks for whole requests only; what lies between fewer than one continues what one takes.
    requests = np.maximum(cached[:, None] / _CONTEXTS[None, :], 1.0)
    context = np.broadcast_to(_CONTEXTS, requests.shape)
    return {
        "prefill_isl": _TOKENS,
        "prefill_ttft_ms": one.prompt_s(_TOKENS) * 1e3,
        "decode_active_kv_tokens": cached,
        "decode_context_length": _CONTEXTS,
        "decode_itl": one.decode_s(requests.ravel(), context.ravel()).reshape(requests.shape) * 1e3,
    }


def profile(one: Deployed) -> bytes:
    """The file's content."""
    out = io.BytesIO()
    np.savez(out, allow_pickle=False, **table(one))
    return out.getvalue()
