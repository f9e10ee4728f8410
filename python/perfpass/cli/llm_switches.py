"""Options of `perfpass llm` for what is switched on in an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfpass.errors import ArgumentError

if TYPE_CHECKING:
    from perfpass.llm.speculation import Speculation
    from perfpass.predictors.switches.switches import Switches

_WITH_DRAFT = ("draft_tokens", "draft_tree", "acceptance", "accepted_tokens")


def add_switches(command: Any) -> None:
    """What is switched on, and how."""
    group = command.add_argument_group("switched on in the engine (docs/guides/llm-serving.md)")
    group.add_argument(
        "--draft",
        metavar="D",
        help="speculative decoding: a draft model by name or file, or eagle, eagle-2, eagle-3, medusa, mtp, ngram, "
        "lookahead, recycling, rest, samd, swift",
    )
    group.add_argument("--draft-tokens", type=_count, metavar="K", help="drafted after each other (default: measured)")
    group.add_argument("--draft-tree", type=_count, metavar="N", help="verified at once, where drafts form a tree")
    group.add_argument("--acceptance", type=float, metavar="A", help="share of drafts kept (default: measured)")
    group.add_argument("--accepted-tokens", type=float, metavar="T", help="instead: mean tokens of a step")
    group.add_argument("--prefix-hit", type=float, default=0.0, metavar="H", help="share of the prompt in the cache")
    group.add_argument("--from-host", type=float, default=0.0, metavar="S", help="share of these on the host (PCIe)")


def _count(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ArgumentError(f"a number of tokens is a whole number, got {text!r}") from None


def switches(options: Any) -> Switches | None:
    """What the options switch on; None for a plain engine. Raises ArgumentError."""
    from perfpass.predictors.switches.switches import Switches

    found = Switches(prefix_hit=options.prefix_hit, from_host=options.from_host, speculation=_speculation(options))
    return None if found == Switches() else found


def _speculation(options: Any) -> Speculation | None:
    if options.draft is None:
        given = [name for name in _WITH_DRAFT if getattr(options, name) is not None]
        if given:
            raise ArgumentError(f"--{given[0].replace('_', '-')} says how to draft; give --draft too")
        return None
    from perfpass.llm.configuration import language_model
    from perfpass.llm.speculation import METHODS, Speculation

    named = options.draft in METHODS and options.draft != "model"
    return Speculation.of(
        options.draft if named else "model",
        draft=None if named else language_model(options.draft),
        drafted=options.draft_tokens,
        verified=options.draft_tree,
        acceptance=options.acceptance,
        tokens=options.accepted_tokens,
    )
