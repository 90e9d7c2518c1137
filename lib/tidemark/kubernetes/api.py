"""The API of Kubernetes, as JSON documents: in a pod with its service account, elsewhere with a
kubeconfig and the ``kubernetes`` client, an extra of the library.

A pod does without that client, which is half as large as the image of the services.
"""

import json
import os
import socket
import ssl
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

Document = dict[str, Any]
ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
REQUEST_TIMEOUT_S: Final = 30
ANSWER_BYTES_MAX: Final = 256 * 2**20
MERGE_PATCH: Final = "application/merge-patch+json"


class KubernetesError(Exception):
    """Request that failed. ``status`` is 0 without an answer; ``reason`` is Kubernetes' word."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message or reason)
        self.status = status
        self.reason = reason


class Request(NamedTuple):
    """Request to the API server. ``path`` has its query; ``body`` is a JSON document."""

    method: str
    path: str
    body: Document | None
    headers: Mapping[str, str]


class KubernetesApi(ABC):
    """Requests to the API server."""

    is_inside: bool
    """True in a pod of the cluster, where Services have names."""

    def call(
        self,
        method: str,
        path: str,
        body: Document | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Document:
        """Return the document of an answer. Raises KubernetesError."""
        content = {} if body is None else {"Content-Type": "application/json"}
        merged = {"Accept": "application/json", **content, **(headers or {})}
        return self.send(Request(method, path, body, merged))

    @abstractmethod
    def send(self, request: Request) -> Document:
        """Return the document that a request is answered with. Raises KubernetesError."""


class _Answer(NamedTuple):
    status: int
    content: bytes

    def document(self) -> Document:
        """Return the document. Raises KubernetesError if it reports a failure."""
        try:
            found = json.loads(self.content or b"{}")
        except ValueError:
            found = {"message": self.content[:200].decode(errors="replace")}
        document: Document = found if isinstance(found, dict) else {}
        if self.status >= 300:
            reason = str(document.get("reason", ""))
            raise KubernetesError(self.status, reason, str(document.get("message", "")))
        return document


def is_in_pod() -> bool:
    """True in a pod that has the token of a service account."""
    return "KUBERNETES_SERVICE_HOST" in os.environ and (ACCOUNT / "token").exists()


class PodApi(KubernetesApi):
    """API with the service account of this pod."""

    is_inside = True

    def __init__(self) -> None:
        host = os.environ["KUBERNETES_SERVICE_HOST"]
        host = f"[{host}]" if ":" in host else host
        self._server = f"https://{host}:{os.environ['KUBERNETES_SERVICE_PORT']}"
        self._trusted = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))

    def send(self, request: Request) -> Document:
        """Return the document that a request is answered with. Raises KubernetesError."""
        token = (ACCOUNT / "token").read_text()  # it is replaced every hour
        headers = {**request.headers, "Authorization": f"Bearer {token}"}
        data = None if request.body is None else json.dumps(request.body).encode()
        url = f"{self._server}{request.path}"
        return fetch(
            urllib.request.Request(url, data, headers, method=request.method),
            trusted=self._trusted,
        )


def fetch(request: urllib.request.Request, *, trusted: ssl.SSLContext | None = None) -> Document:
    """Return the document that a request is answered with. Raises KubernetesError."""
    try:
        with urllib.request.urlopen(request, context=trusted, timeout=REQUEST_TIMEOUT_S) as answer:
            return _Answer(answer.status, answer.read(ANSWER_BYTES_MAX)).document()
    except urllib.error.HTTPError as error:
        return _Answer(error.code, error.read(ANSWER_BYTES_MAX)).document()
    except OSError as error:
        raise KubernetesError(0, "", f"{request.host}: {error}") from None


class KubeconfigApi(KubernetesApi):
    """API with a context of a kubeconfig. Raises ImportError without the extra ``k8s``, and
    KubernetesError if there is no such context.
    """

    is_inside = False

    def __init__(self, kubeconfig: str | None, context: str | None) -> None:
        from kubernetes import config

        try:
            self._client = config.new_client_from_config(config_file=kubeconfig, context=context)
        except config.ConfigException as error:
            raise KubernetesError(0, "", str(error)) from None

    @contextmanager
    def forwarded(self, namespace: str, pod: str, port: int) -> Iterator[socket.socket]:
        """Yield a connection to a port of a pod, through the API server. Raises KubernetesError."""
        from kubernetes.client import CoreV1Api
        from kubernetes.client.exceptions import ApiException
        from kubernetes.stream import portforward

        calls = CoreV1Api(self._client).connect_get_namespaced_pod_portforward
        try:
            forward = portforward(calls, pod, namespace, ports=str(port))
        except ApiException as error:
            raise KubernetesError(error.status or 0, error.reason or "", str(error)) from None
        try:
            yield forward.socket(port)
        finally:
            forward.close()

    def send(self, request: Request) -> Document:
        """Return the document that a request is answered with. Raises KubernetesError."""
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        words = self._client.param_serialize(
            request.method,
            request.path,
            header_params=dict(request.headers),
            body=request.body,
            auth_settings=["BearerToken"],
        )
        try:
            answer = self._client.call_api(*words, _request_timeout=REQUEST_TIMEOUT_S)
            content = answer.read()
        except ApiException as error:
            raise KubernetesError(error.status or 0, error.reason or "", str(error)) from None
        except HTTPError as error:
            raise KubernetesError(0, "", str(error)) from None
        return _Answer(answer.status, content).document()
