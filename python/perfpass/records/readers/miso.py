"""boringlee24/socc22-miso: training iterations of TensorFlow jobs alone in one MIG instance of an A100 40 GB."""

from __future__ import annotations

from pathlib import Path

from perfpass.records.schema import Reading
from perfpass.records.sources import table_of


def read(shared: Path) -> Reading:
    """Records of kind ``training``; ``latency_ms`` is the median iteration after the first.

    ``power_w`` is that of the same job on the whole GPU and stands in the rows of the largest profile alone.
    """
    import pandas

    reading = Reading("miso")
    table = table_of(shared, "miso", "mig_training.csv")
    whole = table.mig_profile == "7g.40gb"
    reading.add(
        "training",
        pandas.DataFrame(
            {
                "licence": "MIT",
                "run": "mig_training",
                "device": table.device,
                "n_devices": 1,
                "mig_profile": table.mig_profile,
                "runtime": "tensorflow",
                "precision": "fp32",
                "mode": "training",
                "batch": table.batch_size,
                "timing": "on_train_batch_begin to on_train_batch_end, first iteration apart",
                "model": table.model,
                "family": table.model,
                "dataset": table.model.map({"resnet": "cifar10", "mobilenet": "cifar10", "bert": "imdb"}).fillna(""),
                "optimizer": "adam",
                "latency_ms": table.iteration_median_s * 1e3,
                "latency_p10_ms": table.iteration_p10_s * 1e3,
                "latency_p90_ms": table.iteration_p90_s * 1e3,
                "n_samples": table.n_iterations,
                "power_w": table.full_gpu_power_w.where(whole),
                "caveats": "fp32_products_may_run_in_tf32",
            }
        ),
    )
    return reading
