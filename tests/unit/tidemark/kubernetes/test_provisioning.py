"""Notes of provisioning in a ConfigMap."""

import pytest
from tidemark.kubernetes.api import Document, KubernetesApi, KubernetesError, Request
from tidemark.kubernetes.provisioning import ConfigMapNotes
from tidemark.plans.provisioning import read_wanted

ENTRY = {"principal": "User:a", "topic": "t", "operations": ["read"]}
ACLS = read_wanted({"acls": [ENTRY]}).acls


class ConfigMaps(KubernetesApi):
    """An API server that has one ConfigMap."""

    is_inside = True

    def __init__(self) -> None:
        self.there: Document | None = None

    def send(self, request: Request) -> Document:
        if request.method == "GET":
            if self.there is None:
                raise KubernetesError(404, "NotFound", request.path)
            return self.there
        assert request.body is not None
        if request.method == "PATCH":
            assert self.there is not None
            version = request.body["metadata"]["resourceVersion"]
            if version != self.there["metadata"]["resourceVersion"]:
                raise KubernetesError(409, "Conflict", request.path)
        before = int(self.there["metadata"]["resourceVersion"]) if self.there else 0
        metadata = {"name": "demo-provisioned", "resourceVersion": str(before + 1)}
        self.there = {"metadata": metadata, "data": request.body["data"]}
        return self.there


def notes(api: KubernetesApi) -> ConfigMapNotes:
    return ConfigMapNotes(api, "log", "demo-provisioned", {"a": "b"})


@pytest.mark.feature("KU20")
def test_notes_outlive_a_run() -> None:
    api = ConfigMaps()
    first = notes(api)
    assert first.read() == frozenset()
    first.write(ACLS)
    first.write(ACLS)
    assert notes(api).read() == ACLS


@pytest.mark.feature("KU20")
def test_of_two_runs_at_once_one_fails() -> None:
    api = ConfigMaps()
    notes(api).write(ACLS)
    first, second = notes(api), notes(api)
    first.read()
    second.read()
    first.write(frozenset())
    with pytest.raises(KubernetesError, match="configmaps/demo-provisioned") as caught:
        second.write(ACLS)
    assert caught.value.status == 409
