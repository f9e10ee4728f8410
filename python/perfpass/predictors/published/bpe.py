"""Byte-pair encoding as `tokenizers` trained it, in plain Python: what a shipped small language model reads.

A tokenizer.json of the Hugging Face format, restricted to what `perfpass.predictors.published.language_model` writes:
pieces by one pattern, a BPE model, no added rules (Sennrich et al., ACL 2016).
"""

from __future__ import annotations

import itertools
import re
from functools import lru_cache

from perfpass.errors import ArtefactError
from perfpass.json_text import parse

# Words, single digits, single other characters; white space only separates.
PIECES = r"[a-z_]+|[0-9]|[^\sa-z_0-9]"
UNKNOWN, END = "[UNK]", "[END]"


class Tokenizer:
    """Text to token numbers, in lower case."""

    def __init__(self, content: bytes, where: str) -> None:
        """Reads a tokenizer.json. Raises ArtefactError for another kind of tokenizer."""
        try:
            model = parse(content, where)["model"]
            if model["type"] != "BPE":
                raise ValueError(f"a model of type {model['type']!r}")
            self.vocabulary: dict[str, int] = {str(k): int(v) for k, v in model["vocab"].items()}
            merges = [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in model["merges"]]
            self._unknown, self.end = self.vocabulary[UNKNOWN], self.vocabulary[END]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ArtefactError(f"{where}: no tokenizer of this predictor ({error}); reinstall it") from error
        self._rank = {pair: i for i, pair in enumerate(merges)}
        self._pieces = re.compile(PIECES)
        self._encoded = lru_cache(maxsize=4096)(self._piece)

    def encode(self, text: str) -> list[int]:
        """Token numbers of ``text``."""
        return [token for piece in self._pieces.findall(text.lower()) for token in self._encoded(piece)]

    def _piece(self, piece: str) -> tuple[int, ...]:
        parts = list(piece)
        while len(parts) > 1:
            pairs = enumerate(itertools.pairwise(parts))
            rank, at = min((self._rank.get(pair, len(self._rank)), i) for i, pair in pairs)
            if rank == len(self._rank):
                break
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        return tuple(self.vocabulary.get(p, self._unknown) for p in parts)
