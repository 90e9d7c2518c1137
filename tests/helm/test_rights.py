"""Rights of the chart's roll and of its watch over lost nodes: each works with those of its roles,
and with none of them missing.
"""

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from helm.chart import named, rendered
from tidemark.kubernetes.api import Document, KubernetesError, Request
from tidemark.kubernetes.work import Surroundings, Work
from unit.controller.admin.watched import Watched
from unit.tidemark.kubernetes.memory_api import MemoryApi
from virtual_time import run_virtual

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
    words = rest.split("/")[1:] if rest else path.split("/")[3:]
    group = start.split("/")[2] if start.startswith("/apis/") else ""
    resource = f"{words[0]}/{words[2]}" if len(words) > 2 else words[0]
    reads = "list" if len(words) == 1 else "get"
    verbs = {"GET": reads, "POST": "create", "DELETE": "delete", "PATCH": "patch"}
    return group, resource, verbs[method]


def rights_of(values: str, *roles: tuple[str, str]) -> frozenset[Right]:
    """The rules of roles, by their kinds and names, one by one."""
    manifests = rendered(DEFAULT.with_name(f"{values}.yaml"))
    return frozenset(
        (group, resource, verb)
        for kind, name in roles
        for rule in named(manifests, kind, name)["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    )


def rights_of_the_roll() -> frozenset[Right]:
    return rights_of("default", ("Role", "demo-roll"))


def rights_of_the_watch() -> frozenset[Right]:
    return rights_of(
        "lost-nodes",
        ("Role", "demo-controller"),
        ("ClusterRole", "log-demo-controller-lost-nodes"),
    )


def roll(rights: frozenset[Right]) -> int:
    """Restart what an upgrade has changed, with these rights."""
    around = Surroundings(lambda: False, lambda _: None)
    return Work(LimitedApi(rights), "log", "demo", around).roll(again=False)


def replace(rights: frozenset[Right]) -> Watched:
    """Replace what a lost node had, by the watch of a controller with these rights."""
    api = LimitedApi(rights)
    api.lose_node()
    watched = Watched(api)
    run_virtual(watched.run(until_s=300))
    return watched


@pytest.mark.feature("KU17")
def test_the_rights_of_the_roll_suffice() -> None:
    assert roll(rights_of_the_roll()) == 2


@pytest.mark.feature("KU17")
def test_with_any_right_fewer_the_roll_fails() -> None:
    rights = rights_of_the_roll()
    for right in rights:
        with pytest.raises(KubernetesError, match=right[1].rpartition("/")[2]):
            roll(rights - {right})


@pytest.mark.feature("KU17", "KU29")
def test_the_rights_of_the_watch_over_lost_nodes_suffice() -> None:
    watched = replace(rights_of_the_watch())
    assert watched.steps == {"VolumeRetained": 1, "ClaimDeleted": 1, "PodDeleted": 1}
    assert watched.failures == 0
    assert "NodeReplaced" in watched.events()


@pytest.mark.feature("KU17", "KU29")
def test_with_any_right_fewer_the_watch_over_lost_nodes_fails() -> None:
    rights = rights_of_the_watch()
    assert len(rights) == 9
    for right in rights:
        watched = replace(rights - {right})
        assert watched.failures > 0, right
        assert "NodeReplaced" not in watched.events(), right
