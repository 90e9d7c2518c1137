"""Rights of the chart's roll, of its watch over lost nodes and of the Jobs that make Secrets and
count replicas: each works with those of its roles, and with none of them missing.
"""

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from helm.chart import Manifest, named, pods, rendered
from tidemark.cli.k8s import calls
from tidemark.kubernetes.api import Document, KubernetesError, Request
from tidemark.kubernetes.client_files import Addresses
from tidemark.kubernetes.provisioning import ConfigMapNotes
from tidemark.kubernetes.release_secrets import Given, SecretStore, Wanted, keep
from tidemark.kubernetes.work import Surroundings, Work
from tidemark.runtime.clock import Clock
from unit.controller.admin.watched import Watched
from unit.tidemark.kubernetes.memory_api import MemoryApi
from unit.tidemark.kubernetes.test_provisioning import ConfigMaps
from unit.tidemark.kubernetes.test_release_secrets import Secrets
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
        is_outside = "/proxy/" in path or "/secrets/" in path  # not asked for in a pod
        if not is_outside and asked(request.method, urlsplit(path).path) not in self._rights:
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


class LimitedSecrets(Secrets):
    """Secrets, and rights of the caller to some of them by name."""

    def __init__(self, role: Manifest) -> None:
        super().__init__()
        self.rules = role["rules"]

    def send(self, request: Request) -> Document:
        check(self.rules, request)
        return super().send(request)


class LimitedConfigMaps(ConfigMaps):
    """One ConfigMap, and rights of the caller to it by name."""

    def __init__(self, role: Manifest) -> None:
        super().__init__()
        self.rules = role["rules"]

    def send(self, request: Request) -> Document:
        check(self.rules, request)
        return super().send(request)


def check(rules: list[Manifest], request: Request) -> None:
    """Raise KubernetesError without a right to a request for an object of one kind."""
    verb, name = asked(request.method, request.path)[2], request.path.rpartition("/")[2]
    for rule in rules:
        if verb in rule["verbs"] and name in rule.get("resourceNames", [name]):
            return
    raise KubernetesError(403, "Forbidden", f"{verb} {name}")


@pytest.mark.feature("KU17", "KU20")
def test_the_rights_of_provisioning_are_those_to_its_notes() -> None:
    manifests = rendered(DEFAULT.with_name("provisioning.yaml"))
    role = named(manifests, "Role", "demo-provisioning")
    assert {tuple(rule["resources"]) for rule in role["rules"]} == {("configmaps",)}
    (words,) = (
        pod["spec"]["containers"][0]["command"]
        for name, pod in pods(manifests)
        if name == "demo-provisioning-1"
    )
    (name,) = (word.partition("=")[2] for word in words if word.startswith("--notes="))
    api = LimitedConfigMaps(role)
    for _ in range(2):
        notes = ConfigMapNotes(api, "log", name, {})
        notes.read()
        notes.write(frozenset())
    for rule in list(api.rules):
        api.rules.remove(rule)
        api.there = None
        notes = ConfigMapNotes(api, "log", name, {})
        with pytest.raises(KubernetesError, match=r"get|create"):
            notes.write(notes.read())
        api.rules.append(rule)


@pytest.mark.feature("KU17", "SE29")
@pytest.mark.parametrize("values", ["default", "no-logins", "external-zookeeper"])
def test_the_rights_of_the_job_that_makes_secrets_are_those_that_it_needs(values: str) -> None:
    manifests = rendered(DEFAULT.with_name(f"{values}.yaml"))
    (command,) = (
        pod["spec"]["containers"][0]["command"]
        for name, pod in pods(manifests)
        if name == "demo-secrets"
    )
    api = LimitedSecrets(named(manifests, "Role", "demo-secrets"))
    make_secrets(api, command)
    api.data["demo-broker-tls"]["tls.crt"] = ""  # due
    make_secrets(api, command)
    for rule in list(api.rules):
        api.rules.remove(rule)
        api.data.pop("demo-broker-tls", None)
        with pytest.raises(KubernetesError, match=r"demo|create"):
            make_secrets(api, command)
        api.rules.append(rule)


@pytest.mark.feature("KU17", "SE29")
def test_with_cert_manager_the_job_reads_the_authority_and_no_key_of_another_process() -> None:
    manifests = rendered(DEFAULT.with_name("cert-manager.yaml"))
    (command,) = (
        pod["spec"]["containers"][0]["command"]
        for name, pod in pods(manifests)
        if name == "demo-renewal-1"
    )
    api = LimitedSecrets(named(manifests, "Role", "demo-renewal"))
    make_secrets(api, command)
    assert api.data.keys() == {"demo-admin", "demo-zookeeper-user"}
    api.data["demo-operator-tls"] = {"ca.crt": "UEVN"}
    make_secrets(api, command)
    assert "client.properties" in api.data["demo-client"]
    names = {name for rule in api.rules for name in rule.get("resourceNames", ())}
    assert names == api.data.keys()


GIVEN = {
    "own-certificate": {"tls.crt": "Y2VydA==", "tls.key": "a2V5", "ca.crt": "Y2E="},
    "own-password": {"password": "c2VjcmV0"},
}
CHANGED = {
    "default": {"client", "broker-tls", "zookeeper-tls"},
    "given-secrets": {"client", "operator-tls"},
    "cert-manager": {"client"},
    "no-logins": {"broker-tls", "zookeeper-tls"},
    "provisioning": {"client", "user-alice"},
}
"""Some of the Secrets that the Job changes."""


def names_with(role: Manifest, verb: str) -> set[str]:
    return {
        name
        for rule in role["rules"]
        for name in rule.get("resourceNames", ())
        if verb in rule["verbs"]
    }


def job_of(values: str) -> tuple[Manifest, list[str]]:
    """Return the role and the command of the Job that makes Secrets."""
    manifests = rendered(DEFAULT.with_name(f"{values}.yaml"))
    (pod,) = (pod for name, pod in pods(manifests) if name == "demo-secrets")
    return named(manifests, "Role", "demo-secrets"), pod["spec"]["containers"][0]["command"]


@pytest.mark.feature("KU17", "SE29")
@pytest.mark.parametrize("values", CHANGED)
def test_the_job_reads_a_secret_that_is_given_or_made_once_and_cannot_change_it(
    values: str,
) -> None:
    role, _ = job_of(values)
    changed, seen = names_with(role, "patch"), names_with(role, "get")
    once = {"demo-ca", "demo-admin", "demo-zookeeper-user"}
    assert {f"demo-{each}" for each in CHANGED[values]} <= changed <= seen
    assert changed.isdisjoint({*GIVEN, *once})
    assert ("demo-operator-tls" in changed) == (values != "cert-manager")


@pytest.mark.feature("KU17", "SE29")
@pytest.mark.parametrize("values", CHANGED)
def test_the_job_has_rights_to_the_secrets_of_its_release_alone(values: str) -> None:
    role, command = job_of(values)
    api = LimitedSecrets(role)
    given = GIVEN if values == "given-secrets" else {}
    api.data |= {name: dict(content) for name, content in given.items()}
    for _ in range(2):
        make_secrets(api, command)
    assert given.items() <= api.data.items()
    later = {"demo-client", "demo-operator-tls"} if values == "cert-manager" else set()
    assert names_with(role, "get") == api.data.keys() | later


def make_secrets(api: Secrets, command: list[str]) -> None:
    """Make Secrets as the command of the Job does."""
    given = [word.removeprefix("--").partition("=") for word in command if word.startswith("--")]
    options = {key: value for key, _, value in given}
    certificates = calls.read_certificates([text for key, _, text in given if key == "certificate"])
    wanted = Wanted(
        options["name"],
        options.get("user", ""),
        Addresses(options["bootstrap"], ""),
        certificates,
        Given(
            options.get("given-certificate", ""),
            options.get("given-password", ""),
            options.get("authority", ""),
        ),
        [text for key, _, text in given if key == "secret-of"],
    )
    keep(SecretStore(api, options["namespace"], {}), wanted, Clock().wall_ms())


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


@pytest.mark.feature("KU17", "KU24")
def test_the_right_of_the_job_that_counts_replicas_suffices_and_is_needed() -> None:
    around = Surroundings(lambda: False, lambda _: None)
    rights = rights_of("default", ("Role", "demo-can-scale"))
    assert Work(LimitedApi(rights), "log", "demo", around).held_beyond(3) == {}
    with pytest.raises(KubernetesError, match="statefulsets"):
        Work(LimitedApi(frozenset()), "log", "demo", around).held_beyond(3)


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
