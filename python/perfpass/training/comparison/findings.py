"""What the literature claims, held against the table: each claim with a verdict and the figures behind it."""

from __future__ import annotations

from typing import Any

_VARIANTS = {"dippm": "SAGE", "dippm-gat": "GAT", "dippm-gcn": "GCN", "dippm-gin": "GIN", "dippm-mlp": "MLP"}
# Errors closer than this (as a ratio) are no difference on a few hundred rows.
_TIE = 1.03


def findings(content: dict[str, Any]) -> list[dict[str, str]]:
    """Claims that the table's cells speak of; those that lack a cell are left out."""
    of = {(c["task"], c["split"], c["predictor"]): c for c in content["cells"]}
    return [*_sage(of), *_design(of), *_mixture(of)]


def _sage(of: dict[tuple[str, str, str], dict[str, Any]]) -> list[dict[str, str]]:
    parts, wins, judged = [], 0, 0
    for task, split in sorted({(t, s) for t, s, _ in of}):
        errors = {
            label: of[task, split, name]["mape_pct"] for name, label in _VARIANTS.items() if (task, split, name) in of
        }
        if len(errors) < len(_VARIANTS):
            continue
        judged += 1
        best = min(v for k, v in errors.items() if k not in ("SAGE", "MLP"))
        wins += errors["SAGE"] <= best * _TIE
        shown = ", ".join(f"{k} {v:.1f} %" for k, v in errors.items())
        parts.append(f"{task}, {split}: {shown}")
    if not judged:
        return []
    verdict = "confirmed" if wins == judged else "refuted" if not wins else f"mixed ({wins} of {judged} splits)"
    return [{"claim": "SAGE is better than other graph layers", "verdict": verdict, "sentence": "; ".join(parts) + "."}]


def _design(of: dict[tuple[str, str, str], dict[str, Any]]) -> list[dict[str, str]]:
    """Ours against the best published predictor of the same cell."""
    parts, wins, judged = [], 0, 0
    rivals = {p for _, _, p in of} - {"perfpass", "ensemble", "constant", "roofline", "boosting"}
    for task, split, predictor in sorted(of):
        if predictor != "perfpass":
            continue
        others = {p: of[task, split, p]["mape_pct"] for p in rivals if (task, split, p) in of}
        if not others:
            continue
        judged += 1
        best = min(others, key=lambda p: others[p])
        won = of[task, split, predictor]["mape_pct"] < others[best]
        wins += won
        if not won:
            parts.append(
                f"{task}, {split}: {best} {others[best]:.1f} % against {of[task, split, predictor]['mape_pct']:.1f} %"
            )
    if not judged:
        return []
    sentence = "It has the lower MAPE on every split." if not parts else "It loses on " + "; ".join(parts) + "."
    verdict = f"true on {wins} of {judged} splits"
    return [{"claim": "Our design is better than the best published one", "verdict": verdict, "sentence": sentence}]


def _mixture(of: dict[tuple[str, str, str], dict[str, Any]]) -> list[dict[str, str]]:
    both = [(t, s) for t, s, p in of if p == "ensemble" and (t, s, "perfpass") in of]
    if not both:
        return []
    better = [(t, s) for t, s in both if of[t, s, "ensemble"]["mape_pct"] < of[t, s, "perfpass"]["mape_pct"]]
    shown = "; ".join(
        f"{t}, {s}: {of[t, s, 'ensemble']['mape_pct']:.1f} % against {of[t, s, 'perfpass']['mape_pct']:.1f} %"
        for t, s in sorted(both)
    )
    verdict = f"true on {len(better)} of {len(both)} splits"
    return [{"claim": "An ensemble with weights from validation is better than our design", "verdict": verdict,
             "sentence": shown + "."}]  # fmt: skip
