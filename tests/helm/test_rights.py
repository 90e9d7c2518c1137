"""Rights of the chart's roll: it works with those of its Role, and with none of them missing."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from helm.chart import named, rendered
from tidemark.kubernetes.api import Document, KubernetesError, Request
from tidemark.kubernetes.work import Surroundings, Work
from unit.tidemark.kubernetes.memory_api import MemoryApi

DEFAULT = Path(__file__).parent / "values/default.yaml"
Right = tuple[str, str, str]
"""API group, resource with its subresource, and verb."""


class LimitedApi(MemoryApi):
    """An API server that knows the rights of its caller."""

    def __init__(self, rights: frozenset[Right]) -> None:
        super().__init__()
        self._rights = rights

    def send(self, request: Request) -> Document:
        path = request.path
        if "/proxy/" not in path and asked(request.method, urlsplit(path).path) not in self._rights:
            raise KubernetesError(403, "Forbidden", f"{request.method} {path}")
        return super().send(request)


def asked(method: str, path: str) -> Right:
    """Right that a request needs, as Kubernetes' authorisation sees it."""
    start, _, rest = path.partition("/namespaces/")
    words = rest.split("/")[1:]
    group = start.split("/")[2] if start.startswith("/apis/") else ""
    resource = f"{words[0]}/{words[2]}" if len(words) > 2 else words[0]
    reads = "list" if len(words) == 1 else "get"
    return group, resource, {"GET": reads, "POST": "create", "DELETE": "delete"}[method]


def rights_of_the_roll() -> frozenset[Right]:
    """The rules of its Role, one by one."""
    rules = named(rendered(DEFAULT), "Role", "demo-roll")["rules"]
    return frozenset(
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    )


def roll(rights: frozenset[Right]) -> int:
    """Restart what an upgrade has changed, with these rights."""
    around = Surroundings(lambda: False, lambda _: None)
    return Work(LimitedApi(rights), "log", "demo", around).roll(again=False)


@pytest.mark.feature("KU17")
def test_the_rights_of_the_roll_suffice() -> None:
    assert roll(rights_of_the_roll()) == 2


@pytest.mark.feature("KU17")
def test_with_any_right_fewer_the_roll_fails() -> None:
    rights = rights_of_the_roll()
    for right in rights:
        with pytest.raises(KubernetesError, match=right[1].rpartition("/")[2]):
            roll(rights - {right})
