"""Sentence embeddings of the graphs' summaries, as a baseline without training of its own.

By a local folder of a sentence-embedding model (BERT-like, safetensors); without one by the mean last hidden state of
the language model under the graph token, which is no trained sentence embedding. A comparison only: no shipped
predictor reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from perfpass.errors import UnsupportedError
from perfpass.predictors.published import language_model as bases

_TEXTS = 32


def embeddings(texts: Sequence[str], folder: str, base: bases.Base | None) -> np.ndarray:
    """[len(texts), D] of unit length. Raises as `base.checked`, and UnsupportedError where nothing can embed."""
    distinct = sorted(set(texts))
    if folder:
        found = _embedded(*_model(Path(folder)), distinct)
    elif base is not None:
        found = _embedded(bases.backbone(base.model), base.tokenizer, [t.lower() if base.own else t for t in distinct])
    else:
        raise UnsupportedError("sentence embeddings need the folder of a model; give one")
    place = {t: i for i, t in enumerate(distinct)}
    return found[[place[t] for t in texts]]


def _model(place: Path) -> tuple[Any, Any]:
    import transformers

    bases.checked(place)
    options = {"local_files_only": True, "trust_remote_code": False}
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(place, **options)
        return transformers.AutoModel.from_pretrained(place, use_safetensors=True, **options), tokenizer
    except bases.LOADING_ERRORS as error:
        raise UnsupportedError(
            f"{place}: transformers cannot load a model from it: {bases.first_line(error)}"
        ) from error


def _embedded(model: Any, tokenizer: Any, texts: list[str]) -> np.ndarray:
    model.eval()
    out: np.ndarray | None = None
    # Texts of about equal length together: padding is work.
    order = np.argsort([len(t) for t in texts], kind="stable")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    with torch.no_grad():
        for start in range(0, len(texts), _TEXTS):
            chosen = order[start : start + _TEXTS]
            given = tokenizer([texts[i] for i in chosen], padding=True, truncation=True, max_length=256,
                              return_tensors="pt")  # fmt: skip
            given.pop("token_type_ids", None)
            mask = given["attention_mask"][..., None].float()
            state = (model(**given).last_hidden_state * mask).sum(1) / mask.sum(1)
            if out is None:
                out = np.empty((len(texts), state.shape[1]), dtype=np.float32)
            out[chosen] = torch.nn.functional.normalize(state, dim=1).numpy()
    assert out is not None
    return out
