"""The chart as rendered by helm, and Kubernetes' schemas for what it renders."""

import json
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import k8s_tools
import kubernetes_validate
import pytest
import yaml  # type: ignore[import-untyped]
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "helm/tidemark"
EXAMPLES: Final = CHART / "examples"
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The one in C, where PyYAML has it: it takes a sixth of the time."""
VALUES: Final = [
    *sorted((Path(__file__).parent / "values").glob("*.yaml")),
    *sorted(EXAMPLES.glob("*.yaml")),
]
RELEASES: Final = tuple(f"1.{minor}" for minor in range(25, 38))
OLDEST, NEWEST = RELEASES[0], RELEASES[-1]
NAMESPACE: Final = "log"
_SCHEMAS: Final = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"

Manifest = dict[str, Any]


def run_helm(*words: str) -> subprocess.CompletedProcess[str]:
    """Run helm with what it finds nowhere but in its arguments."""
    if not k8s_tools.can_build():
        pytest.skip("helm is built by Go, which is not installed")
    environment = {"HOME": "/nonexistent", "PATH": "/usr/bin:/bin"}
    argv = [str(k8s_tools.helm()), *words]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)


@cache
def rendered_text(values: Path, release: str = NEWEST) -> str:
    """Manifests of a release named demo, as text."""
    ran = run_helm(
        *("template", "demo", str(CHART), "--namespace", NAMESPACE),
        *("--kube-version", release, "--values", str(values)),
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@cache
def _rendered_json(values: Path, release: str) -> str:
    """Manifests as JSON, which Python reads in 1 ms: YAML takes it far longer."""
    loaded = yaml.load_all(rendered_text(values, release), Loader=_LOADER)
    return json.dumps([found for found in loaded if found])


def rendered(values: Path, release: str = NEWEST) -> list[Manifest]:
    """Manifests of a release named demo. The caller may change them."""
    manifests: list[Manifest] = json.loads(_rendered_json(values, release))
    return manifests


def refused(tmp_path: Path, text: str) -> str:
    """Why the chart does not take these values."""
    path = tmp_path / "values.yaml"
    path.write_text(text)
    ran = run_helm("template", "demo", str(CHART), "--values", str(path))
    assert ran.returncode != 0, "these values are taken"
    return ran.stderr


def named(manifests: list[Manifest], kind: str, name: str) -> Manifest:
    """One manifest by its kind and name."""
    (found,) = (it for it in manifests if it["kind"] == kind and it["metadata"]["name"] == name)
    return found


def pods(manifests: list[Manifest]) -> Iterator[tuple[str, Manifest]]:
    """Name and pod, with metadata and spec, of everything that runs one."""
    for manifest in manifests:
        if manifest["kind"] == "Pod":
            yield manifest["metadata"]["name"], manifest
        elif manifest["kind"] in ("StatefulSet", "Deployment", "Job"):
            yield manifest["metadata"]["name"], manifest["spec"]["template"]
        elif manifest["kind"] == "CronJob":
            job = manifest["spec"]["jobTemplate"]
            yield manifest["metadata"]["name"], job["spec"]["template"]


def containers(pod: Manifest) -> list[Manifest]:
    """Containers of a pod, those that run first too."""
    return [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]


@cache
def _registry(release: str) -> tuple[Path, Registry[Any]]:
    folder = _SCHEMAS / f"v{release}.0-local-strict"
    definitions = json.loads((folder / "_definitions.json").read_text())
    return folder, Resource.from_contents(definitions) @ Registry()


@cache
def _validator(release: str, kind: str, api_version: str) -> Draft202012Validator:
    group, _, version = api_version.rpartition("/")
    name = "-".join(word for word in (kind.lower(), group.partition(".")[0], version) if word)
    folder, registry = _registry(release)
    schema = json.loads((folder / f"{name}.json").read_text())
    return Draft202012Validator(schema, registry=registry)


@cache
def _problems(release: str, text: str) -> tuple[str, ...]:
    manifest = json.loads(text)
    validator = _validator(release, manifest["kind"], manifest["apiVersion"])
    return tuple(
        f"{manifest['kind']} {manifest['metadata']['name']}, {error.json_path}: {error.message}"
        for error in validator.iter_errors(manifest)
    )


def problems(manifest: Manifest, release: str) -> tuple[str, ...]:
    """What a release of Kubernetes would not know or take in a manifest."""
    return _problems(release, json.dumps(manifest, sort_keys=True))
