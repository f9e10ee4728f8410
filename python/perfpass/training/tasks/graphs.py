"""The operator graphs behind the records, at any batch size, traced from the libraries once and kept in the cache."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from perfpass.errors import PerfPassError, UnsupportedError
from perfpass.graph import OpGraph
from perfpass.records import graph_cache
from perfpass.training.published.llm_trees import graphs as language
from perfpass.whole_file import write_whole

# (library, network, pixels or tokens)
Key = tuple[str, str, int]
_KEPT = 256


def _is_stored(key: Key) -> bool:
    return language.is_stored(*key[:2]) if key[0] in language.MODES else graph_cache.path(*key).is_file()


def _trace(key: Key) -> tuple[Key, str]:
    from perfpass.records.build import outside as build_outside
    from perfpass.records.build import vision_models

    try:
        if key[0] in language.MODES:
            language.ensure(*key[:2])
            return key, ""
        graph_cache.save(graph_cache.path(*key), *build_outside.traces(*key), vision_models.BATCHES)
    except PerfPassError as error:
        return key, str(error)
    return key, ""


def _traced(keys: list[Key], jobs: int) -> Iterator[tuple[Key, str]]:
    if jobs == 1:
        yield from map(_trace, keys)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, _quiet_worker) as pool:
        yield from pool.imap_unordered(_trace, keys, chunksize=2)


def _quiet_worker() -> None:
    import torch

    os.nice(10)
    torch.set_num_threads(1)


def _refused_path() -> Path:
    """Networks that these versions of the libraries cannot trace, with the reasons."""
    versions = []
    for name in ("torch", "torchvision", "timm", "transformers"):
        try:
            versions.append(metadata.version(name).partition("+")[0])
        except metadata.PackageNotFoundError:
            versions.append("none")
    return graph_cache.directory() / f"refused-{'-'.join(versions)}.json"


def _refused() -> dict[Key, str]:
    try:
        entries = json.loads(_refused_path().read_text(encoding="utf-8"))
        return {(str(source), str(model), int(size)): str(reason) for source, model, size, reason in entries}
    except (OSError, ValueError, TypeError):
        return {}  # a cache: what cannot be read is found out again


def _note_refused(failures: dict[Key, str]) -> None:
    path = _refused_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    entries = [[*key, reason] for key, reason in sorted((_refused() | failures).items())]
    write_whole(path, json.dumps(entries))


class Graphs:
    """Graphs by key and batch size. Networks that could not be traced are in ``failures``, with the reason."""

    def __init__(self) -> None:
        self.failures: dict[Key, str] = _refused()
        self._stored: OrderedDict[Key, graph_cache.Stored] = OrderedDict()

    def ensure(self, keys: Iterable[Key], *, jobs: int = 2, quiet: bool = False) -> list[Key]:
        """Trace what the cache lacks; the keys that can be read, sorted. Needs the libraries only for missing ones.

        One job traces in this process, more in processes of their own, which load the libraries again.
        """
        wanted = sorted(set(keys))
        missing = [k for k in wanted if not _is_stored(k) and k not in self.failures]
        if missing:
            for done, (key, reason) in enumerate(_traced(missing, min(jobs, len(missing))), 1):
                if reason:
                    self.failures[key] = reason
                if not quiet and (done % 100 == 0 or done == len(missing)):
                    print(f"traced {done} of {len(missing)}, {len(self.failures)} failed", file=sys.stderr)
            _note_refused({key: self.failures[key] for key in missing if key in self.failures})
        return [k for k in wanted if k not in self.failures]

    def at(self, key: Key, batch: int) -> OpGraph:
        """The graph of a network at a batch size. Raises UnsupportedError where it could not be traced."""
        if key[0] in language.MODES:
            return language.at(*key, batch)
        if key in self._stored:
            self._stored.move_to_end(key)
        else:
            if not graph_cache.path(*key).is_file() and not self.ensure([key], jobs=1, quiet=True):
                raise UnsupportedError(f"{'/'.join(map(str, key))} cannot be traced: {self.failures[key]}")
            self._stored[key] = graph_cache.Stored.read(graph_cache.path(*key))
            if len(self._stored) > _KEPT:
                self._stored.popitem(last=False)
        return self._stored[key].at(batch)
