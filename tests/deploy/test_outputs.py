"""What deployment tools read: each file is what the tool's own models, parser or published form take."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from deploy.engine_command import refused
from perfpass.deploy.outputs import files, write_files
from perfpass.deploy.outputs.deployed import IMAGES, dns_label
from perfpass.deploy.outputs.engines import served_from
from perfpass.deploy.outputs.formats import FORMATS
from perfpass.deploy.pack import Fleet, Layout, Model, Option, Pool, Standing, pack_options
from perfpass.devices import device
from perfpass.errors import ArgumentError, FormatError
from perfpass.llm.in_use import SINCE
from perfpass.llm.versions import release
from perfpass.prediction import Interval

ROOT = Path(__file__).resolve().parents[2]
KSERVE = json.loads(Path(__file__).with_name("kserve_fields.json").read_text())  # benchmarks/publish/kserve_fields.py

GIB = 2**30
CHAT = {"input_length": 512, "output_length": 128, "precision": "bf16"}


def option(profile: str, processes: int = 1, pool: int = 0, concurrency: int | None = None) -> Option:
    time = Interval(10, 5, 20, "ms")
    tpot = Interval(5, 4, 6, "ms") if concurrency else None
    memory = Interval(GIB, GIB, 2 * GIB, "byte")
    return Option(pool, profile, processes, time, 50.0, 1.0, 1.0, memory, 30 * GIB, "near", tpot, concurrency)


@pytest.fixture(scope="module")
def layout() -> Layout:
    pools = (Pool(device("a100-sxm4-80gb"), 1, ("node-1", "node-2"), "mig"), Pool(device("l4"), 1, ("edge",)))
    models = (
        Model("Vision_net", "resnet50", options={"batch": 8, "runtime": "onnxruntime"}, latency_ms=60.0, copies=2),
        Model("chat", "meta-llama/Llama-3.1-8B", kind="llm", options=CHAT, copies=2),
        Model("small", "mobilenet_v2", devices=("l4",)),
    )
    options = [[option("1g.10gb", 2)], [option("3g.40gb", concurrency=16)], [option("whole", pool=1)]]
    return pack_options(Fleet(pools, models), options)


def test_nvidia_smi_creates_what_the_layout_has_where_it_has_it(layout):
    script = next(text for name, text in files(layout, ["nvidia-smi"]).items() if "node-" in name)
    created = re.search(r"nvidia-smi mig -i 0 -cgi (\S+) -C", script)[1]
    placed = [(p, int(s)) for p, s in (one.split(":") for one in created.split(","))]
    assert device("a100-80gb").mig.fault(placed) == "" and ("3g.40gb" in dict(placed))
    assert script.index("-mig 1") < script.index("-dgi") < script.index("-cgi")
    assert "-mig 0" not in script and files(layout, ["nvidia-smi"])["nvidia-smi/perfpass-edge.sh"].count("-cgi") == 0


# As `nvidia-smi mig -lgi` prints (NVIDIA MIG user guide, "Creating GPU instances").
LISTING = """\
+-------------------------------------------------------+
| GPU instances:                                        |
| GPU   Name             Profile  Instance   Placement  |
|                          ID       ID       Start:Size |
|=======================================================|
|   0  MIG 1g.10gb         19        9          6:1     |
+-------------------------------------------------------+
|   0  MIG 3g.40gb          9        2          0:4     |
+-------------------------------------------------------+
"""


def test_a_change_destroys_the_instance_that_stands_there(tmp_path):
    today = {"n/0": (Standing("1g.10gb", 6, "a"), Standing("3g.40gb", 0, "b"))}
    fleet = Fleet((Pool(device("a100-sxm4-80gb"), 1, ("n",)),), (Model("b", "b"),), today=today)
    script = files(pack_options(fleet, [[option("3g.40gb")]]), ["nvidia-smi"])["nvidia-smi/perfpass-n.sh"]
    assert "instance_at 0 6" in script and "-cgi" not in script
    fake = tmp_path / "nvidia-smi"
    fake.write_text(f'#!/bin/sh\ncase "$*" in *-lgi*) cat <<"X"\n{LISTING}X\n;; *) echo "$@" >> "$0.log";; esac\n')
    fake.chmod(0o755)
    run = subprocess.run(
        ["sh", "-c", script], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, input="\n" * 9, text=True, capture_output=True
    )
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "nvidia-smi.log").read_text().splitlines() == ["mig -i 0 -dci -gi 9", "mig -i 0 -dgi -gi 9"]


def test_mig_parted_gets_the_form_of_its_own_examples(layout):
    config = yaml.safe_load(files(layout, ["mig-parted"])["mig-parted/config.yaml"])
    assert config["version"] == "v1" and set(config) == {"version", "mig-configs"}
    for entries in config["mig-configs"].values():
        for entry in entries:
            assert set(entry) == {"devices", "mig-enabled", "mig-devices"}  # as NVIDIA/mig-parted examples/config.yaml
            assert all(isinstance(i, int) for i in entry["devices"]) and entry["mig-enabled"] in (True, False)
            assert entry["mig-enabled"] == bool(entry["mig-devices"])
            for profile, count in entry["mig-devices"].items():
                assert re.fullmatch(r"[1-7]g\.\d+gb([+-]\S+)?", profile) and isinstance(count, int)
    assert config["mig-configs"]["perfpass-edge"] == [{"devices": [0], "mig-enabled": False, "mig-devices": {}}]
    inside = yaml.safe_load(files(layout, ["mig-parted"])["mig-parted/configmap.yaml"])["data"]["config.yaml"]
    assert yaml.safe_load(inside) == config


def documents(layout: Layout, name: str) -> list[dict]:
    return [one for text in files(layout, [name]).values() for one in yaml.safe_load_all(text)]


KINDS = {"Deployment": "V1Deployment", "ResourceClaimTemplate": "V1ResourceClaimTemplate", "ConfigMap": "V1ConfigMap"}


@pytest.mark.parametrize("name", ["k8s", "dra", "mig-parted"])
def test_manifests_are_what_the_kubernetes_api_models_are(layout, name):
    from kubernetes import client

    api = client.ApiClient()
    found = [d for d in documents(layout, name) if "kind" in d]
    assert found
    for document in found:
        model = api.deserialize(json.dumps(document), KINDS[document["kind"]], "application/json")
        assert api.sanitize_for_serialization(model) == document, "a key that the API does not have"


def test_pods_ask_for_the_resource_of_their_slice(layout):
    by_name = {d["metadata"]["name"]: d for d in documents(layout, "k8s")}
    pod = by_name["vision-net"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"] == {"limits": {"nvidia.com/mig-1g.10gb": "1"}}
    assert by_name["chat"]["spec"]["replicas"] == 2
    small = by_name["small"]["spec"]["template"]["spec"]
    assert small["containers"][0]["resources"] == {"limits": {"nvidia.com/gpu": "1"}}
    term = small["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"][0]
    assert term["matchExpressions"][0]["values"] == ["edge"]


def test_claims_are_those_of_the_dra_driver(layout):
    claims = [d for d in documents(layout, "dra") if d["kind"] == "ResourceClaimTemplate"]
    request = next(c for c in claims if c["metadata"]["name"] == "chat")["spec"]["spec"]["devices"]["requests"][0]
    assert request["exactly"]["deviceClassName"] == "mig.nvidia.com"  # as k8s-dra-driver-gpu's gpu-simple-mig.yaml
    assert request["exactly"]["selectors"] == [
        {"cel": {"expression": "device.attributes['gpu.nvidia.com'].profile == '3g.40gb'"}}
    ]
    pod = next(d for d in documents(layout, "dra") if d["kind"] == "Deployment")["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"]["claims"] == [{"name": "gpu"}]
    assert pod["resourceClaims"][0]["name"] == "gpu"


def triton_messages():
    place = importlib.util.find_spec("tritonclient")
    # Its package asks for gRPC when imported; the messages alone do not.
    path = Path(place.submodule_search_locations[0]) / "grpc" / "model_config_pb2.py"
    spec = importlib.util.spec_from_file_location("model_config_pb2", path)
    messages = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(messages)
    return messages


def triton_config(model: str, content: bytes | None = None, **options):
    """What Triton's own protobuf reads of the configuration that is written for a model."""
    fleet = Fleet((Pool(device("a100-sxm4-80gb"), 1),), (Model("net", model, options=options, content=content),))
    return parsed(files(pack_options(fleet, [[option("1g.10gb")]]), ["triton"])["triton/net/config.pbtxt"])


def parsed(text: str):
    from google.protobuf import text_format

    return text_format.Parse(text, triton_messages().ModelConfig())


def test_triton_is_told_inputs_and_outputs_of_pytorch_models_whose_files_do_not_say_them():
    types = triton_messages()
    for precision, kept in (("fp32", types.TYPE_FP32), ("amp", types.TYPE_FP32), ("bf16", types.TYPE_BF16)):
        config = triton_config(str(ROOT / "examples" / "resnet50.onnx"), batch=8, precision=precision, runtime="torch")
        assert (config.platform, config.max_batch_size) == ("pytorch_libtorch", 8)
        assert [(t.name, t.data_type, list(t.dims)) for t in config.input] == [("INPUT__0", kept, [3, 224, 224])]
        assert [(t.name, t.data_type, list(t.dims)) for t in config.output] == [("OUTPUT__0", kept, [1000])]
    text = str(ROOT / "examples" / "deberta_v3_large_dynamic.onnx")
    config = triton_config(text, batch=2, dims={"sequence": 64})
    assert [(t.name, t.data_type, list(t.dims)) for t in config.input] == [
        (f"INPUT__{i}", types.TYPE_INT64, [64]) for i in range(2)
    ]
    own = triton_config(str(ROOT / "examples" / "resnet50.onnx"), batch=8, runtime="onnxruntime")
    assert not own.input and not own.output  # an ONNX file says them


def test_triton_batches_nothing_that_has_no_batch_and_gets_no_empty_dimensions():
    import onnx
    from onnx import TensorProto, helper

    def network(made: str, shape: list[int], **attributes) -> bytes:
        node = helper.make_node("ReduceMax", ["x"], ["y"], **attributes)
        ends = [
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 6])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        ]
        graph = helper.make_graph([node], made, *ends)
        return onnx.helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]).SerializeToString()

    config = triton_config("each", network("each", [4], axes=[1], keepdims=0))
    assert (config.max_batch_size, list(config.input[0].dims)) == (4, [6])
    assert list(config.output[0].dims) == [1] and config.output[0].HasField("reshape")
    assert list(config.output[0].reshape.shape) == []
    config = triton_config("all", network("all", [1, 6], axes=[0], keepdims=1))
    assert (config.max_batch_size, list(config.input[0].dims), list(config.output[0].dims)) == (0, [4, 6], [1, 6])
    assert not config.HasField("dynamic_batching")


def test_what_a_build_left_behind_is_deployed_as_it_was_predicted():
    import perfpass
    from perfpass.deploy.pack import hinted

    path = str(ROOT / "examples" / "resnet50.onnx")
    how = {"batch": 4, "precision": "fp16", "runtime": "onnxruntime"}
    limits = perfpass.Limits(latency_ms=1000.0)
    for limited in (None, limits):  # with a decision in it, and without one
        said = perfpass.predict(path, "a100-80gb", limits=limited, **how).to_dict()
        layout = hinted([(path, said)])
        assert layout.fleet.models[0].options == how
        text = files(layout, ["triton"])["triton/resnet50/config.pbtxt"]
        assert 'backend: "onnxruntime"' in text and "max_batch_size: 4" in text


def test_triton_reads_its_configuration():
    messages = triton_messages()
    fleet = Fleet(
        (Pool(device("a100-sxm4-80gb"), 1),),
        (Model("net", "resnet50", options={"batch": 8, "runtime": "onnxruntime"}, latency_ms=60.0),),
    )
    config = parsed(files(pack_options(fleet, [[option("1g.10gb", 2)]]), ["triton"])["triton/net/config.pbtxt"])
    assert (config.name, config.backend, config.max_batch_size) == ("net", "onnxruntime", 8)
    assert config.instance_group[0].count == 2
    assert config.instance_group[0].kind == messages.ModelInstanceGroup.KIND_GPU
    assert list(config.dynamic_batching.preferred_batch_size) == [8]
    assert config.dynamic_batching.max_queue_delay_microseconds == 20_000  # half of 60 less 20 ms


def test_a_cuda_graph_is_predicted_and_written_for_the_server_that_captures_it():
    import perfpass
    from perfpass.deploy.pack import fleet_of, hinted, pack

    path = str(ROOT / "examples" / "resnet50.onnx")
    how = {"batch": 4, "precision": "fp16", "runtime": "tensorrt", "cuda_graph": True}
    asked = {"gpu": [{"device": "a100-80gb", "count": 1}], "model": [{"name": "net", "model": path, **how}]}
    packed = pack(asked, time_limit_s=5)
    option_of = packed.gpus[0].instances[0].option
    where = "a100-80gb" if option_of.profile == "whole" else f"a100-80gb:{option_of.profile}"
    assert option_of.latency_ms == perfpass.predict(path, where, **how).latency_ms
    built = hinted([(path, perfpass.predict(path, "a100-80gb", **how).to_dict())])
    for layout, name in ((packed, "net"), (built, "resnet50")):
        assert layout.fleet.models[0].options["cuda_graph"] is True
        text = files(layout, ["triton"])[f"triton/{name}/config.pbtxt"]
        assert parsed(text).optimization.cuda.graphs is True
    asked["model"][0]["runtime"] = "onnxruntime"
    with pytest.raises(ArgumentError, match="captures CUDA graphs of tensorrt, not of onnxruntime"):
        files(pack(asked, time_limit_s=5), ["triton"])
    with pytest.raises(FormatError, match="cuda_graph is no key of a language model that is served"):
        fleet_of({**asked, "model": [{"name": "m", "model": "llama-3.1-8b", "kind": "llm", "cuda_graph": True}]})


def of_kind(value: object, kind: str) -> None:
    """Fails where a value is not what KServe's own models, or Kubernetes', say of its field."""
    from kubernetes import client

    fields = KSERVE.get(kind)
    if fields:
        assert isinstance(value, dict) and not set(value) - set(fields), (kind, value)
        for name, held in value.items():
            of_kind(held, fields[name])
    elif kind.startswith("list["):
        assert isinstance(value, list)
        for held in value:
            of_kind(held, kind[5:-1])
    elif kind.startswith("V1"):
        api = client.ApiClient()
        model = api.deserialize(json.dumps(value), kind, "application/json")
        assert api.sanitize_for_serialization(model) == value, (kind, value)
    else:
        assert type(value) is {"str": str, "int": int, "bool": bool}[kind], (kind, value)


def test_a_service_of_kserve_is_what_its_own_models_are(layout):
    for document in documents(layout, "kserve"):
        of_kind(document, "V1beta1InferenceService")
    with pytest.raises(AssertionError, match="storageUrl"):
        of_kind({"storageUrl": "pvc://models"}, "V1beta1ModelSpec")


def test_kserve_gets_a_service_for_every_model(layout):
    services = {document["metadata"]["name"]: document for document in documents(layout, "kserve")}
    assert set(services) == {"vision-net", "chat", "small"}
    for document in services.values():
        assert (document["apiVersion"], document["kind"]) == ("serving.kserve.io/v1beta1", "InferenceService")
        predictor = document["spec"]["predictor"]
        assert predictor["minReplicas"] == predictor["maxReplicas"] >= 1
        assert predictor["model"]["modelFormat"]["name"] in ("onnx", "pytorch", "huggingface")
        assert list(predictor["model"]["resources"]["limits"].values()) == ["1"]
    # Triton is given a whole repository and told which of its models, as pods of the format k8s are.
    network = services["vision-net"]["spec"]["predictor"]["model"]
    pod = next(d for d in documents(layout, "k8s") if d["metadata"]["name"] == "vision-net")
    assert (network["runtime"], network["storageUri"]) == ("kserve-tritonserver", "pvc://models")
    assert network["args"] == pod["spec"]["template"]["spec"]["containers"][0]["args"][1:]
    # What a server would fetch from the hub is fetched there; what lies in the claim is where its pod finds it.
    chat = services["chat"]["spec"]["predictor"]["model"]
    assert chat["storageUri"] == "hf://meta-llama/Llama-3.1-8B" and "--model" not in chat["args"]
    named = Fleet((Pool(device("h100"), 1),), (Model("chat", "llama-3.1-8b", kind="llm", options=CHAT),))
    (own,) = documents(pack_options(named, [[option("whole", concurrency=16)]]), "kserve")
    assert own["spec"]["predictor"]["model"]["storageUri"] == "pvc://models/llama-3.1-8b"


@pytest.mark.parametrize("name", ["vllm", "sglang", "llama.cpp"])
def test_servers_of_language_models_get_flags_that_they_have(layout, name):
    script = files(layout, [name])[f"{name}/chat.sh"]
    command = script.splitlines()[-1].split()[1:]
    refused(name, command)
    assert "640" in command or "10240" in command  # 512 and 128 tokens; in llama.cpp those of 16 slots
    assert "16" in command
    run = subprocess.run(["sh", "-c", script], capture_output=True, text=True)
    assert run.returncode != 0 and "give the UUID" in run.stderr


@pytest.mark.parametrize("board", ["t4", "a100-sxm4-80gb"])
def test_a_server_may_fill_of_a_board_the_share_that_was_counted_with(board):
    """A server's setting is a share of what the driver shows: check bits are no part of it."""
    available = int(0.9 * device(board).usable_bytes)
    asked = replace(option("whole", concurrency=16), available_bytes=available)
    pool, chat = Pool(device(board), 1, ("n",)), Model("chat", "meta-llama/Llama-3.1-8B", kind="llm", options=CHAT)
    command = files(pack_options(Fleet((pool,), (chat,)), [[asked]]), ["vllm"])["vllm/chat.sh"].split()
    assert command[command.index("--gpu-memory-utilization") + 1] == "0.9"


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ("llama-3.1-8b", "/models/llama-3.1-8b"),  # a name of ours, which no server would find
        ("meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-8B"),
        ("./weights", "./weights"),
        ("/models/other", "/models/other"),
    ],
)
def test_a_server_is_told_where_its_model_is(asked, given):
    assert served_from(asked) == given


def test_slurm_has_a_type_for_every_profile(layout):
    found = files(layout, ["slurm"])
    nodes = dict(re.findall(r"^NodeName=(\S+) Gres=(\S+)$", found["slurm/slurm.conf"], re.M))
    for node, gres in nodes.items():
        for one in gres.split(","):
            assert re.fullmatch(r"gpu:[\w.+-]+:\d+", one)
            kind, count = one.split(":")[1:]
            assert f"NodeName={node} Name=gpu Type={kind} Count={count}" in found["slurm/gres.conf"]
    assert "#SBATCH --gres=gpu:3g.40gb:1" in found["slurm/chat.sbatch"]
    assert "#SBATCH --array=1-2" in found["slurm/chat.sbatch"]


def test_scripts_are_shell_and_files_are_written_whole(layout, tmp_path):
    written = write_files(files(layout, list(FORMATS)), tmp_path)
    assert len(written) == len(set(written)) > 15
    for path in map(Path, written):
        if path.read_text().startswith("#!"):
            assert subprocess.run(["sh", "-n", str(path)]).returncode == 0
    assert (tmp_path / "vllm" / "chat.sh").stat().st_mode & 0o100


def test_names_are_dns_labels_and_each_is_one():
    taken: set[str] = set()
    names = [dns_label(text, taken) for text in ("A.b", "a-b", "a_b", "x" * 80, "...")]
    assert len(set(names)) == 5 and all(re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", n) for n in names)


def test_what_a_format_cannot_say_is_an_argument_error(layout):
    graphs = Fleet((Pool(device("a30"), 1),), (Model("a", "a", options={"runtime": "tvm"}),))
    only_graphs = pack_options(graphs, [[option("1g.6gb")]])
    with pytest.raises(ArgumentError, match="the fleet has none"):
        files(only_graphs, ["vllm"])
    with pytest.raises(ArgumentError, match="no backend for tvm"):
        files(only_graphs, ["triton"])
    with pytest.raises(ArgumentError, match="unknown format 'k9s'; did you mean k8s"):
        files(layout, ["k9s"])


def test_kserve_is_given_no_format_that_it_does_not_have():
    fleet = Fleet((Pool(device("a100-sxm4-80gb"), 1),), (Model("net", "lib.so", options={"runtime": "tvm"}),))
    layout = pack_options(fleet, [[option("1g.10gb")]])
    for name in ("kserve", "triton"):
        with pytest.raises(ArgumentError, match=r"tvm; it has .*onnx"):
            files(layout, [name])


def test_the_image_of_a_server_is_of_a_release_whose_defaults_of_memory_are_counted():
    assert release(IMAGES["llm"].partition(":")[2]) >= SINCE["vllm"]
