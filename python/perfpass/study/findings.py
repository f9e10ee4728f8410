"""What the literature claims, held against the table: each claim with a verdict and the figures behind it."""

from __future__ import annotations

from typing import Any

_VARIANTS = {"dippm": "SAGE", "dippm-gat": "GAT", "dippm-gcn": "GCN", "dippm-gin": "GIN", "dippm-mlp": "MLP"}
_OURS = ("perfpass", "perfpass-residual")
_NO_RIVALS = (*_OURS, "ensemble", "constant", "roofline")
# (claim, the predictor that it holds for better, the one that it holds for worse); judged on every cell that has both.
_CLAIMS = (
    ("A pre-trained graph autoencoder is better than a random one", "trappm", "trappm-random"),
    ("A graph network is better than its static features alone", "dippm", "dippm-mlp"),
    ("A graph token is better than text, on all splits", "graph-language", "graph-language-text"),
    ("A graph token is better than no graph, on all splits", "graph-language", "graph-language-none"),
    ("A graph token is better than a sentence embedding, on all splits", "graph-language", "graph-language-sentence"),
)
# Errors closer than this (as a ratio) are no difference on a few hundred rows.
TIE = 1.03


def findings(content: dict[str, Any]) -> list[dict[str, str]]:
    """Claims that the table's cells speak of; those that lack a cell are left out."""
    of = {(c["task"], c["split"], c["predictor"]): c for c in content["cells"]}
    found = [*_sage(of), *_design(of, content.get("defaults", [])), *_mixture(of)]
    for claim, better, worse in _CLAIMS:
        found += _against(of, claim, better, worse)
    return [*found, *_distilled(content.get("distillation", []))]


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
        wins += errors["SAGE"] <= best * TIE
        shown = ", ".join(f"{k} {v:.1f} %" for k, v in errors.items())
        parts.append(f"{task}, {split}: {shown}")
    if not judged:
        return []
    verdict = "confirmed" if wins == judged else "refuted" if not wins else f"mixed ({wins} of {judged} splits)"
    return [{"claim": "SAGE is better than other graph layers", "verdict": verdict, "sentence": "; ".join(parts) + "."}]


def _against(
    of: dict[tuple[str, str, str], dict[str, Any]], claim: str, better: str, worse: str
) -> list[dict[str, str]]:
    pairs = [(t, s, of[t, s, better]["mape_pct"], of[t, s, worse]["mape_pct"])
             for t, s, p in sorted(of) if p == better and (t, s, worse) in of]  # fmt: skip
    if not pairs:
        return []
    wins = sum(a * TIE < b for _, _, a, b in pairs)
    losses = sum(b * TIE < a for _, _, a, b in pairs)
    verdict = "confirmed" if wins == len(pairs) else "refuted" if not wins else f"mixed ({wins} of {len(pairs)} splits)"
    if not wins and not losses:
        verdict = "refuted (no difference)"
    shown = "; ".join(f"{t}, {s}: {a:.1f} against {b:.1f} %" for t, s, a, b in pairs)
    return [{"claim": claim, "verdict": verdict, "sentence": f"{better} against {worse}: {shown}."}]


def _distilled(tried: list[dict[str, Any]]) -> list[dict[str, str]]:
    """What a graph network's answers give our trees, by validation."""
    found = []
    for entry in tried:
        errors = entry["valid_mape_pct"]
        best = min((n for n in errors if n.startswith("answers")), key=lambda n: errors[n])
        won = errors[best] * TIE < errors["trees"]
        shown = ", ".join(f"{name} {value:.2f} %" for name, value in errors.items())
        claim = (
            f"A graph network ({entry['teacher']}) distilled into our trees helps on {entry['task']}, {entry['split']}"
        )
        found.append({"claim": claim, "verdict": "confirmed" if won else "refuted",
                      "sentence": f"MAPE on {entry['valid_rows']} validation rows: {shown}."})  # fmt: skip
    return found


def _design(of: dict[tuple[str, str, str], dict[str, Any]], defaults: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Ours, which validation chose of the candidates, against the best other predictor of the same cell."""
    ours = {d["task"]: next((p for p in d["valid_mape_pct"] if p in _OURS), _OURS[0]) for d in defaults}
    lost, wins, judged = [], 0, 0
    ahead: dict[str, list[bool]] = {}  # by rival: on each of its splits, whether it beats ours
    for task, split in sorted({(t, s) for t, s, p in of if p == ours.get(t)}):
        others = {p: of[t, s, p]["mape_pct"] for t, s, p in of if (t, s) == (task, split) and p not in _NO_RIVALS}
        if not others:
            continue
        own, best = of[task, split, ours[task]]["mape_pct"], min(others, key=lambda p: others[p])
        judged += 1
        wins += own < others[best]
        for rival, error in others.items():
            ahead.setdefault(rival, []).append(error <= own)
        if own >= others[best]:
            lost.append(f"{task}, {split}: {best} {others[best]:.1f} % against {own:.1f} %")
    if not judged:
        return []
    names = ", ".join(f"{name} for {task}" for task, name in ours.items() if name != _OURS[0])
    sentence = "It has the lowest MAPE on every split." if not lost else "It loses on " + "; ".join(lost) + "."
    if lost:
        rival = max(ahead, key=lambda name: sum(ahead[name]) / len(ahead[name]))
        sentence += f" Of the {len(ahead)} others by themselves {rival} is ahead of it most often, on"
        sentence += f" {sum(ahead[rival])} of {len(ahead[rival])}."
    if names:
        sentence += f" Ours is perfpass, by validation {names}."
    verdict = f"true on {wins} of {judged} splits"
    return [{"claim": "Our design is better than every other predictor", "verdict": verdict, "sentence": sentence}]


def _mixture(of: dict[tuple[str, str, str], dict[str, Any]]) -> list[dict[str, str]]:
    """The ensemble against perfpass; only differences are listed."""
    both = {(t, s): (of[t, s, "ensemble"]["mape_pct"], of[t, s, "perfpass"]["mape_pct"])
            for t, s, p in sorted(of) if p == "ensemble" and (t, s, "perfpass") in of}  # fmt: skip
    if not both:
        return []

    def listed(chosen: dict[tuple[str, str], tuple[float, float]]) -> str:
        return "; ".join(f"{t}, {s}: {a:.1f} % against {b:.1f} %" for (t, s), (a, b) in chosen.items()) or "none"

    better = {key: (a, b) for key, (a, b) in both.items() if a * TIE < b}
    worse = {key: (a, b) for key, (a, b) in both.items() if b * TIE < a}
    verdict = f"better on {len(better)} of {len(both)} splits, worse on {len(worse)}"
    sentence = f"Better: {listed(better)}. Worse: {listed(worse)}. The others differ by less than {TIE - 1:.0%}."
    return [{"claim": "An ensemble with weights from validation is better than perfpass alone", "verdict": verdict,
             "sentence": sentence}]  # fmt: skip
