"""Makes the shipped pool of measured candidates from what benchmarks/tuning_collect.py measured.

python benchmarks/tuning_pool.py DIR tvm_perfpass/cost_model/pool
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

os.environ["TOPHUB_LOCATION"] = "NONE"

import tuning_workloads
import xgboost

from perfpass.devices.host import host
from tvm_perfpass.cost_model.hardware import detect
from tvm_perfpass.cost_model.ranking import Ranker
from tvm_perfpass.cost_model.records import read_records


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    hardware, earlier = detect(1), {}
    for name in tuning_workloads.OTHERS:
        if not (options.folder / name / "facts.json").exists():
            continue
        (task,) = read_records(options.folder / name, hardware).values()
        earlier[name] = task
        print(name, len(task.seconds), f"{task.seconds.min() * 1e3:.3f} ms", flush=True)
    facts = json.loads((options.folder / next(iter(earlier)) / "facts.json").read_text())
    notes = {
        "measured_on": host().name,
        "target": facts["target"],
        "threads": 1,
        "software": {"tvm": "0.19", "xgboost": xgboost.__version__},
        "how": "benchmarks/tuning_collect.py: MetaSchedule, half random, half by TVM's model; median of 3 x 5 ms",
        "licence": "Apache-2.0",
    }
    Ranker(hardware, earlier).save(options.output, notes, trees=False)
    print(sum(path.stat().st_size for path in options.output.iterdir()), "bytes")


if __name__ == "__main__":
    main()
