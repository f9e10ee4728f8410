"""Ranks of one machine over gloo, each tracing the same kinds of steps; what they find as JSON."""

from __future__ import annotations

import json
import multiprocessing
import os
import tempfile
from collections.abc import Callable
from typing import Any

import torch


def _rank(rank: int, ranks: int, path: str, found: Callable[[str], dict[str, Any]], kinds: list[str], answers) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=ranks)
    answers.put([{"kind": kind, "rank": rank, **found(kind)} for kind in kinds])
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def print_traced(found: Callable[[str], dict[str, Any]], kinds: list[str], ranks: int) -> None:
    """Prints what ``found`` says of every kind on every rank, as a JSON list."""
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        answers = fork.SimpleQueue()
        store = os.path.join(folder, "store")
        started = [fork.Process(target=_rank, args=(r, ranks, store, found, kinds, answers)) for r in range(ranks)]
        for one in started:
            one.start()
        print(json.dumps([row for _ in started for row in answers.get()]))
        for one in started:
            one.join(60)
