"""The container file, the manifests and the proxy of examples/server fit one another and what they start."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from perfpass.cli.parser import build_parser
from perfpass.serve.guard import OPEN
from perfpass.serve.settings import Settings
from perfpass.toml_table import parse

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "server"
KINDS = {"Deployment": "V1Deployment", "Service": "V1Service", "PodDisruptionBudget": "V1PodDisruptionBudget"}


@pytest.fixture(scope="module")
def manifests() -> dict[str, Any]:
    return {one["kind"]: one for one in yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text())}


@pytest.fixture(scope="module")
def stages() -> list[list[tuple[str, str]]]:
    """The instructions of each stage of the container file."""
    text = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", (FOLDER / "Containerfile").read_text(), flags=re.MULTILINE))
    lines = [tuple(line.split(maxsplit=1)) for line in text.splitlines() if line.strip()]
    starts = [i for i, line in enumerate(lines) if line[0] == "FROM"]
    return [lines[start:end] for start, end in zip(starts, [*starts[1:], len(lines)], strict=True)]


def pod(manifests: dict[str, Any]) -> Any:
    return manifests["Deployment"]["spec"]["template"]["spec"]


def test_the_manifests_are_what_the_kubernetes_api_models_are(manifests):
    from kubernetes import client

    api = client.ApiClient()
    assert set(manifests) == set(KINDS)
    for kind, document in manifests.items():
        model = api.deserialize(json.dumps(document), KINDS[kind], "application/json")
        assert api.sanitize_for_serialization(model) == document, "a key that the API does not have"


def test_the_pod_starts_the_server_with_options_that_it_has(manifests, stages):
    (container,) = pod(manifests)["containers"]
    entry = json.loads(next(rest for word, rest in stages[-1] if word == "ENTRYPOINT"))
    options = build_parser().parse_args([*entry[1:], *container["args"]])
    assert entry[0] == "perfpass" and options.port == container["ports"][0]["containerPort"]
    assert [rest for word, rest in stages[-1] if word == "EXPOSE"] == [str(options.port)]
    least = options.drain_seconds + options.stop_seconds
    assert pod(manifests)["terminationGracePeriodSeconds"] > least
    mounts = {one["mountPath"]: one for one in container["volumeMounts"]}
    assert str(Path(options.token_file).parent) in mounts and mounts["/secret"]["readOnly"]


def test_the_probes_ask_what_needs_no_token(manifests):
    (container,) = pod(manifests)["containers"]
    probes = {name: found["httpGet"]["path"] for name, found in container.items() if name.endswith("Probe")}
    assert set(probes.values()) == OPEN and probes["livenessProbe"] == "/health"
    assert manifests["Service"]["spec"]["ports"][0]["targetPort"] == container["ports"][0]["name"]


def test_labels_select_the_pods(manifests):
    labels = manifests["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert manifests["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    assert manifests["Service"]["spec"]["selector"] == labels
    assert manifests["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels


def test_nothing_runs_as_root_or_writes_to_its_image(manifests, stages):
    (container,) = pod(manifests)["containers"]
    security = container["securityContext"]
    assert security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"]
    assert security["capabilities"]["drop"] == ["ALL"] and pod(manifests)["securityContext"]["runAsNonRoot"]
    user = next(rest for word, rest in stages[-1] if word == "USER")
    context = pod(manifests)["securityContext"]
    assert user == f"{context['runAsUser']}:{context['runAsGroup']}" and context["runAsUser"] > 0
    after = [word for word, _ in stages[-1]][[word for word, _ in stages[-1]].index("USER") :]
    assert "RUN" not in after and "COPY" not in after and "ADD" not in [word for word, _ in stages[-1]]


def test_the_last_stage_has_wheels_and_no_compiler(stages):
    assert len(stages) == 2
    last = " ".join(rest for _, rest in stages[-1])
    assert not re.search(r"apt|g\+\+|gcc|build-essential|clang|cmake|requirements", last)
    assert "--no-index" in last and "--mount=type=bind,from=build,source=/wheels,target=/wheels" in last
    assert "COPY" not in [word for word, _ in stages[-1]], "nothing of the build stays in the image"


def test_the_container_file_names_extras_and_files_that_there_are(stages):
    text = (FOLDER / "Containerfile").read_text()
    extras = parse((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for named in re.findall(r"perfpass\[([\w,]+)\]", text):
        assert set(named.split(",")) <= set(extras)
    for named in re.findall(r"-[rc] (\S+\.txt)", text):
        assert (ROOT / named).is_file()
    images = [rest.split()[0] for stage in stages for word, rest in stage if word == "FROM"]
    assert len(set(images)) == 1 and "/" not in images[0], "a plain name: where it comes from is the builder's affair"


def test_the_image_is_named_by_this_version_and_by_no_registry(manifests):
    from perfpass import __version__

    (container,) = pod(manifests)["containers"]
    assert container["image"] == f"perfpass:{__version__}"


def test_the_proxy_lets_through_what_the_server_takes():
    text = (FOLDER / "nginx.conf").read_text()
    size = int(re.search(r"client_max_body_size (\d+)m;", text)[1])
    seconds = int(re.search(r"proxy_read_timeout (\d+)s;", text)[1])
    assert size > Settings().body_mib and seconds > Settings().question_seconds and "ssl_certificate " in text
