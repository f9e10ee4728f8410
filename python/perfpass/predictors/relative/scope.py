"""What a measured figure holds beside the network's own run, and how far that is from what is asked.

Sources say in their own words what the timed region holds (``timing``) and what their memory is (``memory_kind``);
`SCOPES` sorts the words. A scope is far by what it may add: a copy of the input some ten per cent, the network in the
middle of a query more than a copy can say. The distances are set by hand, in the units of `nearest`.
"""

from __future__ import annotations

import numpy as np

TIMED_KINDS = ("inference", "step")  # of records whose timed region is sorted

# The network alone is what a question from a graph asks. "" is whatever was measured, and far from nothing: batches of
# language models are timed whole by every source, and a model asked for by its name alone is shown whatever bears it.
NETWORK, UNSTATED, COPIES, LOADING, BOXES, REQUEST, QUERY, MANY = (
    "network", "unstated", "copies", "data loading", "post-processing", "request", "query", "many passes",
)  # fmt: skip
_TIMED = {
    NETWORK: (
        "device only, no host copies", "device_only", "the compiled network on the device", "the exported model",
        "the converted model, after warm-up", "the model in the server, without queue and copies", "perfpass measure",
        "one forward pass, by the host's clock", "wall time, output kept on the device", "forward, per image",
        "one inference, median of the windows", "one batch", "a training step", "training steps",
        "on_train_batch_begin to on_train_batch_end, first iteration apart", "the benchmark's own rate over 60 steps",
    ),
    UNSTATED: ("not stated", "unknown", "see README", "derived from fps", "the README's benchmark script"),
    COPIES: (
        "includes_h2d_copy", "the model in the server and its outputs' copy, without queue",
        "the input's copy to the device, the network, the output's copy back",
    ),
    LOADING: (
        "one iteration, data loading included", "a whole step; data loading as the README's script has it",
    ),
    BOXES: ("network and post-processing of one image", "network and post-processing, without data loading"),
    REQUEST: ("a client's request to the server",),
    QUERY: (
        "a whole query: pre-processing, network, post-processing", "end to end with pre- and postprocessing",
    ),
    MANY: (
        "text encoder, all steps and decoder", "text encoder, all steps and decoder, in a user's application",
        "text encoder, all steps and decoder; mean of five batches", "prompt and all new tokens, by the host's clock",
        "a generation",
    ),
}  # fmt: skip
SCOPES = {text: scope for scope, texts in _TIMED.items() for text in texts}
_FAR = {
    NETWORK: 0.0, UNSTATED: 0.05, COPIES: 0.10, LOADING: 0.10, BOXES: 0.20, REQUEST: 0.40, QUERY: 1.5, MANY: 1.5,
}  # fmt: skip
# Requests of text, whose lengths are stated, are what a question about a language model asks. A request that brings an
# image has an encoder's time and hundreds of tokens in it that were not counted: by hand. Copies of records that do not
# state their prompts to 200 servers that do err by a factor of 2.8 per token, those of other sources that state them by
# 1.5 (3.5 and 1.3 of the nearest).
REQUESTS_OF_TEXT = "requests of text"
_WITH_IMAGES, _PROMPT_UNSTATED = 0.50, 0.80
_IMAGES = ("mllm", "image", "video", "vision")  # words of sources' tasks

# Memory in use is what is asked of a device; the others hold less of what it has in use.
IN_USE, HOST = "in_use", "host_peak_rss"
_KEPT = {IN_USE: 0.0, HOST: 0.0, "reported": 0.10, "reserved": 0.25, "allocated": 0.50}


def of_timing(text: str) -> str:
    """The scope of a source's words; `UNSTATED` for words that are not sorted."""
    return SCOPES.get(text, UNSTATED)


def between_timings(asked: str, stated: str) -> float:
    """How far one scope is from another."""
    return 0.0 if asked == stated or not asked else max(_FAR[asked], _FAR[stated])


def of_request(task: str) -> float:
    """How far requests of a source's task are from requests of text."""
    return _WITH_IMAGES * any(word in task.lower() for word in _IMAGES)


def of_prompt(asked: float, stated: np.ndarray) -> np.ndarray:
    """[K] how far records are by not stating the length of their prompts, where one is asked for; tokens."""
    return np.asarray(_PROMPT_UNSTATED * (np.isfinite(asked) & ~np.isfinite(stated)))


def between_memories(asked: str, stated: str) -> float:
    """How far one kind of memory is from another."""
    return 0.0 if asked == stated or not asked else max(_KEPT.get(kind, 0.25) for kind in (asked, stated))
