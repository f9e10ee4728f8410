"""aiconfigurator's estimate and ours on the same measured serving runs: who errs how much, and what is refused.

    python benchmarks/serving_peer.py --peer PEER_VENV/bin/python [--rows 500] [--answers FILE]

PEER_VENV is an environment of its own with `pip install aiconfigurator==0.12.0`; nothing of it is imported here. Rows:
aggregated runs of data/records/serving.parquet, 500 drawn at random (seed 0), of which the first --rows are asked. The
peer gets the corrected columns (docs/reference/records.md),
the names under which it ships configurations offline, and where it
refuses the stated precision a second try with its own default. It answers from its default database, measured on the
devices of these very runs; ours are out of fold (random measurements) and, harder, with the row's model or device held
out. Answers are kept in FILE as they come, so that a stopped run goes on.

With --choices the rows are those among which something is chosen (models and lengths of 15 runs or more, 24 of each),
and all answers in FILE become data/results/peers/aiconfigurator.csv, which `perfpass evaluate --area choose` grades.
With --stored these answers are graded, and nothing is asked.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "serving_peer.json"
CHOICES = Path(__file__).parents[1] / "data" / "results" / "peers" / "aiconfigurator.csv"
_FEWEST, _MOST = 15, 24  # runs of a model and its lengths that are asked for choices
SYSTEMS = {
    "h100-sxm5-80gb": "h100_sxm",
    "h200-sxm-141gb": "h200_sxm",
    "b200-sxm-180gb": "b200_sxm",
    "b300-sxm-288gb": "b300_sxm",
    "gb200-186gb": "gb200",
}
# Repositories of equal architecture whose configuration the peer ships.
NAMES = {
    "zhipuai/GLM-5": "zai-org/GLM-5",
    "meta-llama/Llama-3.1-8B-Instruct": "meta-llama/Meta-Llama-3.1-8B",
    "nvidia/Llama-3.1-8B-Instruct-FP8": "meta-llama/Meta-Llama-3.1-8B",
    "nvidia/Qwen3-32B-NVFP4": "Qwen/Qwen3-32B",
    "nvidia/DeepSeek-R1-NVFP4": "deepseek-ai/DeepSeek-R1",
    "nvidia/DeepSeek-V3.1-NVFP4": "deepseek-ai/DeepSeek-V3",
}


def answer_as_peer() -> None:
    """Runs in the peer's environment: a question per line of stdin, an answer per line of stdout."""
    import logging
    import os

    from aiconfigurator.cli.api import cli_estimate  # type: ignore[import-not-found]

    logging.disable(logging.CRITICAL)
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what the peer prints is no answer
    for line in sys.stdin:
        question = json.loads(line)
        key, quantized = question.pop("key"), question.pop("quantized")
        answer: dict[str, Any] = {"key": key}
        for attempt, more in (("stated", quantized), ("default", {})):
            try:
                found = cli_estimate(**question, **more)
                answer |= {"ttft_ms": float(found.ttft), "tpot_ms": float(found.tpot), "precision": attempt}
                break
            except Exception as error:
                answer[f"refusal_{attempt}"] = f"{type(error).__name__}: {str(error)[:160]}"
        out.write(json.dumps(answer) + "\n")


def sample(records: Any, rows: int) -> Any:
    """The first ``rows`` of 500 random records that the source calls aggregated and that are."""
    drawn = records[records.run.str.contains("_agg_")].sample(500, random_state=0)
    return drawn[~drawn.disaggregated][:rows]


def choices(records: Any) -> Any:
    """Aggregated runs of models and lengths that have enough of them to choose from, each configuration once."""
    kept = records[~records.disaggregated].drop_duplicates("configuration").sample(frac=1, random_state=0)
    alike = ["family", "input_tokens", "output_tokens"]
    kept = kept[kept.groupby(alike).run.transform("size") >= _FEWEST]
    return kept.groupby(alike).head(_MOST).sort_values(["device", "runtime", "runtime_version", "model"])


def write_choices(answers: dict[str, dict[str, Any]]) -> None:
    """The answers as a table: run, ms, and at which precision the peer answered."""
    import pandas

    found = [(key, a["ttft_ms"], a["tpot_ms"], a["precision"]) for key, a in sorted(answers.items()) if "tpot_ms" in a]
    table = pandas.DataFrame(found, columns=["run", "ttft_ms", "tpot_ms", "precision"])
    CHOICES.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(CHOICES, index=False, float_format="%.6g")
    print(f"{len(answers)} asked, {len(table)} answered")


def read_choices() -> dict[str, dict[str, Any]]:
    """The table that `write_choices` wrote, by run."""
    import pandas

    return {str(row["run"]): row for row in pandas.read_csv(CHOICES).to_dict("records")}


def question(row: Any) -> dict[str, Any]:
    """What the peer is asked about a record."""
    data = max(1, row.data_parallel)
    quantized = {"gemm_quant_mode": row.gemm_quantization, "moe_quant_mode": row.moe_quantization}
    return {
        "key": row.run,
        "model_path": NAMES.get(row.model, row.model),
        "system_name": SYSTEMS[row.device],
        "mode": "agg",
        "backend_name": row.runtime,
        "isl": int(row.input_tokens),
        "osl": int(row.output_tokens),
        "batch_size": max(1, round(row.concurrency / data)),
        "tp_size": max(1, int(row.tensor_parallel)),
        "pp_size": 1,
        "attention_dp_size": int(data),
        "moe_tp_size": max(1, int(row.moe_tensor_parallel)),
        "moe_ep_size": max(1, int(row.moe_expert_parallel)),
        "quantized": {} if row.gemm_quantization == "bf16" else quantized,
    }


def ask(python: str, questions: list[dict[str, Any]], answers: Path) -> dict[str, dict[str, Any]]:
    """The peer's answer to each question, by key; those already in ``answers`` are not asked again."""
    known: dict[str, dict[str, Any]] = {}
    if answers.exists():
        known = {a["key"]: a for a in map(json.loads, answers.read_text().splitlines())}
    rest = [q for q in questions if q["key"] not in known]
    if rest:
        lines = "".join(json.dumps(q) + "\n" for q in rest)
        with answers.open("a") as out:
            subprocess.run([python, __file__, "--as-peer"], input=lines, text=True, stdout=out, check=True)
        return ask(python, questions, answers)
    return known


def main() -> None:
    """Asks the peer, predicts out of fold, prints and stores both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", default="", help="Python of the peer's environment")
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--answers", type=Path, default=Path("serving_peer_answers.jsonl"))
    parser.add_argument("--choices", action="store_true", help="ask what choices are made among")
    parser.add_argument("--stored", action="store_true", help="grade the stored answers, without the peer")
    parser.add_argument("--as-peer", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.as_peer:
        answer_as_peer()
        return

    import numpy as np

    from perfpass.training.metrics import absolute_percentage_errors
    from perfpass.training.serving.dataset import load
    from perfpass.training.serving.held_out import held_out

    data = load()
    if options.choices:
        asked = [question(row) for row in choices(data.rows)[: options.rows].itertuples()]
        write_choices(ask(options.peer, asked, options.answers))
        return
    stored = read_choices() if options.stored else {}
    table = data.rows[data.rows.run.isin(stored)] if stored else sample(data.rows, options.rows)
    table = table.drop_duplicates("run")
    rows = table.index.to_numpy()
    found = stored or ask(options.peer, [question(row) for row in table.itertuples()], options.answers)
    theirs = [found[key] for key in table.run]
    answered = np.array(["tpot_ms" in a for a in theirs])
    stated = np.array([a.get("precision") == "stated" for a in theirs])
    result: dict[str, Any] = {
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "peer": "aiconfigurator 0.12.0, default database",
        "rows": len(rows),
        "refused": int((~answered).sum()),
        "refused_at_the_stated_precision": int((~stated).sum()),
        "errors": [],
    }
    ours = {level: held_out(data, level) for level in ("measured", "model unseen", "device unseen")}
    for target in ("tpot", "ttft"):
        y = data.measured_s(target)[rows]
        methods = {"aiconfigurator": np.array([a.get(f"{target}_ms", np.nan) for a in theirs]) / 1e3}
        methods |= {f"perfpass, {level}": held.seconds[target][rows] for level, held in ours.items()}
        for name, predicted in methods.items():
            for judged_on, kept in (("rows that the peer answers", answered), ("all rows", np.ones(len(rows), bool))):
                if not np.isfinite(predicted[kept]).all():
                    continue
                ape = 100 * absolute_percentage_errors(predicted[kept], y[kept])
                result["errors"].append(
                    {
                        "metric": target,
                        "method": name,
                        "judged_on": judged_on,
                        "rows": int(kept.sum()),
                        "mape_pct": round(float(ape.mean()), 2),
                        "median_ape_pct": round(float(np.median(ape)), 2),
                        "p90_ape_pct": round(float(np.quantile(ape, 0.9)), 2),
                    }
                )
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
