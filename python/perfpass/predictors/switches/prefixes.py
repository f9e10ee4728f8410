"""Prefix caching as a transformation of a load: a share of the prompt is not computed but read."""

from __future__ import annotations

from dataclasses import replace

from perfpass.errors import ArgumentError
from perfpass.llm.costs import cache_bytes
from perfpass.llm.memory import NOTHING
from perfpass.llm.prefix import computed_tokens
from perfpass.predictors.switches.load import Change, Deployment, Load

# A server that holds caches of many requests waits for a lookup and a copy that none of the records shows. By hand.
_SPREAD = 0.15


def share(deployment: Deployment, load: Load, hit: float, from_host: float = 0.0) -> Change:
    """``hit`` of the prompt's tokens are found, ``from_host`` of these in the host's memory, from where each GPU reads
    its part through PCIe before the prefill.

    Raises ArgumentError for a device without a stated PCIe bandwidth.
    """
    prompt = load.computed + load.cached
    new = computed_tokens(prompt, hit)
    found = replace(load, computed=new, cached=prompt - new)
    said = f"prefix caching, {hit:.0%} of the prompt found: {new:,.0f} of {prompt:,.0f} tokens computed"
    if from_host:
        device, s = deployment.device, deployment.serving
        # A device states both directions together.
        link = device.pcie_bandwidth_bytes_s / 2
        if not link:
            raise ArgumentError(f"{device.name} states no PCIe bandwidth, so a cache in the host's memory has no time")
        size = float(cache_bytes(deployment.model, s.parallelism, s.quantization, (prompt - new) * from_host))
        found = replace(found, fetch_s=found.fetch_s + size * s.parallelism.pipeline / link)
        said += f", {from_host:.0%} of the found ones from the host through PCIe"
    unseen = "no record has prefixes that are found in a cache" + (" or on the host" if from_host else "")
    changed = found != load
    return Change(found, said, NOTHING, _SPREAD if changed else 0.0, unseen if changed else "")
