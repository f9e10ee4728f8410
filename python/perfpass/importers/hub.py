"""A repository of a hub -> its config.json, by `huggingface_hub` where it is installed: from its cache or the net.

Only config.json is fetched, of a bounded size, and no code that it names is. What the hub counted in the headers of the
weights (safetensors) is asked for beside it, and by `perfpass fit` these headers; weights never are. `HF_HUB_OFFLINE`,
`HF_ENDPOINT`, `HF_HOME` and a token are the library's own affair.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perfpass.errors import ArgumentError, FileError, LimitError, PerfPassError, shown
from perfpass.importers.safetensors_header import Listed, of_header

_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
_LARGEST_BYTES = 16 * 2**20
_TIMEOUT_S = 10.0
_MOST_PARAMETERS = 10**15
_INSTALL = "huggingface_hub is not installed, which would look it up: pip install 'perfpass[hub]'"


def may_be_repository(name: str) -> bool:
    """Whether a name has the form OWNER/NAME, and is no path in disguise."""
    return bool(_NAME.fullmatch(name)) and ".." not in name and "--" not in name


@functools.cache
def configuration(repository: str) -> Path:
    """The path of a repository's config.json in the library's cache, fetched where it was not there.

    Raises FileError with one reason (not installed, offline, unknown, behind a gate, no answer), LimitError for a file
    that is too large, ArgumentError for what is no name of a repository.
    """
    if not may_be_repository(repository):
        raise ArgumentError(f"{shown(repository)} is no name of a repository, as OWNER/NAME")
    try:
        import huggingface_hub as library
    except ImportError as error:
        raise FileError(_INSTALL) from error
    cached = library.try_to_load_from_cache(repository, "config.json")
    if isinstance(cached, str):
        return Path(cached)
    if library.constants.HF_HUB_OFFLINE:
        raise FileError("it is not in the cache of huggingface_hub, and HF_HUB_OFFLINE keeps it from asking the hub")
    try:
        url = library.hf_hub_url(repository, "config.json")
        size = library.get_hf_file_metadata(url, timeout=_TIMEOUT_S).size
        if size is None or size > _LARGEST_BYTES:
            raise LimitError(f"the config.json of {repository} has {size} bytes; at most {_LARGEST_BYTES} are read")
        return Path(library.hf_hub_download(repository, "config.json", etag_timeout=_TIMEOUT_S))
    except PerfPassError:
        raise
    except Exception as error:
        raise FileError(_reason(repository, error)) from error


def _reason(repository: str, error: Exception) -> str:
    """What kept the hub from giving it, in a sentence."""
    import huggingface_hub as library

    errors = library.errors
    if isinstance(error, errors.GatedRepoError):
        return (
            f"{repository} asks for its licence to be accepted: accept it on its page, log in (hf auth login), "
            "and ask again"
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return f"the hub has no {repository}, or none that is public"
    if isinstance(error, errors.EntryNotFoundError) and not isinstance(error, errors.LocalEntryNotFoundError):
        return (
            f"{repository} has no config.json: it may hold several networks (a pipeline of diffusers), GGUF files or "
            "an adapter; name one network's own config.json, a GGUF file, or the model that it was made from"
        )
    return f"the hub gave no answer ({type(error).__name__})"


@functools.cache
def parameters(repository: str) -> int:
    """The parameters that the headers of a repository's safetensors count, as the hub says; 0 where it does not."""
    try:
        import huggingface_hub as library

        if library.constants.HF_HUB_OFFLINE:
            return 0
        found = library.HfApi().model_info(repository, expand=["safetensors"], timeout=_TIMEOUT_S).safetensors
        total = getattr(found, "total", 0)
    except Exception:
        return 0  # a check that cannot be made
    return total if isinstance(total, int) and 0 < total < _MOST_PARAMETERS else 0


@functools.cache
def tensors(repository: str) -> Listed | None:
    """The tensors of a repository's safetensors files, from their headers alone, which the hub gives by range requests.

    None where it has no such files, does not answer, or is not to be asked. Raises FormatError for headers that
    contradict themselves.
    """
    try:
        import huggingface_hub as library

        if library.constants.HF_HUB_OFFLINE:
            return None
        with _quiet(library):
            found = library.HfApi().get_safetensors_metadata(repository, timeout=_TIMEOUT_S).files_metadata
    except Exception:
        return None  # the configuration counts them
    listed = []
    for name, file in found.items():
        header = {
            tensor: {"dtype": of.dtype, "shape": list(of.shape), "data_offsets": list(of.data_offsets)}
            for tensor, of in file.tensors.items()
        }
        listed += of_header(header, f"{repository}/{name}")
    return Listed(tuple(listed))


@contextlib.contextmanager
def _quiet(library: Any) -> Iterator[None]:
    """Without bars of progress: headers take seconds."""
    disabled = library.utils.are_progress_bars_disabled()
    library.utils.disable_progress_bars()
    try:
        yield
    finally:
        if not disabled:
            library.utils.enable_progress_bars()
