"""Training records from outside the vision corpus: what their readers keep, refuse and say of them."""

from __future__ import annotations

import pytest

from perfpass.records import schema, tables
from perfpass.records.location import data_directory
from perfpass.records.readers import milabench, miso

_MILABENCH = """device,source_file,bench,batch_size,cpu_workers,memory_mib,throughput_items_s,unix_time
NVIDIA H100,a.yaml,resnet50-noio,64,8,9000,3000,1
NVIDIA H100,a.yaml,resnet50-noio,128,8,8000,3500,2
NVIDIA H100,a.yaml,convnext_large-tf32-fp16,64,8,30000,600,3
NVIDIA H100,a.yaml,diffusion-gpus,8,8,50000,20,4
NVIDIA H100,a.yaml,llm-chat-completion,8,8,50000,20,5
,a.yaml,resnet50,64,8,9000,1000,6
"""


def test_milabench_rows_say_what_is_known_of_them(tmp_path):
    (tmp_path / "milabench").mkdir()
    (tmp_path / "milabench" / "scaling.csv").write_text(_MILABENCH)
    reading = milabench.read(tmp_path)
    rows = reading.tables["training"].set_index("run")
    assert dict(reading.refused) == {"an inference benchmark": 1, "no device stated": 1}
    assert list(rows.model) == ["resnet50-noio", "resnet50-noio", "convnext_large", "diffusion-gpus"]
    assert list(rows.precision) == ["amp", "amp", "amp", ""]
    assert list(rows.n_devices) == [1, 1, 1, -1]
    expected = ["", "memory_below_a_smaller_batch", "reads_images_from_disk", "number_of_gpus_not_stated"]
    assert list(rows.caveats) == expected
    assert rows.peak_memory_bytes.iloc[0] == 9000 * 2**20
    assert set(rows.device) == {"h100-sxm5-80gb"}


def test_miso_gives_power_to_the_whole_gpu_alone(tmp_path):
    (tmp_path / "miso").mkdir()
    (tmp_path / "miso" / "mig_training.csv").write_text(
        "device,mig_profile,model,batch_size,n_iterations,iteration_median_s,iteration_p10_s,iteration_p90_s,"
        "full_gpu_power_w\nNVIDIA A100-40GB,7g.40gb,resnet,64,100,0.03,0.02,0.04,94\n"
        "NVIDIA A100-40GB,1g.5gb,resnet,64,100,0.05,0.04,0.06,94\n"
    )
    rows = miso.read(tmp_path).tables["training"].set_index("mig_profile")
    assert list(rows.latency_ms) == pytest.approx([30, 50])
    assert rows.power_w["7g.40gb"] == 94
    assert rows.power_w.isna()["1g.5gb"]


def test_the_stored_rows_and_networks_are_those_that_the_documents_state():
    rows = schema.read(data_directory() / "records" / "training_outside.parquet", "training")
    assert dict(rows.source.value_counts()) == {"milabench": 1615, "miso": 145}
    networks = tables.load(name="outside")
    assert len(networks.graphs) == 12
    bert = networks.table("huggingface", "bert-base/BertForMaskedLM", 512, batch=4)
    # 12 layers of 12 h^2 and 2 h n per token, and the head's h^2 and h v (Kaplan et al., 2020, table 1).
    per_token = 12 * (12 * 768**2 + 2 * 768 * 512) + 768**2 + 768 * 30522
    assert float(bert.macs @ bert.count) == pytest.approx(4 * 512 * per_token, rel=0.001)
