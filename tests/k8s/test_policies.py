"""NetworkPolicies of a release, enforced by a controller on each node: who reaches which port."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient
from k8s.cluster_waiting import wait_for
from k8s.conftest import EXTERNAL
from k8s.release import Release, run, write_values
from k8s.test_nodes import lab
from lab import policies
from waiting import PATIENCE_S

STRANGER: Final = "stranger"
"""Namespace, and the pod in it, that is no part of the release."""
SERVED: Final = {"broker": (9092, 9392, 9792), "controller": (8443, 9392)}
"""Ports for everybody in a namespace that is let in."""
OWN: Final = {"broker": (9192, 9292), "controller": (19090,), "zookeeper": (2281, 3888)}
"""Ports of processes among one another."""
_POD: Final = """\
apiVersion: v1
kind: Pod
metadata: {{name: stranger, namespace: {namespace}}}
spec:
  terminationGracePeriodSeconds: 0
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    seccompProfile: {{type: RuntimeDefault}}
  containers:
    - name: stranger
      image: localhost/tidemark:0.1.0
      command: [sleep, infinity]
      securityContext: {{allowPrivilegeEscalation: false, capabilities: {{drop: [ALL]}}}}
"""
_CONNECT: Final = """
import json, socket, sys
reached = []
for name, address, port in json.loads(sys.argv[1]):
    try:
        socket.create_connection((address, port), 20).close()
        reached.append([name, port])
    except OSError:
        pass
print(json.dumps(reached))
"""
Ports = dict[str, tuple[int, ...]]


@pytest.fixture(scope="module")
def strangers(release: Release) -> Iterator[None]:
    """A pod in another namespace, and one in the release's that is no part of it."""
    run("kubectl", "create", "namespace", STRANGER)
    for namespace in (STRANGER, release.name):
        run("kubectl", "apply", "-f", "-", given=_POD.format(namespace=namespace))
        ready = ("wait", "pod/stranger", "--for=condition=Ready", "--timeout=10m")
        run("kubectl", "-n", namespace, *ready)
    yield
    release.kubectl("delete", "pod", "stranger")
    run("kubectl", "delete", "namespace", STRANGER)


@contextmanager
def enforced() -> Iterator[None]:
    """Policies are enforced as long as this lasts."""
    lab("enforce")
    try:
        yield
    finally:
        policies.stop()


def reached(release: Release, namespace: str, ports: Ports) -> set[tuple[str, int]]:
    """Which ports of pods of the release a stranger in a namespace connects to."""
    wanted = [
        (component, pod["status"]["podIP"], port)
        for component, numbers in ports.items()
        for pod in release.pods(component)
        for port in numbers
    ]
    argv = ("kubectl", "-n", namespace, "exec", STRANGER, "--", "python3", "-c", _CONNECT)
    return {(name, port) for name, port in json.loads(run(*argv, json.dumps(wanted)))}


def every(ports: Ports) -> set[tuple[str, int]]:
    """All of some ports."""
    return {(component, port) for component, numbers in ports.items() for port in numbers}


def wait_reached(release: Release, namespace: str, ports: Ports) -> None:
    """Wait until a stranger in a namespace connects to all of some ports."""
    wait_for(lambda: reached(release, namespace, ports) == every(ports))


def wait_refused(release: Release, namespace: str, ports: Ports) -> None:
    """Wait until a stranger in a namespace connects to none of some ports."""
    wait_for(lambda: not reached(release, namespace, ports))


@pytest.mark.feature("KU05", "KU17")
@pytest.mark.usefixtures("strangers")
def test_only_named_namespaces_reach_a_release_and_only_its_own_pods_meet(
    release: Release, tmp_path: Path
) -> None:
    number = release.revision()
    for namespace in (STRANGER, release.name):  # without enforcement nothing is in the way
        wait_reached(release, namespace, SERVED)
        wait_reached(release, namespace, OWN)
    with enforced():
        wait_refused(release, STRANGER, {**SERVED, **OWN})
        wait_refused(release, release.name, OWN)
        wait_reached(release, release.name, SERVED)
        # What belongs together still meets: replication, ZooKeeper, probes, clients outside.
        for component in ("broker", "controller", "zookeeper"):
            release.replace(release.pods(component)[0])
        assert "Succeeded" in release.test()
        assert AdminClient(release.client()).list_topics(timeout=PATIENCE_S).brokers
        allowed = {"allowedNamespaces": [STRANGER]}
        values = write_values(tmp_path / "v.yaml", external=EXTERNAL, networkPolicy=allowed)
        release.install(values)
        wait_reached(release, STRANGER, SERVED)
        wait_refused(release, STRANGER, OWN)
        wait_refused(release, release.name, OWN)
        release.rollback(number)
        wait_refused(release, STRANGER, SERVED)
