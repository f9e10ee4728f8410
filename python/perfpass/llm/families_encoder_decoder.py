"""Encoder-decoders, one reader per kind: T5 and its kin (arXiv:1910.10683), BART and its kin (arXiv:1910.13461),
Whisper (arXiv:2212.04356).

The encoder reads a prompt once, or of Whisper a window of sound that is always as long; each layer of the decoder
attends to the tokens written so far and, across, to the encoder's. Conventions are those of the classes in
transformers, as in `perfpass.llm.families`.
"""

from __future__ import annotations

from collections.abc import Callable

from perfpass.errors import UnsupportedError
from perfpass.llm.architecture import Attention, Layer, Mlp
from perfpass.llm.families import Body
from perfpass.llm.fields import Fields


def _t5(f: Fields) -> Body:
    """T5, mT5, FLAN, UL2: RMS norms, no biases, a table of relative positions on either side."""
    if "T5EncoderModel" in (f.find("architectures") or []):
        raise unknown(str(f.find("model_type")), f.name)
    hidden, heads, dim = f.size("d_model"), f.size("num_heads"), f.size("d_kv")
    layers, width = f.size("num_layers"), f.size("d_ff")
    gated = str(f.find("feed_forward_proj") or "relu").startswith("gated")
    attention = Attention(heads, heads, dim, dim)
    mlp = Mlp(width, matrices=3 if gated else 2)
    encoder = Layer(attention=attention, dense=mlp, norms=2 * hidden, encoder=True)
    decoder = Layer(attention=attention, cross=attention, dense=mlp, norms=3 * hidden)
    tables = 2 * f.size("relative_attention_num_buckets", default=32) * heads
    body = [encoder] * layers + [decoder] * f.size("num_decoder_layers", default=layers)
    return Body(hidden, body, f.flag("tie_word_embeddings", True), tables + 2 * hidden)


# Model types of BART's kind: offset of learned positions (None: they are computed), norms around the embeddings and at
# the end, per side.
_BART: dict[str, tuple[int | None, int]] = {
    "bart": (2, 1),
    "mbart": (2, 2),
    "plbart": (2, 1),
    "pegasus": (None, 1),
    "m2m_100": (None, 1),
    "marian": (None, 0),
    "blenderbot": (0, 1),
    "blenderbot-small": (0, 1),
}


def _bart(f: Fields) -> Body:
    """BART, mBART, Pegasus, M2M-100 (NLLB), Marian, Blenderbot: norms and all matrices with biases."""
    offset, outer = _BART[str(f.find("model_type"))]
    hidden = f.size("d_model")

    def side(name: str) -> tuple[Attention, Mlp, int]:
        heads, width = f.size(f"{name}_attention_heads"), f.size(f"{name}_ffn_dim")
        dim = hidden // heads
        return Attention(heads, heads, dim, dim, extra=4 * hidden), Mlp(width, 2, width + hidden), 4 * hidden

    attention, mlp, norms = side("encoder")
    encoder = Layer(attention=attention, dense=mlp, norms=norms, encoder=True)
    attention, mlp, norms = side("decoder")
    decoder = Layer(attention=attention, cross=attention, dense=mlp, norms=norms + 2 * hidden)
    positions = 0 if offset is None else 2 * (f.size("max_position_embeddings") + offset) * hidden
    body = [encoder] * f.size("encoder_layers") + [decoder] * f.size("decoder_layers")
    return Body(hidden, body, True, positions + 4 * outer * hidden)


# Positions of Whisper's encoder in a second: a frame of the spectrum every 10 ms, of which a convolution takes every
# second one (arXiv:2212.04356, section 2.2).
_POSITIONS_PER_SECOND = 50


def _whisper(f: Fields) -> Body:
    """Whisper and what was distilled from it: BART's layers without a bias of the keys, behind two convolutions.

    The convolutions are a layer of the encoder, three matrices deep: of the spectrum's bands (whose products are twice
    as many as counted, since it runs on frames) and of the hidden size.
    """
    hidden, window, written = (f.size(name) for name in ("d_model", "max_source_positions", "max_target_positions"))

    def side(name: str) -> tuple[Attention, Mlp]:
        heads, width = f.size(f"{name}_attention_heads"), f.size(f"{name}_ffn_dim")
        dim = hidden // heads
        return Attention(heads, heads, dim, dim, extra=3 * hidden), Mlp(width, 2, width + hidden)

    convolutions = Layer(dense=Mlp(f.size("num_mel_bins") + hidden, 3, 2 * hidden), encoder=True)
    attention, mlp = side("encoder")
    encoder = Layer(attention=attention, dense=mlp, norms=4 * hidden, encoder=True)
    attention, mlp = side("decoder")
    decoder = Layer(attention=attention, cross=attention, dense=mlp, norms=6 * hidden)
    body = [convolutions, *[encoder] * f.size("encoder_layers"), *[decoder] * f.size("decoder_layers")]
    note = (
        f"a request is one window of {window / _POSITIONS_PER_SECOND:g} s of sound, {window:,} positions whatever is "
        "said in it; longer sound is a request for each window"
    )
    return Body(hidden, body, True, (window + written) * hidden + 4 * hidden, window=window, notes=(note,))


READERS: dict[str, Callable[[Fields], Body]] = {
    **dict.fromkeys(("t5", "mt5", "umt5"), _t5),
    **dict.fromkeys(_BART, _bart),
    "whisper": _whisper,
}
# Those that read what is no text.
_SPEECH = ("speech_to_text", "moonshine")


def unknown(kind: str, name: str) -> UnsupportedError:
    """The error about an encoder-decoder of another kind."""
    if kind in _SPEECH:
        return UnsupportedError(
            f"{name} ({kind}) reads sound and writes text; serving it token by token is not counted here: "
            f"`perfpass predict {name}` answers one pass of encoder and decoder"
        )
    known = ", ".join(sorted(READERS))
    return UnsupportedError(
        f"{name} ({kind}) is half of an encoder-decoder, or one of a kind that is not known here; known are {known}. "
        f"`perfpass predict {name}` answers one pass of it"
    )
