"""Secrets of a release, as the chart's Jobs keep them: an authority, certificates, passwords, and
configurations of clients.

What is there is kept: passwords and the authority for ever, a certificate until it is due.
"""

import base64
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote

from tidemark.kubernetes.api import MERGE_PATCH, Document, KubernetesApi, KubernetesError
from tidemark.kubernetes.client_files import Addresses, client_files
from tidemark.model.ids import WallMs

if TYPE_CHECKING:
    from tidemark.runtime.certificate_authority import Authority

CERTIFICATE_DAYS: Final = 365
CERTIFICATE, KEY, CA = "tls.crt", "tls.key", "ca.crt"
PASSWORD: Final = "password"
OPERATOR: Final = "operator"
"""Component of the certificate that ``tidemark k8s`` shows to REST."""
ZOOKEEPER_USER: Final = "tidemark"
_PASSWORD_BYTES: Final = 24
_NOT_FOUND: Final = 404

Content = dict[str, bytes]
"""Content of a Secret by key."""


class Given(NamedTuple):
    """Secrets that the operator made and that are only read; '' for none."""

    certificate: str
    """That of all processes, and of operators; ``ca.crt`` in it is what clients trust."""
    password: str
    authority: str = ""
    """One that cert-manager keeps, with the ``ca.crt`` that clients trust. It may come later."""

    @property
    def has_certificates(self) -> bool:
        """True if another one makes the certificates."""
        return bool(self.certificate or self.authority)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Secrets that a release needs. ``certificates``: host names and addresses by component."""

    name: str
    """Begin of the names of all Secrets."""
    user: str
    """Super user, as whom clients log in; '' without logins."""
    addresses: Addresses
    certificates: Mapping[str, Sequence[str]]
    given: Given
    users: Sequence[str] = ()
    """Further users, each with a Secret of its own."""


class SecretStore:
    """Secrets of one namespace. All calls raise KubernetesError."""

    def __init__(self, api: KubernetesApi, namespace: str, labels: Mapping[str, str]) -> None:
        self._api = api
        self._path = f"/api/v1/namespaces/{quote(namespace)}/secrets"
        self._labels = dict(labels)

    def read(self, name: str) -> Content | None:
        """Return a Secret; None if there is none."""
        try:
            found = self._api.call("GET", f"{self._path}/{quote(name)}")
        except KubernetesError as error:
            if error.status == _NOT_FOUND:
                return None
            raise
        return {key: base64.b64decode(text) for key, text in (found.get("data") or {}).items()}

    def authority(self, name: str) -> bytes:
        """Return the authority in a Secret that another one makes; b"" while there is none."""
        return (self.read(name) or {}).get(CA, b"")

    def create(self, name: str, content: Content) -> None:
        """Make a Secret. It is no object of helm's: it outlives the release, as claims do."""
        body: Document = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "labels": self._labels},
            "type": "Opaque",
            "data": _encoded(content),
        }
        self._api.call("POST", self._path, body)

    def replace(self, name: str, content: Content, gone: Iterable[str] = ()) -> None:
        """Change all keys at once, and remove those that are gone."""
        body: Document = {"data": {**_encoded(content), **dict.fromkeys(gone)}}
        path = f"{self._path}/{quote(name)}"
        self._api.call("PATCH", path, body, {"Content-Type": MERGE_PATCH})


def keep(store: SecretStore, wanted: Wanted, now_ms: WallMs) -> list[str]:
    """Make what is missing, and replace certificates that are due. Return a line for each change.

    Configurations of clients are left out while the given authority is not there. Raises
    KubernetesError; what was made until then is kept by the next call.
    """
    done = _Keeper(store, [])
    authority = done.certificates(wanted, now_ms)
    if wanted.given.certificate:
        own = {key: done.given(wanted.given.certificate, key) for key in (CERTIFICATE, KEY, CA)}
        done.same(f"{wanted.name}-{OPERATOR}-tls", own)
        authority = own[CA]
    if wanted.given.authority:
        authority = store.authority(wanted.given.authority)
    if "zookeeper" in wanted.certificates or wanted.given.has_certificates:
        digest = f"{ZOOKEEPER_USER}:{_password()}".encode()
        done.once(f"{wanted.name}-zookeeper-user", {"digest": digest})
    if wanted.user:
        name = wanted.given.password or f"{wanted.name}-admin"
        if not wanted.given.password:
            done.once(name, {PASSWORD: _password().encode()})
        for user in wanted.users:
            done.once(user_secret(wanted.name, user), {PASSWORD: _password().encode()})
        if wanted.given.authority and not authority:
            done.lines.append(
                f"Secret {wanted.given.authority} has no {CA} yet: configurations of clients come"
                " later"
            )
            return done.lines
        files = done.client_files(wanted, wanted.user, name, authority)
        done.same(f"{wanted.name}-client", files)
        for user in wanted.users:
            secret = user_secret(wanted.name, user)
            kept = {PASSWORD: done.given(secret, PASSWORD)}
            done.same(secret, kept | done.client_files(wanted, user, secret, authority))
    return done.lines


def user_secret(name: str, user: str) -> str:
    """Return the name of a user's Secret."""
    return f"{name}-user-{user}"


class _Keeper(NamedTuple):
    store: SecretStore
    lines: list[str]

    def certificates(self, wanted: Wanted, now_ms: WallMs) -> bytes:
        """Keep the authority and what it issues; return its certificate, b"" without any."""
        if not wanted.certificates:
            return b""
        # Controllers, which read such Secrets too, never need its library.
        from tidemark.runtime.certificate_authority import Authority, Identity

        name = f"{wanted.name}-ca"
        if self.store.read(name) is None:
            made = Authority.create(f"{wanted.name} authority", now_ms).identity
            self.once(name, {CERTIFICATE: made.certificate, KEY: made.key})
        kept = Identity(self.given(name, CERTIFICATE), self.given(name, KEY))
        authority = Authority.load(kept, now_ms)
        for component, hosts in wanted.certificates.items():
            self._certificate(f"{wanted.name}-{component}", hosts, authority)
        return kept.certificate

    def _certificate(self, subject: str, hosts: Sequence[str], authority: "Authority") -> None:
        name = f"{subject}-tls"
        found = self.store.read(name)
        if found is not None and not authority.is_due(found.get(CERTIFICATE, b""), hosts):
            return
        issued = authority.server(subject, hosts, CERTIFICATE_DAYS)
        trusted = authority.identity.certificate
        if found is not None and CA in found and trusted.strip() not in found[CA]:
            trusted = found[CA].rstrip() + b"\n" + trusted  # also the authority before
        content = {CERTIFICATE: issued.certificate, KEY: issued.key, CA: trusted}
        self._write(name, content, found)

    def once(self, name: str, content: Content) -> None:
        """Make a Secret if there is none."""
        if self.store.read(name) is None:
            self._write(name, content, None)

    def same(self, name: str, content: Content) -> None:
        """Make a Secret, or change it if it has something else."""
        found = self.store.read(name)
        if found != content:
            self._write(name, content, found)

    def client_files(self, wanted: Wanted, user: str, secret: str, authority: bytes) -> Content:
        """Return configurations of clients that log in with the password in a Secret."""
        password = self.given(secret, PASSWORD).decode().strip()
        files = client_files(wanted.addresses, user, password, authority.decode())
        return {key: text.encode() for key, text in files.items()}

    def given(self, name: str, key: str) -> bytes:
        """Return a key of a Secret. Raises KubernetesError, with what is missing."""
        found = self.store.read(name)
        if found is None or not found.get(key):
            raise KubernetesError(_NOT_FOUND, "NotFound", f"Secret {name} needs the key {key}")
        return found[key]

    def _write(self, name: str, content: Content, found: Content | None) -> None:
        if found is None:
            self.store.create(name, content)
        else:
            self.store.replace(name, content, found.keys() - content.keys())
        self.lines.append(f"Secret {name} {'made' if found is None else 'changed'}")


def _password() -> str:
    return secrets.token_urlsafe(_PASSWORD_BYTES)


def _encoded(content: Content) -> dict[str, str]:
    return {key: base64.b64encode(value).decode() for key, value in content.items()}
