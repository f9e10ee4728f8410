"""Options of `perfpass llm` for what is switched on in an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfpass.errors import ArgumentError

if TYPE_CHECKING:
    from perfpass.llm.adapters import Adapters
    from perfpass.llm.speculation import Speculation
    from perfpass.llm.vision import Images
    from perfpass.predictors.switches.switches import Switches

# Of `perfpass.llm.adapters.TARGETS`, which the parser does not import.
TARGETS = ("all", "attention", "mlp")
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
    group.add_argument("--lora", metavar="RxN", help="LoRA adapters: rank x number, as 16x8")
    group.add_argument("--lora-resident", type=_count, metavar="N", help="of them on the GPU at once (default: all)")
    group.add_argument("--lora-on", choices=TARGETS, default="all", help="matrices that they stand beside")
    group.add_argument("--images", type=_count, default=0, metavar="N", help="in every prompt, beside its text")
    group.add_argument("--image-size", metavar="WxH", help="their pixels (default: 1024x1024)")
    group.add_argument("--gpu-share", type=float, default=1.0, metavar="S", help="of every GPU's time and memory")
    group.add_argument(
        "--expert-imbalance",
        type=float,
        default=1.0,
        metavar="F",
        help="tokens of the busiest expert group over the mean",
    )
    group.add_argument(
        "--answer-variation", type=float, default=0.0, metavar="V", help="of lengths: standard deviation over mean"
    )


def _count(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ArgumentError(f"a number of tokens is a whole number, got {text!r}") from None


def switched_on(options: Any) -> str:
    """The first option that is given of those that switch something on; "" where none is."""
    given: dict[str, Any] = dict.fromkeys(("draft", *_WITH_DRAFT, "lora", "lora_resident", "image_size"))
    given |= {"gpu_share": 1.0, "expert_imbalance": 1.0, "lora_on": "all"}
    given |= dict.fromkeys(("prefix_hit", "from_host", "answer_variation", "images"), 0)
    found = (name for name, value in given.items() if getattr(options, name) != value)
    return next((f"--{name.replace('_', '-')}" for name in found), "")


def stepping(options: Any) -> Switches | None:
    """What the options switch on in an engine's steps, for requests that arrive.

    Raises ArgumentError for what is no matter of steps.
    """
    from perfpass.predictors.switches.switches import Switches

    for name, instead in (("images", "their tokens in --input-length"), ("answer_variation", "--length-cv")):
        if getattr(options, name):
            raise ArgumentError(
                f"--{name.replace('_', '-')} is of a steady load; of requests that arrive give {instead}"
            )
    found = Switches(
        gpu_share=options.gpu_share,
        expert_imbalance=options.expert_imbalance,
        adapters=_adapters(options),
        speculation=_speculation(options),
    )
    return None if found == Switches() else found


def switches(options: Any) -> Switches | None:
    """What the options switch on; None for a plain engine. Raises ArgumentError."""
    from perfpass.predictors.switches.switches import Switches

    found = Switches(
        gpu_share=options.gpu_share,
        answer_variation=options.answer_variation,
        expert_imbalance=options.expert_imbalance,
        images=_images(options),
        prefix_hit=options.prefix_hit,
        from_host=options.from_host,
        adapters=_adapters(options),
        speculation=_speculation(options),
    )
    return None if found == Switches() else found


def _pair(text: str, option: str, example: str) -> tuple[int, int]:
    first, times, second = text.lower().partition("x")
    if not times:
        raise ArgumentError(f"{option} takes two numbers, as {example}; got {text!r}")
    return _count(first), _count(second)


def _images(options: Any) -> Images | None:
    if not options.images:
        if options.image_size:
            raise ArgumentError("--image-size is that of --images; give both")
        return None
    from perfpass.llm.vision import Images, vision

    width, height = _pair(options.image_size, "--image-size", "1024x768") if options.image_size else (1024, 1024)
    return Images(vision(options.model), options.images, width, height)


def _adapters(options: Any) -> Adapters | None:
    if options.lora is None:
        if options.lora_resident is not None or options.lora_on != "all":
            raise ArgumentError("--lora-resident and --lora-on say how adapters are; give --lora too")
        return None
    from perfpass.llm.adapters import Adapters

    rank, count = _pair(options.lora, "--lora", "16x8")
    return Adapters(rank, count, options.lora_resident, options.lora_on)


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
