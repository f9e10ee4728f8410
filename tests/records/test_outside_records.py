"""Training records from outside the vision corpus: what their readers keep, refuse and say of them."""

from __future__ import annotations

import numpy as np
import pytest

from perfpass.errors import UnsupportedError
from perfpass.graph.table import operator_table
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


def test_the_network_of_zeus_on_cifar_100_is_the_one_that_its_script_takes():
    """pytorch-cifar100's ShuffleNetV2: a bias in every convolution, and a first layer that keeps the 32 x 32."""
    from perfpass.records import cifar_networks
    from perfpass.records.build.outside import traces
    from perfpass.training.tasks.tasks import POWER_NETWORKS

    key = POWER_NETWORKS["shufflenetv2"]
    assert key == (cifar_networks.SOURCE, "shufflenetv2", 32)
    # 56 convolutions with a weight and a bias each, 56 normalizations, and the classes' product.
    parameters = list(cifar_networks.build("shufflenetv2").parameters())
    assert (len(parameters), sum(p.numel() for p in parameters)) == (2 * 56 + 2 * 56 + 2, 1_360_896)
    stored, traced = tables.load(name="outside").table(*key, batch=2), operator_table(traces(*key)[0])
    assert float(stored.macs @ stored.count) == float(traced.macs @ traced.count) == pytest.approx(2 * 43.7e6, rel=0.01)
    with pytest.raises(UnsupportedError, match="has no 'resnet18' here"):
        cifar_networks.build("resnet18")


def test_an_epoch_of_a_few_steps_tells_the_power_of_training_and_not_the_time_of_a_step():
    from perfpass.training.training_step.questions import questions

    rows = [q for q in questions() if q.source == "zeus" and q.model == "shufflenetv2"]
    assert {q.way.optimizer for q in rows} == {"adadelta", "adam"}
    steps = np.ceil(50_000 / np.array([q.batch for q in rows]))
    timed = np.isfinite([q.measured_s for q in rows])
    assert steps[timed].min() >= 40 > steps[~timed].max()
    assert np.isfinite([q.measured_w for q in rows]).all()
    # Pictures of three planes come from memory that is not pinned.
    assert {q.way.copied_bytes / q.batch for q in rows} == {4.0 * 3 * 32 * 32}


def test_steps_of_tensorflow_are_asked_as_keras_runs_them():
    """MISO: attention in parts, GELU in five kernels, a bias behind each convolution of Keras' ResNet-50, Adam in one
    kernel a tensor, TensorFlow's levels of inference, and no trees, which know PyTorch alone.
    """
    from perfpass.graph import OPERATORS
    from perfpass.training.training_step.questions import questions

    rows = {(q.model, q.batch): q for q in questions() if q.source == "miso"}
    assert {(q.way.runtime, q.way.precision, q.way.optimizer) for q in rows.values()} == {
        ("tensorflow", "tf32", "keras adam")
    }
    run: dict[str, dict[str, float]] = {}
    for model, batch in (("bert", 8), ("resnet", 512), ("mobilenet", 512)):
        step = rows[model, batch].steps.columns
        forward = (step.part == 0) & (step.view == 0)
        run[model] = {
            name: float(step.count[forward & (step.op == OPERATORS.index(name))].sum())
            for name in ("attention", "gelu", "softmax", "conv", "add")
        }
        launches = step.count[step.part == 3].sum()
        assert launches == rows[model, batch].steps.tensors[0]
    assert (run["bert"]["attention"], run["bert"]["softmax"], run["bert"]["gelu"]) == (0, 12, 5 * 12)
    plain = tables.load(name="outside").table("torchvision", "resnet50", 32, 512)
    additions = float(plain.count[plain.op == OPERATORS.index("add")].sum()) + 53  # and of its normalizations' counters
    assert run["resnet"]["add"] == additions + run["resnet"]["conv"] == additions + 53
    assert run["mobilenet"]["add"] < run["resnet"]["add"]
