"""The language model under the graph token: any local folder of a causal language model, or a small one trained here.

Reading a folder runs no code from it: safetensors only (no pickles), `trust_remote_code` off, nothing is downloaded.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.errors import ArgumentError, FileError, UnsupportedError
from perfpass.importers import torchvision_schemas
from perfpass.importers.model_sources import LARGEST_CONFIG_BYTES
from perfpass.json_text import read_json
from perfpass.predictors.published.bpe import END, PIECES, UNKNOWN

torchvision_schemas.define()

import peft  # noqa: E402 - imports torchvision, whose operators must be defined
import safetensors  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

VOCABULARY = 512
# Sizes of the small model, and of its training: tokens of a text, texts of a step.
SMALL: dict[str, Any] = {"hidden_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 192}
_TEXT_TOKENS = 112
_TEXTS = 24
LOADING_ERRORS = (OSError, ValueError, KeyError, RuntimeError, safetensors.SafetensorError)
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


@dataclass(frozen=True, eq=False)
class Base:
    """A causal language model with its tokenizer. ``own``: the small one, which NumPy can score."""

    model: Any
    tokenizer: Any
    folder: Path
    own: bool

    @property
    def hidden(self) -> int:
        """Width of a token's embedding."""
        return int(self.model.get_input_embeddings().weight.shape[1])

    def encode(self, text: str) -> list[int]:
        """Token numbers, without special tokens."""
        return list(self.tokenizer(text.lower() if self.own else text, add_special_tokens=False)["input_ids"])


def load(folder: str | Path, *, own: bool = False) -> Base:
    """A folder as `save_pretrained` writes it. Raises as `checked`, and UnsupportedError for what is no causal language
    model.
    """
    place = Path(folder)
    checked(place)
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            place, local_files_only=True, trust_remote_code=False, use_safetensors=True
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(place, local_files_only=True, trust_remote_code=False)
    except LOADING_ERRORS as error:
        raise UnsupportedError(
            f"{place}: transformers cannot load a causal language model from it: {first_line(error)}"
        ) from error
    return Base(model.float(), tokenizer, place, own)


def checked(place: Path) -> None:
    """Whether a folder may be loaded at all. Raises FileError, FormatError and UnsupportedError, each saying what is
    missing or refused.
    """
    config = place / "config.json"
    if not config.is_file():
        raise FileError(f"{place}: no config.json, so no Hugging Face model; give the folder of one")
    content = read_json(config, "a config.json", LARGEST_CONFIG_BYTES, any_number=True)
    if not isinstance(content, dict) or content.get("auto_map"):
        raise UnsupportedError(f"{place} needs code of its own (auto_map), which is never run; take another base model")
    if not any(place.glob("*.safetensors")):
        pickled = [p.name for p in place.iterdir() if p.suffix in _PICKLES]
        kind = f"only {pickled[0]}, which may hold a pickle" if pickled else "no weights"
        raise UnsupportedError(f"{place} has {kind}; convert the weights to safetensors")


def first_line(error: BaseException) -> str:
    """What a library's error says first."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def train_small(texts: Sequence[str], folder: Path, steps: int, seed: int = 0) -> Base:
    """A tokenizer and a small Llama, trained from scratch on ``texts`` and saved in ``folder`` as any base model is."""
    if not texts:
        raise ArgumentError("a language model needs texts to learn from, got none")
    torch.manual_seed(seed)
    tokenizer = _tokenizer(texts)
    config = transformers.LlamaConfig(
        **SMALL,
        num_key_value_heads=SMALL["num_attention_heads"],
        vocab_size=len(tokenizer),
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        rms_norm_eps=1e-6,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.eos_token_id,
    )
    place = "cuda" if torch.cuda.is_available() else "cpu"
    model: Any = transformers.LlamaForCausalLM(config)
    model.to(place)
    end = tokenizer.eos_token_id
    encoded = [[*tokenizer(t.lower(), add_special_tokens=False)["input_ids"], end] for t in texts]
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=4e-3, total_steps=steps)
    draw = np.random.default_rng(seed)
    for step in range(steps):
        ids = np.full((_TEXTS, _TEXT_TOKENS), end)
        for row, i in enumerate(draw.integers(0, len(encoded), _TEXTS)):
            start = int(draw.integers(0, max(len(encoded[i]) - _TEXT_TOKENS, 0) + 1))
            part = encoded[i][start : start + _TEXT_TOKENS]
            ids[row, : len(part)] = part
        given = torch.from_numpy(ids).to(place)
        loss = model(input_ids=given, labels=torch.where(given == end, -100, given)).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if (step + 1) % 100 == 0:
            print(f"language model: step {step + 1} of {steps}, loss {float(loss.detach()):.2f}", file=sys.stderr)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        model.save_pretrained(scratch, safe_serialization=True)
        tokenizer.save_pretrained(scratch)
        folder.mkdir(exist_ok=True)
        # The configuration last: a folder without it is no model.
        for file in sorted(Path(scratch).iterdir(), key=lambda file: file.name == "config.json"):
            file.replace(folder / file.name)
    return load(folder, own=True)


def _tokenizer(texts: Sequence[str]) -> Any:
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex(PIECES), "isolated")]
    )
    letters = [chr(c) for c in range(33, 127) if not chr(c).isupper()]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=[UNKNOWN, END], initial_alphabet=letters, show_progress=False
    )
    tokenizer.train_from_iterator((t.lower() for t in texts), trainer)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token=UNKNOWN, eos_token=END)


def with_lora(base: Base, rank: int) -> Any:
    """The model with LoRA (Hu et al., ICLR 2022) of ``rank`` on every linear layer, everything else frozen."""
    if rank < 1:
        raise ArgumentError(f"the rank of LoRA must be at least 1, got {rank}")
    import copy

    options = peft.LoraConfig(
        r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    return peft.get_peft_model(copy.deepcopy(base.model), options)


def backbone(model: Any) -> Any:
    """The part of a causal language model (with or without LoRA) that gives hidden states."""
    causal: Any = model.get_base_model() if isinstance(model, peft.PeftModel) else model
    return getattr(causal, causal.base_model_prefix)


def scorer(artefact: Any) -> Any:
    """How an artefact on another base predicts: embeddings [R, H], numbers [R, S] and prompts to scaled outputs [R]."""
    from perfpass.predictors.learned.arrays import unpack

    manifest = artefact.manifest
    base = load(manifest["base"])
    model = with_lora(base, manifest["rank"])
    stored = unpack(artefact.read("weights.safetensors"), str(artefact.folder))
    w = {name: torch.from_numpy(values.astype(np.float32)) for name, values in stored.items()}
    adapters = {n.removeprefix("lora."): v for n, v in w.items() if n.startswith("lora.")}
    peft.set_peft_model_state_dict(model, adapters)
    model.eval()
    read, words = backbone(model), model.get_input_embeddings()

    def score(embedding: np.ndarray, numbers: np.ndarray, prompts: list[str]) -> np.ndarray:
        out = []
        with torch.no_grad():
            graph = torch.from_numpy(embedding) @ w["graph_token.weight"].T + w["graph_token.bias"]
            inner = torch.relu(torch.from_numpy(numbers) @ w["run_token.0.weight"].T + w["run_token.0.bias"])
            run = inner @ w["run_token.2.weight"].T + w["run_token.2.bias"]
            for row, text in enumerate(prompts):
                ids = torch.tensor(base.encode(text))
                given = torch.cat([words(ids), graph[row, None], run[row, None]])[None]
                state = read(inputs_embeds=given, use_cache=False).last_hidden_state[:, -1]
                out.append(float((state @ w["head.weight"].T + w["head.bias"])[0, 0]))
        return np.array(out)

    return score
