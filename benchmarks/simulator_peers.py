"""Vidur and Dynamo's replay on the files that perfpass writes for them: their own time of a batch beside ours.

    python benchmarks/simulator_peers.py --peer PEER_VENV/bin/python [--device h100]

PEER_VENV is an environment of its own with `pip install numpy pandas scikit-learn fasteners huggingface-hub pydantic
joblib` and, without their dependencies, `vidur==0.0.26 ai-dynamo==1.6.1 ai-dynamo-runtime==1.6.1`. Vidur trains its own
regression on mlp.csv and attention.csv and prices batches; Dynamo's replay runs a closed loop on the table of steps;
joblib reads the bundle of SGLang's simulator, whose own regressor answers (perfpass must be importable there). Nothing
of them is imported here.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

BATCHES = ((((512, 0),), ()), ((), (1024,) * 32), (((256, 0),), (2048,) * 16))  # chunks and decodes' contexts
CLOSED = {"concurrency": 16, "prompt": 1024, "answer": 128, "requests": 64}


def vidur_seconds(folder: Path) -> list[float]:
    """Runs in the peer's environment: seconds of BATCHES on one GPU by Vidur's linear regression."""
    from vidur._native.entities import Batch  # type: ignore[import-not-found]
    from vidur.config.config import (  # type: ignore[import-not-found]
        CacheConfig,
        LinearRegressionExecutionTimePredictorConfig,
        ReplicaConfig,
    )
    from vidur.execution_time_predictor.linear_regression_execution_time_predictor import (  # type: ignore[import-not-found]
        LinearRegressionExecutionTimePredictor,
    )

    class Predictor(LinearRegressionExecutionTimePredictor):  # type: ignore[misc]
        """Its profiles are files here and not a data set of a hub."""

        def _get_input_files(self) -> tuple[str, ...]:
            names = ("mlp.csv", "attention.csv", "allreduce.csv", "send_recv.csv")
            return tuple(str(next(folder.rglob(name))) for name in names)

        def _get_kv_parallel_communication_time(self, batch: Any) -> float:
            return 0.0  # the release declares it and has no body for it

        def _load_predictions_from_hf(self) -> None:
            raise FileNotFoundError("trained anew")

    config = LinearRegressionExecutionTimePredictorConfig(
        no_cache=True,
        cache_dir=str(folder / "cache"),
        prediction_max_tokens_per_request=8192,
        num_training_job_threads=1,
        polynomial_degree=[1, 2],
        use_native_execution_time_predictor=True,
    )
    replica = ReplicaConfig(model_name="meta-llama/Llama-3-8B", num_pipeline_stages=1, tensor_parallel_size=1)
    predictor = Predictor(predictor_config=config, replica_config=replica, cache_config=CacheConfig(block_size=16))
    found = []
    for chunks, contexts in BATCHES:
        new = [n for n, _ in chunks] + [1] * len(contexts)
        cached = [past + n for n, past in chunks] + list(contexts)
        batch = Batch(0, len(new), new, cached, [0] * len(new), 0)
        found.append(predictor._native_execution_time_predictor.get_execution_time_batch(batch, 0).total_time)
    return found


def dynamo_ms(folder: Path) -> dict[str, float]:
    """Runs in the peer's environment: means of a closed loop on the table of steps."""
    from dynamo.replay import run_synthetic_trace_replay  # type: ignore[import-not-found]

    timing = {"type": "external", "provider": "dynamo_profile", "config": {"path": str(folder / "steps.npz")}}
    engine = {"backend": "vllm", "num_gpu_blocks": 16384, "block_size": 16, "timing_model": timing}
    report = run_synthetic_trace_replay(
        CLOSED["prompt"],
        CLOSED["answer"],
        CLOSED["requests"],
        extra_engine_args={"engine": engine},
        replay_concurrency=CLOSED["concurrency"],
    )
    return {name: report.summary[name] for name in ("mean_ttft_ms", "mean_tpot_ms", "output_throughput_tok_s")}


def sglang_seconds(folder: Path) -> list[float]:
    """Runs in the peer's environment: seconds of BATCHES by what joblib reads from the bundle."""
    import math

    import joblib  # type: ignore[import-not-found]

    bundle, rows = joblib.load(folder / "steps.pkl"), []
    for chunks, contexts in BATCHES:
        e, p = zip(*[*chunks, *((1, past) for past in contexts)], strict=True)
        ep, attended = sum(a * b for a, b in zip(e, p, strict=True)), sum(
            a * (b + a / 2) for a, b in zip(e, p, strict=True)
        )  # fmt: skip
        rows.append(
            [len(e), sum(e), max(e), min(e), sum(p), max(p), min(p), ep, sum(a * a for a in e), sum(b * b for b in p),
             attended, sum(e) * max(p), math.log1p(sum(p)), math.log1p(attended), len(e) * sum(e), max(p) - min(p),
             int(max(e) == 1), int(max(e) > 1)]
        )  # fmt: skip
    return [float(s) for s in bundle["model"].predict(rows)]


PEERS: dict[str, Any] = {"vidur": vidur_seconds, "dynamo": dynamo_ms, "sglang": sglang_seconds}


def main() -> int:
    """Writes the files, asks the peers and prints theirs beside ours."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", help="the interpreter of PEER_VENV")
    parser.add_argument("--model", default="llama-3-8b")
    parser.add_argument("--device", default="h100")
    parser.add_argument("--answer", nargs=2, metavar=("PEER", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.answer:
        print(json.dumps(PEERS[options.answer[0]](Path(options.answer[1]))))
        return 0
    from perfpass import predict_llm
    from perfpass.llm import EngineBatch
    from perfpass.simulators import Deployed, files

    asked = predict_llm(
        options.model,
        options.device,
        input_length=CLOSED["prompt"],
        output_length=CLOSED["answer"],
        concurrency=CLOSED["concurrency"],
    )
    one = Deployed(asked.asked.model, asked.asked.device, asked.asked.serving)
    ours = [float(one.steps.seconds(EngineBatch.of(*batch))[0]) for batch in BATCHES]
    print(f"ours: steps {[f'{1e3 * s:.2f}' for s in ours]} ms; loop TTFT {asked.ttft_ms}, TPOT {asked.tpot_ms}")
    for peer in PEERS:
        with tempfile.TemporaryDirectory() as folder:
            for name, content in files(one, peer).items():
                path = Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content if isinstance(content, bytes) else content.encode())
            command = [options.peer or sys.executable, __file__, "--answer", peer, folder]
            found = subprocess.run(command, capture_output=True, text=True, check=False)
        print(f"{peer}: {found.stdout.strip().splitlines()[-1] if found.returncode == 0 else found.stderr[-1500:]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
