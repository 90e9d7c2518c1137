"""Options of kazoo's client for TLS, a user and ACLs."""

import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.security import make_digest_acl

from tidemark.runtime.tls import TlsSettings, client_context
from tidemark.runtime.zk_access import DIGEST_SCHEME, ZkAccess

TLS_PREFIX = "zookeeper."


class _TlsHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's threads, with a ``select`` that sees what TLS has decrypted already: kazoo reads one
    response of a record, and would wait for the socket before it reads the others.
    """

    def select(
        self, reading: Sequence[Any], writing: Sequence[Any], failing: Sequence[Any], timeout: Any
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Return the sockets that are ready, at once if there are bytes."""
        pending = [one for one in reading if isinstance(one, ssl.SSLSocket) and one.pending()]
        ready = super().select(reading, writing, failing, 0 if pending else timeout)
        readable = [*pending, *(one for one in ready[0] if one not in pending)]
        return readable, ready[1], ready[2]


def kazoo_options(access: ZkAccess) -> dict[str, Any]:
    """Return the options of KazooClient. Raises TlsError or ZkAccessError for files that cannot be
    used; later ones are read again at every connection.
    """
    options: dict[str, Any] = {}
    if access.has_tls:
        client_context(_settings(access))
        options |= {
            "handler": _TlsHandler(),
            "use_ssl": True,
            "verify_certs": True,
            "check_hostname": True,
            "ca": access.ca or None,
            "certfile": access.certificate or None,
            "keyfile": access.key_file or None,
        }
    credential = access.credential()
    if credential:
        options["auth_data"] = [(DIGEST_SCHEME, credential)]
    if access.sets_acls:
        user, _, password = credential.partition(":")
        options["default_acl"] = [make_digest_acl(user, password, all=True)]
    return options


def _settings(access: ZkAccess) -> TlsSettings:
    certificate, key, ca = (
        Path(path) if path else None for path in (access.certificate, access.key, access.ca)
    )
    return TlsSettings(certificate, key, ca=ca, prefix=TLS_PREFIX)
