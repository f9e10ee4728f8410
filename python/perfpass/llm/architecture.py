"""What a language model consists of: its layers, what each holds and computes, exactly counted and without weights.

`perfpass.llm.configuration` reads these facts from a Hugging Face config.json; `perfpass.llm.costs` turns them into the
work of a prefill or decode step. Parameters count every tensor of the published checkpoint's language model; layers for
multi-token prediction do not count, and towers of pictures and sound are counted apart from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

FP32_BYTES = 4.0


_SCALED_8_BITS = 1 + 4 / 128  # bytes a number, as DeepSeek's kernels read them


@dataclass(frozen=True)
class Attention:
    """Softmax attention of one layer.

    ``head_dim`` is the width of a query or key head, ``value_dim`` of a value head. ``window``: keys that a query sees
    at most (sliding or chunked), None for all. ``kv_rank`` > 0 is latent attention (DeepSeek-V2, arXiv:2405.04434,
    section 2.1): the cache holds ``kv_rank + rope_dim`` elements per token, whatever the heads; ``q_rank`` is the
    rank of the query's projection, 0 where it is a single matrix. ``gated``: an output gate as wide as the queries.
    ``keys_are_values``: one projection for both. ``top_k`` > 0: a lightning indexer of ``index_heads`` heads of
    ``index_dim`` chooses the keys (DeepSeek-V3.2). ``borrows``: keys and values are those of an earlier layer, so none
    are projected or kept. ``extra`` counts parameters beside the matrices: biases, norms of
    heads, sinks.
    """

    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    window: int | None = None
    q_rank: int = 0
    kv_rank: int = 0
    rope_dim: int = 0
    gated: bool = False
    keys_are_values: bool = False
    top_k: int = 0
    index_heads: int = 0
    index_dim: int = 0
    extra: int = 0
    borrows: bool = False

    @property
    def is_latent(self) -> bool:
        """Whether the cache holds a latent vector instead of keys and values."""
        return self.kv_rank > 0

    def matrices(self, hidden: int) -> int:
        """Elements of the projections, indexer included; every token is multiplied by each once."""
        queries = self.heads * self.head_dim * (2 if self.gated else 1)
        query = hidden * self.q_rank + self.q_rank * queries if self.q_rank else hidden * queries
        output = self.heads * self.value_dim * hidden
        if self.is_latent:
            down = hidden * (self.kv_rank + self.rope_dim)
            up = self.kv_rank * self.heads * (self.head_dim - self.rope_dim + self.value_dim)
        else:
            down = hidden * self.kv_heads * (self.head_dim + (0 if self.keys_are_values else self.value_dim))
            up = 0
        if self.borrows:
            down = 0
        return query + down + up + output + self.indexer(hidden)

    def indexer(self, hidden: int) -> int:
        """Elements of the indexer's projections."""
        if not self.top_k:
            return 0
        return (self.q_rank or hidden) * self.index_heads * self.index_dim + hidden * (
            self.index_dim + self.index_heads
        )

    @property
    def cache_elements(self) -> int:
        """Elements of the cache that are read per token, without the indexer's keys."""
        if self.is_latent:
            return self.kv_rank + self.rope_dim
        return self.kv_heads * (self.head_dim + self.value_dim)

    def served_bytes(self, element: float) -> float:
        """Bytes of a token's keys and values (or latents) in a server, ``element`` bytes a number, unsplit.

        Latents in 8 bits that an indexer chooses from have an fp32 scale for 128 and keep the rotated part in 16 bits
        (vLLM's fp8_ds_mla, 656 bytes of DeepSeek-V3.2).
        """
        if self.is_latent and self.top_k and element == 1.0:
            return self.kv_rank * _SCALED_8_BITS + 2.0 * self.rope_dim
        return self.cache_elements * element

    @property
    def indexer_bytes(self) -> float:
        """Bytes of a token's indexer keys in a server: 8 bits with an fp32 scale for 128, whatever the cache's type."""
        return self.index_dim * _SCALED_8_BITS if self.top_k else 0.0


@dataclass(frozen=True)
class Recurrence:
    """A layer with a state of fixed size per sequence, of a ``kind`` by its name: Mamba-2, gated delta net, ...

    ``projections``: elements of the matrices that every token is multiplied by; ``state``: elements of the recurrent
    state, ``convolution``: of the convolution's window, both per sequence; ``heads`` splits over tensor parallelism.
    ``exact``: the state is kept in fp32, else in the type of the activations, as the window is.
    """

    kind: str
    projections: int
    state: int
    convolution: int
    heads: int
    extra: int = 0
    exact: bool = True

    def state_bytes(self, activation_bytes: float) -> float:
        """Bytes of a sequence's state beside activations of ``activation_bytes``."""
        return self.state * (FP32_BYTES if self.exact else activation_bytes)

    def kept_bytes(self, activation_bytes: float) -> float:
        """Bytes of a sequence's state and window."""
        return self.state_bytes(activation_bytes) + self.convolution * activation_bytes


@dataclass(frozen=True)
class Mlp:
    """Dense feed-forward block: ``matrices`` (3 where gated, else 2) of hidden x ``width``."""

    width: int
    matrices: int = 3
    extra: int = 0


@dataclass(frozen=True)
class Experts:
    """Mixture of experts: ``active`` of ``count`` experts per token, each ``matrices`` of ``model_width`` x ``width``.

    ``shared_width`` is the summed width of the experts that every token passes, 0 for none (they are as wide as the
    hidden size on the other side). ``model_width`` is the hidden size, or the latent width where tokens are projected
    down first, by two matrices of ``latent_projection`` elements together. ``expert_extra``: biases of one expert;
    ``extra``: everything beside, such as the router's.
    """

    count: int
    active: int
    width: int
    model_width: int
    matrices: int = 3
    shared_width: int = 0
    latent_projection: int = 0
    expert_extra: int = 0
    extra: int = 0

    @property
    def expert_elements(self) -> int:
        """Elements of one expert's matrices."""
        return self.matrices * self.model_width * self.width


@dataclass(frozen=True)
class Layer:
    """One layer: what mixes tokens, what transforms each, and ``norms`` parameters. ``dense`` runs beside ``experts``
    where a model has both, and so does ``recurrence`` beside ``attention``.

    Of an encoder-decoder, ``encoder`` says that the layer reads the prompt alone, once, and keeps nothing; ``cross`` is
    the decoder's attention to what the encoder made of it. Keys and values across, one per token of the prompt, and
    those of the tokens written are as long together as a decoder's cache, and are counted as that of ``attention``.
    """

    attention: Attention | None = None
    recurrence: Recurrence | None = None
    dense: Mlp | None = None
    experts: Experts | None = None
    norms: int = 0
    cross: Attention | None = None
    encoder: bool = False

    @property
    def keeps(self) -> Attention | None:
        """The attention whose keys and values are kept from token to token, if there is one."""
        return None if self.encoder or (self.attention and self.attention.borrows) else self.attention

    def parameters(self, hidden: int, *, active: bool = False) -> int:
        """Parameters; with ``active`` only those that one token meets."""
        total = self.norms
        if self.attention:
            total += self.attention.matrices(hidden) + self.attention.extra
        if self.cross:
            total += self.cross.matrices(hidden) + self.cross.extra
        if self.recurrence:
            total += self.recurrence.projections + self.recurrence.extra
        if self.dense:
            total += self.dense.matrices * hidden * self.dense.width + self.dense.extra
        if self.experts:
            e = self.experts
            total += e.extra + e.count * hidden + e.latent_projection + e.matrices * hidden * e.shared_width
            total += (e.active if active else e.count) * (e.expert_elements + e.expert_extra)
        return total

    def widest(self, hidden: int) -> int:
        """Elements of its largest matrix."""
        a, e = self.attention, self.experts
        sizes = [hidden * max(a.heads * a.head_dim, a.heads * a.value_dim)] if a else []
        sizes += [hidden * self.dense.width] if self.dense else []
        sizes += [e.model_width * e.width, hidden * e.shared_width] if e else []
        return max(sizes, default=0)


@dataclass(frozen=True)
class Sight:
    """What a tower holds at once while it reads pictures: ``elements`` for every token that they become in a prompt,
    and ``pairs`` for every two of these, patches of a picture of any size that a mask tells apart (0: tiles of one
    size). ``most_tokens``: of one picture.
    """

    elements: float
    pairs: float
    most_tokens: int


@dataclass(frozen=True)
class LanguageModel:
    """A language model (or the one inside a vision-language model): a decoder, or an encoder and a decoder.

    ``layers`` holds (count, layer) for equal layers. ``embedding_extra``: parameters of learned positions, embedding
    norms, the final norm and a bias of the head; ``unmet``: beside them, those that no token of text meets, but for a
    row of a further table, or that other kinds of tokens meet. ``tied``: the head shares the input embedding.
    ``beside``: parameters of towers of pictures and sound, which are loaded with it and which text does not pass
    (`perfpass.llm.towers`); they are no part of ``parameters``. ``sight``: of those of pictures, where it is known.
    ``stored_as``: the precision of the published checkpoint's matrices where its configuration says so, else "bf16";
    ``experts_stored_as`` likewise for experts; ``cache_stored_as``: the type of cache that the checkpoint asks for, ""
    where it asks for none. ``stored_bytes``: the weights of the file that it was read from, 0 where
    none was. ``window``: positions that an encoder of sound reads, whatever is said in them, 0 where a prompt has its
    own length; ``max_positions`` then counts them and the tokens written together. ``packed_bytes``: bytes of an
    element by precision, where the checkpoint's method states its own. ``notes``: what was taken from its name or its
    file, a sentence each.
    """

    name: str
    model_type: str
    hidden: int
    vocabulary: int
    layers: tuple[tuple[int, Layer], ...]
    tied: bool
    embedding_extra: int = 0
    unmet: int = 0
    beside: int = 0
    sight: Sight | None = None
    max_positions: int = 0
    window: int = 0
    stored_as: str = "bf16"
    experts_stored_as: str = "bf16"
    cache_stored_as: str = ""
    stored_bytes: int = 0
    packed_bytes: tuple[tuple[str, float], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def layer_count(self) -> int:
        """Layers (a Nemotron-H block counts as one layer, as its configuration counts)."""
        return sum(count for count, _ in self.layers)

    def passed_layers(self, *, decode: bool) -> float:
        """Layers that a step passes, of two blocks each: a token that is written passes none of an encoder, attention
        across is a third block of a layer, and what chooses the keys of sparse attention is as many small kernels as
        the rest of a layer (14 beside its products in SGLang's nsa_indexer.py).
        """
        total = 0.0
        for count, layer in self.layers:
            if not (decode and layer.encoder):
                indexed = layer.attention is not None and layer.attention.top_k > 0
                total += count * (1.0 + 0.5 * (layer.cross is not None) + indexed)
        return total

    def scoring_heads(self, *, decode: bool) -> float:
        """Query heads of all layers, each as often as it scores a step's attended tokens (`perfpass.llm.costs.Step`):
        an encoder's see all of a prompt, twice as many, and a decoder behind it none of them but across.
        """
        total = 0.0
        for count, layer in self.layers:
            if layer.attention:
                often = (0.0 if decode else 2.0) if layer.encoder else float(decode or not layer.cross)
                total += often * count * layer.attention.heads
        return total

    @property
    def parameters(self) -> int:
        """All parameters."""
        inner = sum(count * layer.parameters(self.hidden) for count, layer in self.layers)
        return inner + self.embedding_extra + self.unmet + (1 if self.tied else 2) * self.vocabulary * self.hidden

    @property
    def active_parameters(self) -> int:
        """Parameters that one token meets: without the experts it is not sent to and without the input embedding,
        of which it reads one row.
        """
        inner = sum(count * layer.parameters(self.hidden, active=True) for count, layer in self.layers)
        return inner + self.embedding_extra + self.vocabulary * self.hidden

    @property
    def expert_parameters(self) -> int:
        """Parameters in routed experts."""
        return sum(n * e.count * (e.expert_elements + e.expert_extra) for n, e in self._mixtures)

    @property
    def is_mixture(self) -> bool:
        """Whether any layer has experts."""
        return bool(self._mixtures)

    @property
    def is_hybrid(self) -> bool:
        """Whether any layer is recurrent."""
        return any(layer.recurrence for _, layer in self.layers)

    @property
    def is_encoder_decoder(self) -> bool:
        """Whether an encoder reads the prompt."""
        return any(layer.encoder for _, layer in self.layers)

    @property
    def counts_sides_apart(self) -> bool:
        """Whether ``max_positions`` are those of the prompt and of the answer, each, and not of both together."""
        return self.is_encoder_decoder and not self.window

    @property
    def heads(self) -> int:
        """Query heads of the widest attention layer; 0 without attention."""
        return max((layer.attention.heads for _, layer in self.layers if layer.attention), default=0)

    @property
    def kv_heads(self) -> int:
        """Key-value heads of the attention layer with most (1 for latent attention); 0 without attention."""
        found = [layer.attention for _, layer in self.layers if layer.attention]
        return max((1 if a.is_latent else a.kv_heads for a in found), default=0)

    @property
    def _mixtures(self) -> list[tuple[int, Experts]]:
        return [(count, layer.experts) for count, layer in self.layers if layer.experts]

    def cache_elements(self, context: float | np.ndarray, sequences: float | np.ndarray = 1.0) -> float | np.ndarray:
        """Elements of keys and values (or latents) cached for ``sequences`` of ``context`` tokens each, unsplit."""
        import numpy as np

        total: float | np.ndarray = 0.0
        for count, layer in self.layers:
            if layer.keeps:
                a = layer.keeps
                seen = np.minimum(context, a.window) if a.window else context
                total += count * seen * (a.cache_elements + (a.index_dim if a.top_k else 0))
        return total * sequences
