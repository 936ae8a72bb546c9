"""The manifests of deploy/kubernetes are valid, agree with each other and with the settings, and run with few rights."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from fogline_cloud.cli.main import build_parser
from fogline_cloud.settings import load
from rules.source import ROOT

FOLDER = ROOT / "deploy" / "kubernetes"
BASE = FOLDER / "base"
OVERLAYS = sorted((FOLDER / "overlays").iterdir())
FOLDERS = [BASE, *OVERLAYS]
VERSIONS = ("1.28", "1.32")
"""The oldest and a recent version of Kubernetes, whose schemas the manifests follow."""
Manifest = dict[str, Any]


def customization(folder: Path) -> Manifest:
    return yaml.safe_load((folder / "kustomization.yaml").read_text("utf-8"))


def manifests(*folders: Path) -> Iterator[Manifest]:
    for folder in folders:
        for path in sorted(folder.glob("*.yaml")):
            if path.name != "kustomization.yaml":
                yield from yaml.safe_load_all(path.read_text("utf-8"))


def named(each: Manifest) -> str:
    return f"{each['kind']}/{each['metadata']['name']}"


EVERYTHING = list(manifests(*FOLDERS))
PODS = {named(each): each["spec"]["template"] for each in EVERYTHING if "template" in each.get("spec", {})}
CONTAINERS = [
    pytest.param(container, pod["spec"], id=f"{name}-{container['name']}")
    for name, pod in PODS.items()
    for container in (*pod["spec"].get("initContainers", []), *pod["spec"]["containers"])
]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("manifest", EVERYTHING, ids=named)
def test_a_manifest_follows_the_schema_of_kubernetes(manifest, version):
    kubernetes_validate.validate(manifest, version, strict=True)


def test_there_are_bridge_api_flow_and_their_protection():
    assert {
        "StatefulSet/fogline-bridge", "Deployment/fogline-api", "Deployment/fogline-flow", "Job/fogline-topics",
        "PodDisruptionBudget/fogline-bridge", "PodDisruptionBudget/fogline-api", "NetworkPolicy/fogline",
        "NetworkPolicy/fogline-bridge", "NetworkPolicy/fogline-api",
    } <= {named(each) for each in EVERYTHING}  # fmt: skip


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda each: each.name)
def test_a_customization_names_every_file_and_no_other(folder):
    found = customization(folder)
    listed = {(folder / each).resolve() for each in found["resources"]}
    assert all(each.exists() for each in listed)
    here = {each for each in folder.glob("*.yaml") if each.name != "kustomization.yaml"}
    assert here == {each for each in listed if each.parent == folder}
    assert all((folder / file).exists() for each in found.get("configMapGenerator", []) for file in each["files"])


@pytest.mark.parametrize("folder", OVERLAYS, ids=lambda each: each.name)
def test_overlay_patches_existing_objects(folder):
    found, base = customization(folder), {named(each): each for each in manifests(BASE)}
    images = {container.values[0]["image"] for container in CONTAINERS}
    assert {each["name"] for each in found["images"]} == images == {"fogline-cloud"}
    assert {each["name"] for each in found.get("replicas", [])} <= {name.partition("/")[2] for name in base}
    for patch in found.get("patches", []):
        target = base[f"{patch['target']['kind']}/{patch['target']['name']}"]
        for change in yaml.safe_load(patch["patch"]):
            place: Any = target
            *parents, last = change["path"].strip("/").split("/")
            for step in parents:
                place = place[int(step)] if isinstance(place, list) else place[step]
            there = int(last) < len(place) if isinstance(place, list) else last in place
            assert (change["op"], there) in {("replace", True), ("add", False)}, "a JSON patch fails if its place is missing"


def test_the_flow_of_a_cluster_is_the_driver_of_executors_that_get_the_archive(tmp_path):
    """Its pod writes the archive first. Executors reach the driver at the ports of its service, and of the settings."""
    folder = FOLDER / "overlays" / "cluster"
    changes = yaml.safe_load(customization(folder)["patches"][0]["patch"])
    flow = next(each for each in manifests(BASE) if named(each) == "Deployment/fogline-flow")
    pod = flow["spec"]["template"]["spec"]
    pod["containers"][0]["args"], pod["initContainers"] = (each["value"] for each in changes)
    for version in VERSIONS:
        kubernetes_validate.validate(flow, version, strict=True)
    run, archive = (build_parser().parse_args(each[0]["args"]) for each in (pod["containers"], pod["initContainers"]))
    assert run.master.startswith("spark://")
    assert archive.config == run.config
    settings = tomllib.loads((folder / "cloud.toml").read_text("utf-8"))["flow"]
    assert settings["archive"].startswith(pod["initContainers"][0]["volumeMounts"][1]["mountPath"])
    service = next(each for each in manifests(folder) if each["kind"] == "Service")
    ports = [settings["spark"][f"spark.driver.{name}"] for name in ("port", "blockManager.port")]
    assert [each["port"] for each in service["spec"]["ports"]] == ports
    policy = next(each for each in manifests(folder) if each["kind"] == "NetworkPolicy")
    assert [each["port"] for each in policy["spec"]["ingress"][0]["ports"]] == ports
    assert settings["spark"]["spark.driver.host"] == f"{service['metadata']['name']}.{customization(folder)['namespace']}"


@pytest.mark.parametrize("template", PODS.values(), ids=PODS)
def test_a_pod_gets_no_rights_that_it_does_not_need(template):
    spec = template["spec"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False


@pytest.mark.parametrize(("container", "spec"), CONTAINERS)
def test_a_container_is_bounded_and_mounts_volumes_that_exist(container, spec):
    assert container["resources"]["requests"]
    assert container["resources"]["limits"]["memory"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    assert {each["name"] for each in container["volumeMounts"]} <= {each["name"] for each in spec["volumes"]}
    if "args" in container:
        build_parser().parse_args(container["args"])


@pytest.mark.parametrize("name", ["StatefulSet/fogline-bridge", "Deployment/fogline-api", "Deployment/fogline-flow"])
def test_every_serving_container_has_probes(name):
    (container,) = PODS[name]["spec"]["containers"]
    assert {"startupProbe", "readinessProbe"} <= container.keys()


def test_selectors_find_their_pods():
    labels = [template["metadata"]["labels"] for template in PODS.values()]
    for each in EVERYTHING:
        selector = each.get("spec", {}).get("selector") if each["kind"] != "NetworkPolicy" else None
        wanted = (selector or {}).get("matchLabels", selector) or {}
        own = {name: value for name, value in wanted.items() if name != "statefulset.kubernetes.io/pod-name"}
        assert not own or any(own.items() <= each_labels.items() for each_labels in labels), named(each)


def test_secrets_are_only_referred_to_and_their_files_are_private():
    assert not [each for each in EVERYTHING if each["kind"] == "Secret"]
    for template in PODS.values():
        modes = [volume["secret"]["defaultMode"] for volume in template["spec"]["volumes"] if "secret" in volume]
        assert all(mode & 0o007 == 0 for mode in modes)


@pytest.mark.parametrize("folder", [each for each in FOLDERS if (each / "cloud.toml").exists()], ids=lambda each: each.name)
def test_the_settings_are_valid_name_mounted_files_and_hold_no_password(folder, tmp_path):
    text = (folder / "cloud.toml").read_text("utf-8")
    mounts = {mount["mountPath"] for container in CONTAINERS for mount in container.values[0]["volumeMounts"]}
    files = re.findall(r'"(/etc/fogline/secrets/[^"]+)"', text)
    assert files
    assert all(str(Path(each).parent) in mounts for each in files)
    assert not re.search(r'"?(sasl\.)?password"?\s*=', text)
    secrets = tmp_path / "secrets"
    for each in files:
        path = secrets / each.removeprefix("/etc/fogline/secrets/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x\n")
        path.chmod(0o440)
    path = tmp_path / "cloud.toml"
    path.write_text(text.replace("/etc/fogline/secrets", str(secrets)).replace("POD_NAME", "fogline-bridge-0"))
    settings = load(path)
    assert settings.bridge.name == "fogline-bridge-0"
    assert settings.bridge.advertised.startswith("fogline-bridge-0.")
    assert settings.bridge.metrics is not None


def test_the_containerfile_runs_the_set_up_and_no_process_as_root():
    text = (FOLDER / "Containerfile").read_text("utf-8")
    assert "deploy/setup/setup.sh" in text
    assert re.search(r"^USER 10001:10001$", text, re.MULTILINE)
    uids = {template["spec"]["securityContext"]["runAsUser"] for template in PODS.values()}
    assert uids == {10001}
