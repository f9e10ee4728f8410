"""The formats that a layout is written in, by the names of the tools that read them."""

from __future__ import annotations

FORMATS: dict[str, str] = {
    "nvidia-smi": "driver",
    "mig-parted": "driver",
    "k8s": "kubernetes",
    "dra": "kubernetes",
    "kserve": "kubernetes",
    "triton": "triton",
    "vllm": "engines",
    "sglang": "engines",
    "llama.cpp": "engines",
    "slurm": "slurm",
}
