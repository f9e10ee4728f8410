"""What a name says: which configuration, and how the weights are stored, in any of the spellings that people use.

"Qwen/Qwen3-14B-AWQ", "Llama 3.1 70B", "TheBloke/Llama-2-7B-GPTQ" and "llama-2-7b.Q4_K_M" name a configuration that
ships and a precision. A name is taken apart only where the rest of it is known; a fine-tune of somebody else under a
name of its own is not taken for the model that it began from.
"""

from __future__ import annotations

import functools
import re

from perfpass.importers import configuration_names
from perfpass.late import dataclass

# What tuning, packing and benchmarks append to a name, with layers and widths unchanged: "-Instruct", "-it", "-chat",
# "-hf", shards, remarks in brackets, what a run was made with, and the accuracy target of MLPerf ("-99.9").
_TAIL = re.compile(
    r"(?:[-_. ](?:\d{5}-of-\d{5}|hf|it|instruct|chat|mlx|unsloth|q?lora|onnx|qat)|(?<=\db)[-_ ]base|"
    r"[-_ ](?:instruct|it|chat)[-_ ]v\d(?:\.\d)?|-99(?:\.9)?|\s*\([^()]*\)|\s+with\s.*)$"
)
# What those who quantise append. Types of llama.cpp name themselves.
_TYPE = r"(?:ud-|i1-)?(?P<file>(?:i?q\d(?:_(?:k|\d|nl))?(?:_(?:xxs|xs|s|m|l|xl))?|bf16|f16|fp16|f32|fp32))"
_OTHER = (
    r"gptq(?:model)?(?:[-_](?:int4|4bit|4b|int8|8bit|8b))?(?:[-_]\d+g)?(?:-vortex-v\d(?:\.\d)?)?|"
    r"awq(?:[-_](?:int4|4bit|gemm|gemv|marlin))?|(?:int4|int8)[-_](?:autoround|ov|awq|gptq)|autoround|"
    r"(?:bnb-)?(?:int4|4bit|int8|8bit)|(?:quantized[.-])?(?:w4a16|w8a16|w8a8)|(?:fp16|bf16)-ov|"
    r"fp8(?:[-_](?:dynamic|block|static-pertensor|kv))?|nvfp4|fp4|mxfp4|gguf"
)
_STORED = re.compile(rf"[-_. :](?:{_TYPE}|(?P<other>{_OTHER}))$")
_GGUF = re.compile(r"[-_.]gguf(?=$|[: ])")
# Weights trained to be quantised and published in 16 bits: "-qat-q4_0-unquantized".
_UNQUANTISED = re.compile(r"-qat-\w+-unquantized$")
# Who packs several makers' models puts theirs before the name: "bartowski/Qwen_Qwen3-14B-GGUF".
_MAKER_BEFORE = re.compile(r"^([^/_]+/)?([a-z0-9][a-z0-9-]*)_(?=[a-z])")
# Repositories that publish fp8 in blocks of 128 x 128, as their quantization_config says.
_BLOCKS = ("qwen/", "zai-org/", "thudm/", "deepseek-ai/", "minimaxai/", "xiaomimimo/")


@dataclass(frozen=True)
class Named:
    """A configuration that ships, the precision that the name says ("" where it says none: what the configuration
    does), and what was made of the name, a sentence each.
    """

    configuration: str
    stored: str = ""
    notes: tuple[str, ...] = ()


@functools.lru_cache(maxsize=1024)
def find(name: str) -> Named | None:
    """What a name says, None where it is not known."""
    text = re.sub(r"-\d{5}-of-\d{5}$", "", name.strip().lower()).removesuffix(".gguf")
    text = _UNQUANTISED.sub("", text)
    exact = configuration_names.known().get(text)
    if exact is not None and not _STORED.search(text):
        return Named(exact)
    rest, said = _stored(text)
    found = exact or plain(rest)
    if found is None:
        return None
    if not said:
        return Named(found, "", _respelt(name, found))
    stored, note = _precision(said, text)
    return Named(found, stored, (*_respelt(rest, found), note))


def is_type(word: str) -> bool:
    """Whether a word names how weights are stored ("Q4_K_M"), as it stands behind a name's colon."""
    return bool(_STORED.fullmatch(f":{word.lower()}"))


def plain(name: str) -> str | None:
    """The configuration of a name that says nothing of precisions: a known one, its publisher's, another spelling."""
    known = configuration_names.known()
    return known.get(name.lower()) or configuration_names.published(name) or _spelt(name.lower())


def _stored(text: str) -> tuple[str, str]:
    """A name without what it says of the weights, and that: a type of llama.cpp or the word of who quantised."""
    packed = bool(_GGUF.search(text))
    text = _GGUF.sub("", text)
    match = _STORED.search(text)
    if match is None:
        return (text.removesuffix("-i1"), "gguf") if packed else (text, "")
    rest = text[: match.start()]
    said = match["file"] or match["other"].removesuffix("-ov")
    again = _STORED.search(rest)  # "-unsloth-bnb-4bit", "-4bit-awq"
    if again and again["other"]:
        rest = rest[: again.start()]
        said = "mxfp4" if again["other"] == "mxfp4" else said  # "-MXFP4-Q8": the experts in MXFP4, the rest in 8 bits
    return re.sub(r"-(?:bnb|unsloth|qat)$", "", rest.removesuffix("-bnb")), said


def _precision(said: str, text: str) -> tuple[str, str]:
    """The precision of `perfpass.llm.costs` that a word stands for, and the sentence about it."""
    if said == "gguf":
        return "q4_k_m", "the name says GGUF and no file type; Q4_K_M is taken, llama.cpp's choice where none is named"
    word = said.replace("_", "-")
    if re.fullmatch(r"i?q\d.*", said):
        known = said.removesuffix("_xl") + ("" if said.startswith("q6") else "_m") if said.endswith("_xl") else said
        known = {"q2_k_m": "q2_k", "q8_k_m": "q8_0", "q3_k": "q3_k_m", "q4_k": "q4_k_m", "q5_k": "q5_k_m"}.get(
            known, known
        )
        if known != said:
            return known, f"{said.upper()} is counted as {known.upper()}, the type that its files state"
    elif word in ("bf16", "fp16", "fp32", "nvfp4", "mxfp4"):
        known = word
    elif word in ("f16", "f32"):
        known = f"fp{word[1:]}"
    elif word == "fp4":
        known = "nvfp4"
    elif word.startswith("fp8"):
        blocks = word.endswith("block") or (word == "fp8" and text.startswith(_BLOCKS))
        known = "fp8_block" if blocks else "fp8"
    elif "w8a8" in word or (word.startswith("bnb-") and "8" in word):
        known = "int8"
    else:
        known = (
            "int8_wo" if re.search(r"(?:int|\b)8(?:bit|b)?\b|w8", re.sub(r"-\d+g\b|-v[\d.]+$", "", word)) else "int4"
        )
    return known, f"weights stored as {known}, as the name says ({said})"


def _respelt(name: str, found: str) -> tuple[str, ...]:
    """A sentence where a name was understood as another one."""
    known = configuration_names.known()
    return () if name.lower() in known else (f"{name} was read as {found}",)


def _key(name: str) -> str:
    """A name as its words and numbers: "LLAMA3.1_70B", "Llama 3.1 70 B" and "Meta-Llama-3.1-70B-Instruct" have one."""
    text = name.lower()
    while (cut := _TAIL.sub("", text)) != text:
        text = cut
    # Of versions ("v2", "qwenv3"); behind a number or alone it is of what reads pictures ("glm-4v-9b", "minicpm-v-2").
    words = re.findall(r"[a-z]+|\d+(?:\.\d+)*", re.sub(r"(?<!\d)v(?=\d)", " ", text))
    spaced = "".join(w if w.isalpha() else f" {w} " for w in words)
    return " ".join(spaced.removeprefix("meta").split())


@functools.cache
def _keys() -> dict[str, str]:
    """`_key` of every name without its owner -> configuration; keys that two of them have are left out."""
    found: dict[str, set[str]] = {}
    known = configuration_names.known()
    for name, configuration in known.items():
        if "/" not in name:
            found.setdefault(_key(name), set()).add(configuration)
    for configuration in configuration_names.first():
        own = _key(configuration.rpartition("/")[2])
        if configuration in found.get(own, ()):
            found[own] = {configuration}
    return {key: every.pop() for key, every in found.items() if len(every) == 1 and key}


def _spelt(name: str) -> str | None:
    """The configuration of a name in another spelling; of an owner only what is theirs or what they pack."""
    owner, slash, own = name.rpartition("/")
    known = configuration_names.known()
    for spelling in (own, _MAKER_BEFORE.sub("", own)):
        # As it stands first: an instruction-tuned version may have another vocabulary than the model of its key.
        found = known.get(spelling) or _keys().get(_key(spelling))
        if found and (not slash or configuration_names.may_publish(owner, found)):
            return found
    return None
