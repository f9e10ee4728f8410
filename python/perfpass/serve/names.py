"""Which models a client over a network may name: networks and language models that are known, and no file of ours."""

from __future__ import annotations

import os
import re
from pathlib import Path

from perfpass.errors import FileError, shown

# OWNER/NAME, NAME, SOURCE:NAME, and the type of a GGUF file behind a colon. No part begins with a point, so no "..".
_PART = r"[A-Za-z0-9][\w.+-]{0,95}"
_NAME = re.compile(rf"(?:(?:timm|torchvision|definitions|hf):)?{_PART}(?:/{_PART})?(?::\w{{1,20}})?", re.ASCII)
_FILES = (".onnx", ".json", ".gguf", ".safetensors")


def known_name(text: str) -> str:
    """``text``, which names no file. Raises FileError for what may be a path; whether the model exists is not asked."""
    named = _NAME.fullmatch(text) and not text.lower().endswith(_FILES)
    if not named or os.path.lexists(Path(text.rpartition(":")[2])) or os.path.lexists(Path(text)):
        raise FileError(
            f"{shown(text)} is no name of a model; files of this machine are not read: upload the ONNX file, or send "
            "the content of the config.json"
        )
    return text
