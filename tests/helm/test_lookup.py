"""What helm finds in a cluster when it renders: Secrets that values name, by ``lookup``."""

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helm.chart import CHART, NAMESPACE, run_helm

VALUES = Path(__file__).parent / "values"
NOT_FOUND = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound"}
CERTIFICATE = {"tls.crt": "eA==", "tls.key": "eA==", "ca.crt": "eA=="}
PASSWORD = {"password": "eA=="}
Secrets = dict[str, dict[str, str]]


class Cluster:
    """An API server that knows Secrets and one StatefulSet."""

    def __init__(self) -> None:
        self.secrets: Secrets = {}
        self.is_installed = False
        self.address = ""

    def answer(self, path: str) -> dict[str, Any] | None:
        """Document at a path; None if there is none."""
        if path == "/api/v1":
            return resources("v1", "secrets", "Secret")
        if path == "/apis/apps/v1":
            return resources("apps/v1", "statefulsets", "StatefulSet")
        kind, name = path.split("/")[-2:]
        if kind == "secrets" and name in self.secrets:
            return document("v1", "Secret", name, data=self.secrets[name])
        if kind == "statefulsets" and self.is_installed:
            spec = {"replicas": 3}
            return document("apps/v1", "StatefulSet", name, spec=spec)
        return None

    def render(self, values: str) -> str:
        """Why helm refuses these values here; '' if it takes them."""
        ran = run_helm(
            *("template", "demo", str(CHART), "--namespace", NAMESPACE, "--dry-run=server"),
            *("--kube-apiserver", self.address, "--values", str(VALUES / f"{values}.yaml")),
        )
        return ran.stderr if ran.returncode else ""


def resources(version: str, name: str, kind: str) -> dict[str, Any]:
    """Discovery document of an API group with one resource."""
    one = {"name": name, "singularName": kind.lower(), "namespaced": True, "kind": kind}
    listed = [{**one, "verbs": ["get"]}]
    return {"kind": "APIResourceList", "groupVersion": version, "resources": listed}


def document(version: str, kind: str, name: str, **more: Any) -> dict[str, Any]:
    """An object of a release with TLS."""
    metadata = {"name": name, "annotations": {"tidemark/tls": "true"}}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **more}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()

    class Door(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = made.answer(self.path.partition("?")[0])
            body = json.dumps(found or {**NOT_FOUND, "code": 404}).encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Door) as server:
        made.address = f"http://127.0.0.1:{server.server_port}"
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield made
        server.shutdown()
        serving.join()


@pytest.mark.feature("KU06")
@pytest.mark.parametrize(
    ("values", "secrets", "reason"),
    [
        ("given-secrets", {"own-certificate": CERTIFICATE, "own-password": PASSWORD}, ""),
        ("given-secrets", {}, ""),
        (
            "given-secrets",
            {"own-certificate": CERTIFICATE, "own-password": {"user": "eA=="}},
            "auth.existingSecret names the Secret own-password, which has no key password",
        ),
        (
            "given-secrets",
            {"own-certificate": {**CERTIFICATE, "ca.crt": ""}, "own-password": PASSWORD},
            "tls.existingSecret names the Secret own-certificate, which has no key ca.crt: it needs"
            " tls.crt, tls.key, ca.crt",
        ),
        (
            "provisioning",
            {"robert": {"key": "eA=="}},
            "existingSecret of provisioning.users, Robert@example.com, names the Secret robert",
        ),
    ],
)
def test_a_given_secret_without_its_keys_is_refused_where_helm_finds_it(
    cluster: Cluster, values: str, secrets: Secrets, reason: str
) -> None:
    """A Secret that is not there yet is not helm's to refuse at an installation."""
    cluster.secrets = secrets
    refused = cluster.render(values)
    assert reason in refused
    assert bool(reason) == bool(refused), refused


@pytest.mark.feature("KU06")
def test_an_upgrade_is_refused_while_a_given_secret_is_missing(cluster: Cluster) -> None:
    cluster.is_installed = True
    assert "which namespace log does not have: make it before" in cluster.render("given-secrets")
    cluster.secrets = {"own-certificate": CERTIFICATE, "own-password": PASSWORD}
    assert cluster.render("given-secrets") == ""
