"""What learning leaves behind: artefacts, packed trees, arrays, intervals, components."""

from __future__ import annotations

__all__ = [
    "adapt",
    "arrays",
    "artefacts",
    "component_predictor",
    "component_widths",
    "components",
    "intervals",
    "ladder",
    "lattice",
    "order",
    "packed_trees",
    "ratio_trees",
    "ratios",
    "recorded",
    "spread",
    "time_lacks",
    "width_words",
]
