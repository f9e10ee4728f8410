"""A repository of a hub -> its config.json, by `huggingface_hub` where it is installed: from its cache or the net.

Only config.json is fetched, of a bounded size, and no code that it names is. What the hub counted in the headers of the
weights (safetensors) is asked for beside it, and by `perfpass fit` these headers; of a repository that has GGUF files
and no config.json the header of one of them; weights never are. `HF_HUB_OFFLINE`,
`HF_ENDPOINT`, `HF_HOME` and a token are the library's own affair.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perfpass.errors import ArgumentError, FileError, LimitError, PerfPassError, shown
from perfpass.importers import gguf
from perfpass.importers.safetensors_header import Listed, of_header
from perfpass.whole_file import write_whole

_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
_LARGEST_BYTES = 16 * 2**20
_TIMEOUT_S = 10.0
_MOST_PARAMETERS = 10**15
# Of a GGUF file's header the first request takes so much, every further one four times it.
_FIRST_BYTES, _MOST_HEADER_BYTES = 2**20, 2**26
_FIRST_SHARD = re.compile(r"-00001-of-(\d{5})\.gguf$", re.IGNORECASE)
# What llama.cpp takes where nobody says (`-hf OWNER/NAME`).
_USUAL_TYPE = "Q4_K_M"
_INSTALL = "huggingface_hub is not installed, which would look it up: pip install 'perfpass[hub]'"


class NoConfigurationError(FileError):
    """A repository that there is has no config.json."""


def may_be_repository(name: str) -> bool:
    """Whether a name has the form OWNER/NAME, and is no path in disguise."""
    return bool(_NAME.fullmatch(name)) and ".." not in name and "--" not in name


@functools.lru_cache(maxsize=256)
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
        raise _refused(library, repository, error) from error


def pipeline(repository: str) -> Path | None:
    """The folder of a pipeline of diffusers in the library's cache; None where there is none. Nothing is fetched."""
    if not may_be_repository(repository):
        return None
    try:
        import huggingface_hub as library
    except ImportError:
        return None
    cached = library.try_to_load_from_cache(repository, "model_index.json")
    return Path(cached).parent if isinstance(cached, str) else None


def model(repository: str, kind: str = "") -> Path:
    """What says what a repository's model is: its config.json, or the header of its GGUF file where it has none, or
    where a ``kind`` of file is asked for. Raises as `configuration` and `packed`.
    """
    if kind:
        return packed(repository, kind)
    try:
        return configuration(repository)
    except NoConfigurationError as error:
        try:
            return packed(repository)
        except NoConfigurationError:
            raise error from None


def _refused(library: Any, repository: str, error: Exception) -> FileError:
    missing = isinstance(error, library.errors.EntryNotFoundError)
    offline = isinstance(error, library.errors.LocalEntryNotFoundError)
    return (NoConfigurationError if missing and not offline else FileError)(_reason(repository, error))


@functools.lru_cache(maxsize=256)
def packed(repository: str, kind: str = "") -> Path:
    """The header of a repository's GGUF file, as a file whose weights are a hole; of a file in parts, of all of them.

    ``kind``: which, by the type in its name (Q8_0); "" for Q4_K_M as llama.cpp takes it, or the only one there is.
    Raises FileError with one reason (as `configuration`; no such file, with those there are), LimitError for a header
    over 64 MiB.
    """
    try:
        import huggingface_hub as library
    except ImportError as error:
        raise FileError(_INSTALL) from error
    if library.constants.HF_HUB_OFFLINE:
        raise FileError("headers of GGUF files are in no cache, and HF_HUB_OFFLINE keeps it from asking the hub")
    try:
        listed = library.HfApi().model_info(repository, timeout=_TIMEOUT_S).siblings or ()
        names = _packed_files(repository, sorted(one.rfilename for one in listed), kind)
        folder = Path(tempfile.mkdtemp(prefix="perfpass-gguf-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        paths = [folder / Path(name).name for name in names]
        for name, path in zip(names, paths, strict=True):
            _fetch_header(library, library.hf_hub_url(repository, name), path)
        return paths[0]
    except PerfPassError:
        raise
    except Exception as error:
        raise _refused(library, repository, error) from error


def _packed_files(repository: str, names: list[str], kind: str) -> list[str]:
    """The file that is meant, or all of its parts. Raises FileError where none is, or several are."""
    # Projectors of images (mmproj) and matrices of importance are no models.
    files = [n for n in names if n.lower().endswith(".gguf") and not re.search(r"mmproj|imatrix", n, re.IGNORECASE)]
    first = [n for n in files if _FIRST_SHARD.search(n) or not re.search(r"-\d{5}-of-\d{5}\.gguf$", n)]
    if not first:
        raise NoConfigurationError(f"{repository} has no GGUF file of a model")
    wanted = [n for n in first if re.search(rf"(^|[-._/]){re.escape(kind or _USUAL_TYPE)}([-._/]|$)", n, re.IGNORECASE)]
    if not wanted and not kind and len(first) == 1:
        wanted = first
    if len(wanted) != 1:
        has = ", ".join(Path(n).name for n in first[:12])
        raise FileError(
            f"{repository} has {len(wanted) or 'no'} GGUF files{f' of type {kind}' if kind else ''}: {has}; name the "
            f"type of one behind a colon, as {repository}:{_USUAL_TYPE}"
        )
    if (part := _FIRST_SHARD.search(wanted[0])) is None:
        return wanted
    begin, whole = wanted[0][: part.start()], part[1]
    return [n for n in files if n.startswith(begin) and n.endswith(f"-of-{whole}.gguf")]


def _fetch_header(library: Any, url: str, path: Path) -> None:
    """The beginning of a file, as far as its header goes, with a hole in the place of the rest."""
    size = library.get_hf_file_metadata(url, timeout=_TIMEOUT_S).size or 0
    wanted = _FIRST_BYTES
    while True:
        headers = {**library.utils.build_hf_headers(), "range": f"bytes=0-{wanted - 1}"}
        answer = library.utils.get_session().get(url, headers=headers, timeout=_TIMEOUT_S)
        library.utils.hf_raise_for_status(answer)
        write_whole(path, answer.content[:wanted])
        if gguf.is_whole(path) or wanted >= size:
            break
        if wanted >= _MOST_HEADER_BYTES:
            raise LimitError(f"{url}: a header of over {_MOST_HEADER_BYTES} bytes, the limit of a GGUF file of a hub")
        wanted *= 4
    os.truncate(path, max(size, path.stat().st_size))


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


@functools.lru_cache(maxsize=256)
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


@functools.lru_cache(maxsize=256)
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
