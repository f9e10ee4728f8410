"""Measuring: latency, memory, energy and power of the same run, kept in records that survive a kill.

Nothing here needs perfpass's compiled core: a machine with Python, torch and this source tree can measure.
"""

from perfpass.measure.campaign import Outcome, run
from perfpass.measure.configuration import Configuration, Protocol
from perfpass.measure.journal import Journal, read

__all__ = [
    "Configuration",
    "Journal",
    "Outcome",
    "Protocol",
    "campaign",
    "campaign_file",
    "cluster",
    "configuration",
    "facts",
    "host",
    "journal",
    "local",
    "models",
    "nvml",
    "order",
    "read",
    "run",
    "timing",
]
