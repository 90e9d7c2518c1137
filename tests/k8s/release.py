"""A release of the chart on the cluster of `make k8s-up`, by helm and kubectl as an operator."""

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import yaml  # type: ignore[import-untyped]
from k8s.cluster_waiting import wait_for
from lab.control_plane import reclaim_volumes
from lab.settings import NODES_MAX, ROOT, environment, node_address

CHART: Final = ROOT / "helm/tidemark"
ONE_NODE: Final = ROOT / "tests/helm/values/one-node-three-brokers.yaml"
SERVICES: Final = ("broker", "controller", "txn-coordinator", "share-coordinator")
FIRST_NODE_PORT: Final = 31090
RETENTION_CHECK_MS: Final = 10_000
TIDEMARK: Final = Path(sys.executable).with_name("tidemark")

Manifest = dict[str, Any]
Client = dict[str, str | int | float | bool]
"""Configuration of a client."""


def run(*argv: str, given: str | None = None) -> str:
    """Run a program with the cluster's configuration; return what it printed."""
    ran = subprocess.run(
        argv, env=environment(), input=given or "", capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, f"{' '.join(argv)}\n{ran.stdout}{ran.stderr}"
    return ran.stdout


def succeeds(*argv: str) -> bool:
    """True if a program ends with exit code 0."""
    return subprocess.run(argv, env=environment(), capture_output=True, check=False).returncode == 0


def node_count() -> int:
    """Number of nodes of the cluster."""
    return len(run("kubectl", "get", "nodes", "--no-headers").splitlines())


# No pod is admitted that could gain privileges.
_NAMESPACE: Final = """\
apiVersion: v1
kind: Namespace
metadata:
  name: {name}
  labels: {{pod-security.kubernetes.io/enforce: {level}}}
"""


class Release:
    """A release in a namespace of the same name."""

    def __init__(self, name: str, level: str = "restricted") -> None:
        """``level``: of the Pod Security that the namespace enforces."""
        self.name = name
        self._level = level

    # -- helm

    def install(self, values: Path) -> str:
        """Install the chart, or upgrade to these values; return the notes."""
        space = _NAMESPACE.format(name=self.name, level=self._level)
        run("kubectl", "apply", "-f", "-", given=space)
        argv = ("helm", "upgrade", "--install", self.name, str(CHART), "--namespace", self.name)
        return run(*argv, "--values", str(values))

    def revision(self) -> int:
        """Return the number of the installed revision."""
        shown = json.loads(run("helm", "status", self.name, "-n", self.name, "-o", "json"))
        return int(shown["version"])

    def rollback(self, revision: int) -> None:
        """Return to the values of an earlier revision."""
        run("helm", "rollback", self.name, str(revision), "--namespace", self.name)

    def remove_data(self) -> None:
        """Delete the claims, and make the volumes that they had available again."""
        self.kubectl("delete", "pvc", "--all")

        def look() -> bool:
            volumes = json.loads(run("kubectl", "get", "pv", "-o", "json"))["items"]
            bound = [it for it in volumes if it["status"]["phase"] == "Bound"]
            return self.name not in {it["spec"]["claimRef"]["namespace"] for it in bound}

        wait_for(look, lambda: run("kubectl", "get", "pv"))
        reclaim_volumes()

    def uninstall(self) -> None:
        """Uninstall, and wait until no pod is left."""
        run("helm", "uninstall", self.name, "--namespace", self.name)
        wait_for(lambda: not self.pods(), "pods stay after uninstall")

    def test(self) -> str:
        """Run the chart's test; return what helm says of it."""
        return run("helm", "test", self.name, "--namespace", self.name)

    # -- kubectl

    def kubectl(self, *words: str) -> str:
        """Run kubectl in the namespace."""
        return run("kubectl", "-n", self.name, *words)

    def objects(self, *words: str) -> list[Manifest]:
        """Return objects of a kind."""
        items: list[Manifest] = json.loads(self.kubectl("get", *words, "-o", "json"))["items"]
        return items

    def pods(self, component: str | None = None) -> list[Manifest]:
        """Return the pods of the release, or those of one component."""
        label = f"app.kubernetes.io/instance={self.name}"
        more = f",app.kubernetes.io/component={component}" if component else ""
        return self.objects("pods", "-l", label + more)

    def tidemark(self, *words: str, given: str | None = None) -> str:
        """Run the command line in a pod of a controller."""
        argv = [*self._exec(), "--", "tidemark", *words]
        return run(*argv, given=given)

    def k8s(self, command: str, *words: str) -> str:
        """Run `tidemark k8s` on this machine; return what it printed, stderr too. Fails as it does
        with an AssertionError that has its output.
        """
        argv = (str(TIDEMARK), "k8s", command, self.name, *words, "--namespace", self.name)
        return run("sh", "-c", '"$@" 2>&1', "sh", *argv)

    def says(self, *words: str) -> bool:
        """True if the command line, run in a pod, ends with exit code 0."""
        return succeeds(*self._exec(), "--", "tidemark", *words)

    def _exec(self) -> list[str]:
        running = [_name_of(pod) for pod in self.pods("controller") if is_running(pod)]
        return ["kubectl", "-n", self.name, "exec", "-i", *running[:1]]

    @property
    def outside(self) -> str:
        """Addresses for clients outside of the cluster, by NodePort."""
        by_id = {pod["metadata"]["name"]: pod["status"]["hostIP"] for pod in self.pods("broker")}
        return ",".join(
            f"{by_id[name]}:{port}" for port, name in enumerate(sorted(by_id), FIRST_NODE_PORT)
        )

    def secret(self, name: str, key: str) -> str:
        """Return a key of a Secret."""
        found = json.loads(self.kubectl("get", "secret", name, "-o", "json"))["data"]
        return base64.b64decode(found[key]).decode()

    def client(self) -> Client:
        """Configuration of librdkafka for a client outside, as the super user."""
        lines = self.secret(f"{self.name}-client", "client.conf").splitlines()
        found: Client = {name: value for name, _, value in (line.partition("=") for line in lines)}
        del found["ssl.ca.location"]
        authority = self.secret(f"{self.name}-client", "ca.crt")
        return {**found, "bootstrap.servers": self.outside, "ssl.ca.pem": authority}

    def restarts(self, name: str) -> int:
        """Return how often the containers of a pod were started again."""
        (pod,) = (it for it in self.pods() if _name_of(it) == name)
        return sum(it["restartCount"] for it in pod["status"]["containerStatuses"])

    # -- waits

    def wait_ready(self) -> None:
        """Wait until every pod of every StatefulSet is ready, and all replicas are in sync."""
        sets = self.objects("statefulsets")
        wanted = sum(it["spec"]["replicas"] for it in sets)

        def look() -> bool:
            pods = [pod for pod in self.pods() if is_of_set(pod)]
            return len(pods) == wanted and all(map(is_ready, pods))

        wait_for(look, lambda: self.kubectl("get", "pods"))
        self.wait_says("cluster", "health")

    def wait_updated(self) -> None:
        """Wait until no pod runs an older revision, and everything is ready.

        Pods are waited for one after another, as they are restarted.
        """
        left = self._outdated()
        while left:
            before = left
            wait_for(lambda: self._outdated() < before, lambda: self.kubectl("get", "pods"))  # noqa: B023
            left = self._outdated()
        self.wait_ready()

    def _outdated(self) -> int:
        """Return how many pods of StatefulSets are missing, or run an older revision."""
        sets = self.objects("statefulsets")
        newest = {it["status"]["updateRevision"] for it in sets}
        updated = [it for it in self.pods() if it["metadata"]["labels"].get(_REVISION) in newest]
        unseen = [it for it in sets if it["status"]["observedGeneration"] != _generation(it)]
        wanted: int = sum(it["spec"]["replicas"] for it in sets)
        return wanted - len(updated) + len(unseen)

    def wait_says(self, *words: str) -> None:
        """Wait until the command line ends with exit code 0."""
        wait_for(lambda: self.says(*words), " ".join(words))

    def replace(self, pod: Manifest, *more: str) -> None:
        """Delete a pod, and wait until another one of its name is ready, and replicas in sync."""
        name = _name_of(pod)
        self.kubectl("delete", "pod", name, "--wait=false", *more)

        def look() -> bool:
            found = [it for it in self.pods() if _name_of(it) == name]
            return bool(found) and is_ready(found[0]) and _uid(found[0]) != _uid(pod)

        wait_for(look, lambda: self.kubectl("describe", "pod", name))
        self.wait_says("cluster", "health")


_POD_OF: Final = "apps.kubernetes.io/pod-index"
_REVISION: Final = "controller-revision-hash"


def is_ready(pod: Manifest) -> bool:
    """True if a pod is ready and not being deleted."""
    conditions = pod["status"].get("conditions", ())
    ready = any(it["type"] == "Ready" and it["status"] == "True" for it in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]


def is_of_set(pod: Manifest) -> bool:
    """True if a pod is one of a StatefulSet."""
    return _POD_OF in pod["metadata"]["labels"]


def is_running(pod: Manifest) -> bool:
    """True if the containers of a pod run and are not being ended."""
    return pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]


def _name_of(pod: Manifest) -> str:
    name: str = pod["metadata"]["name"]
    return name


def _uid(pod: Manifest) -> str:
    uid: str = pod["metadata"]["uid"]
    return uid


def _generation(manifest: Manifest) -> int:
    generation: int = manifest["metadata"]["generation"]
    return generation


def write_values(path: Path, **values: object) -> Path:
    """Write values for this cluster: the chart's defaults, or those for a single node; the
    addresses of nodes for certificates; and retention that is looked at often.
    """
    text = yaml.safe_load(ONE_NODE.read_text()) if node_count() < 3 else {}
    common: Manifest = {
        "tls": {"hosts": [node_address(number + 1) for number in range(NODES_MAX)]},
        "broker": {"config": {"log.retention.check.interval.ms": RETENTION_CHECK_MS}},
    }
    path.write_text(yaml.safe_dump(merged(merged(text, common), values)))
    return path


def merged(one: Manifest, other: Manifest) -> Manifest:
    """Values of both, those of the other first, as helm merges them."""
    found = {**one, **other}
    for key in one.keys() & other.keys():
        if isinstance(one[key], dict) and isinstance(other[key], dict):
            found[key] = merged(one[key], other[key])
    return found
