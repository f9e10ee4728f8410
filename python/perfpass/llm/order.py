"""Which of two language models of one family is larger."""

from __future__ import annotations

from perfpass.llm.architecture import LanguageModel


def no_larger(one: LanguageModel, other: LanguageModel) -> bool:
    """Whether ``one`` does no more than ``other`` in anything that takes time.

    Only plain decoders of one vocabulary compare, a family: dense layers, each with attention to all tokens.
    """
    if one.vocabulary != other.vocabulary or not (_plain(one) and _plain(other)):
        return False
    return all(a <= b for a, b in zip(_sizes(one), _sizes(other), strict=True))


def _plain(model: LanguageModel) -> bool:
    return all(
        layer.attention and layer.dense and not (layer.experts or layer.recurrence)
        and not (layer.attention.window or layer.attention.is_latent or layer.attention.top_k)
        and not (layer.encoder or layer.cross)
        for _, layer in model.layers
    )  # fmt: skip


def _sizes(model: LanguageModel) -> list[float]:
    attention = [(count, layer.attention) for count, layer in model.layers if layer.attention]
    dense = [(count, layer.dense) for count, layer in model.layers if layer.dense]
    return [
        model.layer_count,
        model.hidden,
        model.parameters,
        sum(count * a.matrices(model.hidden) for count, a in attention),
        sum(count * a.heads * (a.head_dim + a.value_dim) for count, a in attention),
        float(model.cache_elements(1.0)),
        sum(count * mlp.matrices * model.hidden * mlp.width for count, mlp in dense),
    ]
