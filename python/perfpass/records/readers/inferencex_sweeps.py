"""What InferenceX ran, by its own list of sweeps: workers, splits and draft tokens, which aiconfigurator's table leaves
out of the runs that it collected there.

`inferencex_sweeps.csv` holds facts of `.github/configs/nvidia-master.yaml` (SemiAnalysisAI/InferenceX at 0004cf5f of
spring 2026, dukebw/InferenceMAX at 00e77d0b of December 2025; Apache-2.0): for each point of a sweep the draft tokens
of multi-token prediction, and workers as "5xtep8": number, what attention (t: tensor-parallel, d: data-parallel) and
experts (e: one group each, else split) are spread over, GPUs of one; and the requests that one rank of a decode
worker's attention runs at most (`DECODE_MAX_BATCH_SIZE`, or "batch32" in the name of the server's file; 0: not stated,
as of SGLang). Of SGLang the list says that it drafts, not how many: two, as in the scripts of its servers on one node.
The runs with TensorRT-LLM that multiply requests by decode workers (H200; GB200 until December 2025) are listed by the
product.

Kimi-K2.5 and GLM-5 with TensorRT-LLM on GB200 are no part of that list yet. Their points are facts of the files that
NVIDIA started their servers with (NVIDIA/srt-slurm, numbers alone: recipes/kimi2.5/trtllm_dynamo/disagg/gb200Nvfp4 at
0858f390, recipes/GLM5/disagg/trtllm_dynamo/gb200_nvfp4 at 10b37984 and 80ad33f4 of spring 2026, those without drafts),
whose loads are those of the runs one for one; four workers of eight GPUs run GLM-5's 4, 180 and 360 requests as all its
other servers of that width do. Where one file runs several loads its limit is known of the largest: runs of March had
a smaller one for each load below (15 requests waited half an answer for a place), those of April had the file's.

A run belongs to a point of its lengths, requests and GPUs. Where several have these,
- runs of one measurement in several collections belong to the points that all of them allow;
- of a sweep (one image and day) whose certain points all draft, or none, so do the others;
- as many measurements as points are told apart by their times per token (``by_times``): drafts are faster, then fewer
  requests a GPU. What is left stays unknown.
A run that states its workers itself has the drafts and the decoders' limit of the same measurement in another
collection, or those that all points with its workers have.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas

_TABLE = Path(__file__).with_name("inferencex_sweeps.csv")
_POINT = ("family", "device", "runtime", "precision", "input_tokens", "output_tokens", "requests")
_LAYOUT = ("prefill", "decode", "draft_tokens", "decode_batch")
_SETTINGS = ("draft_tokens", "decode_batch", "by_times")


def layout(text: str) -> tuple[int, dict[str, int]]:
    """Workers, and the parallel degrees of one of them, of a layout as "5xtep8"."""
    workers, attention, experts, gpus = re.fullmatch(r"(\d+)x([td])(e?)p(\d+)", text).groups()  # type: ignore[union-attr]
    width = int(gpus)
    tensor, data = (width, 1) if attention == "t" else (1, width)
    expert = width if experts else 1
    degrees = {"tensor_parallel": tensor, "pipeline_parallel": 1, "data_parallel": data}
    return int(workers), degrees | {"moe_tensor_parallel": width // expert, "moe_expert_parallel": expert}


def _gpus(text: str) -> int:
    workers, degrees = layout(text)
    return workers * degrees["tensor_parallel"] * degrees["data_parallel"]


@lru_cache(maxsize=1)
def points() -> pandas.DataFrame:
    """Every point of every sweep: `_POINT`, `_LAYOUT`, and GPUs of a worker and of all."""
    import pandas

    table = pandas.read_csv(_TABLE)
    table["requests"] = table.requests.astype(str).str.split()
    table = table.explode("requests", ignore_index=True).astype({"requests": int}).drop_duplicates()
    prefill, decode = table.prefill.map(_gpus), table.decode.map(_gpus)
    workers = {side: table[side].map(lambda text: layout(text)[0]) for side in ("prefill", "decode")}
    return table.assign(
        prefill_gpus=prefill // workers["prefill"],
        decode_gpus=decode // workers["decode"],
        gpus=prefill + decode,
        load=table.requests / decode,
    ).reset_index(drop=True)


def found(rows: pandas.DataFrame) -> pandas.DataFrame:
    """[N] of ``rows``: ``prefill`` and ``decode`` ("" where unknown), ``draft_tokens`` (-1), ``decode_batch`` (0) and
    ``by_times``.

    ``rows``: `_POINT`, whether they are ``open`` (disaggregated, workers not stated), GPUs of a worker as stated
    (``prefill_gpus``, ``decode_gpus``; below 2 says nothing) or of ``all_gpus`` (-1), ``image`` and ``day`` of the run,
    ``measurement`` and ``tpot_ms``.
    """
    out = rows.assign(prefill="", decode="", draft_tokens=-1, decode_batch=0, by_times=False)[[*_LAYOUT, "by_times"]]
    left = {row: _candidates(rows.loc[row]) for row in rows.index[rows.open]}
    left = {row: chosen for row, chosen in left.items() if len(chosen)}
    for same in _groups(rows, left, ["measurement"]):
        shared = set.intersection(*(set(left[row]) for row in same)) or set(left[same[0]])
        left.update({row: tuple(sorted(shared)) for row in same})
    for sweep in _groups(rows, left, ["family", "device", "runtime", "precision", "image", "day"]):
        _draft_alike(rows, sweep, left)
        for same in _groups(rows.loc[sweep].assign(left=[left[row] for row in sweep]), left, [*_POINT[4:], "left"]):
            for row, point, by_times in _told_apart(rows, same, left):
                out.loc[row, list(_LAYOUT)] = points().loc[point, list(_LAYOUT)].to_list()
                out.loc[row, "by_times"] = by_times
    return out


def with_stated(rows: pandas.DataFrame, swept: pandas.DataFrame) -> pandas.DataFrame:
    """``swept``, as `found` of ``rows``, with drafts and decoders' limits of the rows that are ``stated``, too: runs of
    InferenceX that say their workers, in columns as records have.
    """
    import pandas

    table, out = points(), swept.copy()
    shapes = [table[side].map(_shape) for side in ("prefill", "decode")]
    known = swept.assign(measurement=rows.measurement)[swept.draft_tokens >= 0]
    for row in rows.loc[rows.stated].itertuples():
        own = known[known.measurement == row.measurement][[*_SETTINGS]].drop_duplicates()
        if own.empty:
            fits = np.logical_and.reduce([table[name] == getattr(row, name) for name in _POINT])
            for shape, side in zip(shapes, ("prefill_", ""), strict=True):
                workers = getattr(row, f"{side or 'decode_'}workers")
                degrees = (getattr(row, f"{side}tensor_parallel"), getattr(row, f"{side}data_parallel"))
                fits &= shape == (workers, *degrees)
            own = table[fits].assign(by_times=False)[[*_SETTINGS]].drop_duplicates()
        if len(own) == 1:
            out.loc[row.Index, [*_SETTINGS]] = pandas.Series(own.iloc[0].to_dict())
    return out


def _shape(text: str) -> tuple[int, int, int]:
    workers, degrees = layout(text)
    return workers, degrees["tensor_parallel"], degrees["data_parallel"]


def _candidates(row: pandas.Series) -> tuple[int, ...]:
    table = points()
    fits = np.logical_and.reduce([table[name] == row[name] for name in _POINT])
    if row.all_gpus > 0:
        fits &= table.gpus == row.all_gpus
    elif row.decode_gpus > 1:
        fits &= (table.decode_gpus == row.decode_gpus) & (table.prefill_gpus == row.prefill_gpus)
    return tuple(np.flatnonzero(fits))


def _groups(rows: pandas.DataFrame, left: dict[int, tuple[int, ...]], by: list[str]) -> list[list[int]]:
    kept = rows.loc[[row for row in rows.index if row in left]]
    return [list(part.index) for _, part in kept.groupby(by, sort=True, dropna=False)]


def _draft_alike(rows: pandas.DataFrame, sweep: list[int], left: dict[int, tuple[int, ...]]) -> None:
    """Leaves drafts, or none, to all of a sweep whose certain points have the one alone, and have room for all runs."""
    drafts = points().draft_tokens.to_numpy() > 0
    certain = {bool(drafts[left[row][0]]) for row in sweep if len(set(drafts[list(left[row])])) == 1}
    if len(certain) != 1:
        return
    kept = {row: tuple(p for p in left[row] if drafts[p] in certain) for row in sweep}
    for same in _groups(rows.loc[sweep].assign(left=[left[row] for row in sweep]), left, [*_POINT[4:], "left"]):
        if rows.measurement[same].nunique() > max(1, len(kept[same[0]])):
            return
    left.update({row: chosen for row, chosen in kept.items() if chosen})


def _told_apart(
    rows: pandas.DataFrame, same: list[int], left: dict[int, tuple[int, ...]]
) -> list[tuple[int, int, bool]]:
    """Rows, their points, and whether times told them; none where they cannot be told apart."""
    chosen = points().loc[list(left[same[0]])].drop_duplicates(list(_LAYOUT))
    if len(chosen) == 1:
        return [(row, chosen.index[0], False) for row in same]
    fastest = rows.loc[same].groupby("measurement").tpot_ms.min().sort_values(kind="stable")
    if len(fastest) != len(chosen):
        return []
    order = chosen.assign(slow=-chosen.draft_tokens).sort_values(["slow", "load"], kind="stable").index
    point = dict(zip(fastest.index, order, strict=True))
    return [(row, point[rows.measurement[row]], True) for row in same]
