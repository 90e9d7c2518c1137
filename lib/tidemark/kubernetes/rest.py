"""Ways to the REST of a release's controllers: in a pod through their Service, elsewhere through
the API server, which forwards a port of a controller if REST has TLS: its proxy of Services would
show no certificate.
"""

import http.client
import json
import ssl
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Protocol

from tidemark.kubernetes.api import (
    ANSWER_BYTES_MAX,
    REQUEST_TIMEOUT_S,
    Document,
    KubeconfigApi,
    KubernetesApi,
    KubernetesError,
    fetch,
)
from tidemark.kubernetes.release_secrets import (
    CA,
    CERTIFICATE,
    KEY,
    OPERATOR,
    Content,
    SecretStore,
)

PORT: Final = 8080
TLS_PORT: Final = 8443


class Rest(Protocol):
    """REST of the controllers."""

    def get(self, path: str) -> Document:
        """Return the answer to GET. Raises KubernetesError without one."""


class ServiceRest:
    """REST through the Service, in the cluster. ``trusted``: TLS, with the own certificate."""

    def __init__(self, host: str, trusted: ssl.SSLContext | None) -> None:
        scheme, port = ("http", PORT) if trusted is None else ("https", TLS_PORT)
        self._base = f"{scheme}://{host}:{port}"
        self._trusted = trusted

    def get(self, path: str) -> Document:
        """Return the answer to GET. Raises KubernetesError without one."""
        return fetch(urllib.request.Request(self._base + path), trusted=self._trusted)


class ProxiedRest:
    """REST without TLS, through the API server's proxy of the Service."""

    def __init__(self, api: KubernetesApi, namespace: str, service: str) -> None:
        self._api = api
        self._path = f"/api/v1/namespaces/{namespace}/services/{service}:{PORT}/proxy"
        self._host = f"{service}.{namespace}.svc"

    def get(self, path: str) -> Document:
        """Return the answer to GET. Raises KubernetesError without one."""
        return self._api.call("GET", self._path + path, None, {"Host": self._host})


class ForwardedRest:
    """REST with TLS, at a port of a controller's pod that the API server forwards. The certificate
    that the chart made for operators is shown there.
    """

    def __init__(self, api: KubeconfigApi, namespace: str, service: str, identity: Content) -> None:
        self._api = api
        self._namespace = namespace
        self._host = f"{service}.{namespace}.svc"
        self._controllers = (
            f"/api/v1/namespaces/{namespace}/pods"
            "?labelSelector=app.kubernetes.io%2Fcomponent%3Dcontroller"
        )
        self._prefix = service.removesuffix("-rest") + "-controller-"
        self._trusted = _context(identity)

    def get(self, path: str) -> Document:
        """Return the answer to GET. Raises KubernetesError without one."""
        with self._connected() as connection:
            connection.request("GET", path, headers={"Host": self._host})
            answer = connection.getresponse()
            content = answer.read(ANSWER_BYTES_MAX)
            if answer.status != http.client.OK:
                raise KubernetesError(answer.status, "", f"REST: {content[:200]!r}")
            document: Document = json.loads(content)
            return document

    @contextmanager
    def _connected(self) -> Iterator[http.client.HTTPSConnection]:
        """Yield a connection to the first ready controller."""
        pod = self._ready_pod()
        with self._api.forwarded(self._namespace, pod, TLS_PORT) as plain:
            plain.settimeout(REQUEST_TIMEOUT_S)
            connection = http.client.HTTPSConnection(self._host, context=self._trusted)
            try:
                connection.sock = self._trusted.wrap_socket(plain, server_hostname=self._host)
                yield connection
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise KubernetesError(0, "", f"{pod}: {error}") from None
            finally:
                connection.close()

    def _ready_pod(self) -> str:
        found = self._api.call("GET", self._controllers)
        for item in found["items"]:
            conditions = item.get("status", {}).get("conditions", ())
            is_ready = any(it["type"] == "Ready" and it["status"] == "True" for it in conditions)
            name = str(item["metadata"]["name"])
            if is_ready and name.startswith(self._prefix):
                return name
        raise KubernetesError(0, "", "no controller is ready")


def open_rest(
    api: KubernetesApi, namespace: str, service: str, trusted: ssl.SSLContext | None
) -> Rest:
    """Return the way to the REST of a Service. ``trusted``: TLS of this pod. Raises
    KubernetesError.
    """
    if api.is_inside:
        return ServiceRest(f"{service}.{namespace}.svc", trusted)
    identity = _operator(api, namespace, service.removesuffix("-rest"))
    if identity is None or not isinstance(api, KubeconfigApi):
        return ProxiedRest(api, namespace, service)
    return ForwardedRest(api, namespace, service, identity)


def _operator(api: KubernetesApi, namespace: str, name: str) -> Content | None:
    """Return the certificate for operators; None if the release has no TLS."""
    found = SecretStore(api, namespace, {}).read(f"{name}-{OPERATOR}-tls")
    return found if found and {CA, CERTIFICATE, KEY} <= found.keys() else None


def _context(identity: Content) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=identity[CA].decode())
    with TemporaryDirectory() as directory:  # OpenSSL takes a chain from files only
        certificate, key = Path(directory, CERTIFICATE), Path(directory, KEY)
        certificate.write_bytes(identity[CERTIFICATE])
        key.touch(0o600)
        key.write_bytes(identity[KEY])
        context.load_cert_chain(certificate, key)
    return context
