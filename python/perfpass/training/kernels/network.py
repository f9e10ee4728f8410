"""The constants of collectives between nodes, fitted on all rows and graded with each source left out.

python -m perfpass.training.kernels.network
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perfpass.devices import device
from perfpass.predictors.kernels import network, predictor
from perfpass.records import parquet
from perfpass.records.location import data_directory

if TYPE_CHECKING:
    import pandas

# The source with messages short enough to show a start: NCCL's are of 64 MiB and more.
_OF_START = "deepep"


def rows() -> pandas.DataFrame:
    """Rows of more than one node, with the seconds of NVLink (``inside_s``) and of the cards at full rate (``wire_s``).

    Raises FileError.
    """
    path = data_directory() / "records" / "collectives_between_nodes.parquet"
    table = parquet.read_frame(path, "records of collectives between nodes")
    table = table[table.n_nodes > 1].reset_index(drop=True)
    inside, wire = [], []
    for row in table.itertuples():
        each = row.n_devices // row.n_nodes
        kept = row.message_bytes / (row.n_nodes if row.operation == "all_to_all" else 1)
        found = predictor.load().collective(device(row.device), row.operation, each, kept / 2, "fp16")
        inside.append(float(found.seconds[0]))
        sent = network.carried(row.operation, row.n_devices, row.n_nodes, np.array([row.message_bytes]))
        wire.append(float(sent[0]) / network.CARD_BYTES_S)
    return table.assign(inside_s=inside, wire_s=wire, measured_s=table.latency_ms / 1e3)


def fit(table: pandas.DataFrame) -> tuple[float, float]:
    """Share of the cards' rate and seconds of a start, each with the least sum of squared logarithmic errors.

    Sources count alike: the share is the geometric mean of theirs, each fitted with a start of its own; the start is
    that of `_OF_START` where it is among them.
    """
    found = {name: _fit_one(part) for name, part in table.groupby("source")}
    share = float(np.exp(np.mean([np.log(share) for share, _ in found.values()])))
    start = found[_OF_START][1] if _OF_START in found else next(iter(found.values()))[1]
    return share, start


def _fit_one(table: pandas.DataFrame) -> tuple[float, float]:
    from scipy.optimize import least_squares

    def errors(free: np.ndarray) -> np.ndarray:
        share, start = 1 / (1 + np.exp(-free[0])), np.exp(free[1])
        return np.log(_seconds(table, share, start) / table.measured_s.to_numpy())

    found = least_squares(errors, [1.0, np.log(50e-6)]).x
    return float(1 / (1 + np.exp(-found[0]))), float(np.exp(found[1]))


def _seconds(table: pandas.DataFrame, share: float, start: float) -> np.ndarray:
    return np.maximum(table.inside_s.to_numpy(), table.wire_s.to_numpy() / share) + start


def graded(table: pandas.DataFrame) -> dict[str, np.ndarray]:
    """Predicted over measured time [rows of the source] of each source, with constants of the others; of the start's
    source with its own start and the others' share.
    """
    out = {}
    for name, part in table.groupby("source"):
        share, start = fit(table[table.source != name])
        if name == _OF_START:
            start = _fit_one(part)[1]
        out[str(name)] = _seconds(part, share, start) / part.measured_s.to_numpy()
    return out


if __name__ == "__main__":
    every = rows()
    of_rate, of_start = fit(every)
    print(f"share {of_rate:.3f}, start {1e6 * of_start:.1f} us")
    for source, ratio in graded(every).items():
        error, bias = np.abs(ratio - 1), np.exp(np.mean(np.log(ratio)))
        print(f"{source} left out: {len(ratio)} rows, MAPE {error.mean():.1%}, times {bias:.2f}, {ratio.round(2)}")
