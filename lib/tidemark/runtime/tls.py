"""TLS contexts and gRPC credentials, from PEM files, for TLS 1.2 and later. No other module creates
them. gRPC is imported by those that need it: clients over Kafka's protocol start without it.

A server's files are read again when they have changed, for connections made from then on. Files
that cannot be used (a certificate is replaced before its key) leave the loaded ones in force.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from tidemark.runtime.exit_codes import ExitCode
from tidemark.runtime.telemetry import fields

if TYPE_CHECKING:
    import grpc

log = logging.getLogger(__name__)

_CERTIFICATE: Final = "ssl.certificate.location"
_KEY: Final = "ssl.key.location"
_PASSWORD: Final = "ssl.key.password"
_CA: Final = "ssl.ca.location"

LOOK_S: Final = 1.0
"""Interval at which the files of channels are looked at, while calls are made."""

_Stamp = tuple[tuple[int, int, int], ...]
"""Inode, size and modification time of each file; zeros for a missing file."""


class TlsError(Exception):
    """The TLS configuration cannot be used. The message names the key and the file."""

    exit_code = ExitCode.CONFIG


class ClientAuth(StrEnum):
    """Certificates that a server requests from clients: Kafka's ssl.client.auth."""

    NONE = "none"
    REQUESTED = "requested"
    """A client may omit its certificate; one that is sent must be valid."""
    REQUIRED = "required"


_VERIFY_MODES: Final[Mapping[ClientAuth, ssl.VerifyMode]] = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}


class TlsSettings(NamedTuple):
    """PEM files of the own identity and of trusted authorities."""

    certificate: Path | None = None
    """Certificates: the leaf first, then the intermediate ones."""
    key: Path | None = None
    """Private key; None if it is in ``certificate``, too."""
    key_password: str = ""
    ca: Path | None = None
    """Authorities of peers' certificates. With None a client uses those of the system."""
    client_auth: ClientAuth = ClientAuth.NONE
    prefix: str = ""
    """Begin of the options' names in messages: ``grpc.`` for grpc.ssl.key.location."""


class TlsOptions(Protocol):
    """Options of a service or of a client."""

    @property
    def ssl_certificate_location(self) -> str:
        """PEM file; '' for none, as in the others."""

    @property
    def ssl_key_location(self) -> str:
        """PEM file."""

    @property
    def ssl_key_password(self) -> str:
        """Password of the private key."""

    @property
    def ssl_ca_location(self) -> str:
        """PEM file."""


def tls_settings(config: TlsOptions, client_auth: str = ClientAuth.NONE) -> TlsSettings:
    """Return the settings of a configuration."""
    certificate, key, ca = (
        Path(path) if path else None
        for path in (
            config.ssl_certificate_location,
            config.ssl_key_location,
            config.ssl_ca_location,
        )
    )
    return TlsSettings(certificate, key, config.ssl_key_password, ca, ClientAuth(client_auth))


class ServerTls:
    """TLS of a server. The constructor raises TlsError for files that cannot be used."""

    def __init__(self, settings: TlsSettings) -> None:
        if settings.certificate is None:
            raise TlsError(
                f"{settings.prefix}{_CERTIFICATE} must be set: a server needs a certificate"
            )
        if settings.client_auth is not ClientAuth.NONE and settings.ca is None:
            raise TlsError(
                f"{settings.prefix}{_CA} must be set: with ssl.client.auth={settings.client_auth}"
                " clients are checked against it"
            )
        self._settings = settings
        self._loaded = _load_server(settings)
        self._seen = self._loaded.stamp
        self.context = _load_server(settings).context
        """Context for a listener's lifetime: each handshake uses the newest files."""
        self.context.sni_callback = self._on_handshake

    def reload(self) -> bool:
        """Load the files as they are now; return False if they have not changed.

        If they cannot be used, raises TlsError and keeps the loaded ones.
        """
        if _stamp(self._settings) == self._loaded.stamp:
            return False
        self._loaded = _load_server(self._settings)
        return True

    def maybe_reload(self) -> None:
        """Reload before a handshake. Files that cannot be used are logged once for each change.

        gRPC performs handshakes in its own threads; two at once may both read the same files.
        """
        seen = _stamp(self._settings)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            if self.reload():
                log.info("TLS files reloaded", extra=fields(path=str(self._settings.certificate)))
        except TlsError as error:
            log.warning("TLS files cannot be used", extra=fields(reason=str(error)))

    def _on_handshake(
        self, connection: ssl.SSLSocket | ssl.SSLObject, _: str | None, __: ssl.SSLContext
    ) -> None:
        """Use the newest files. OpenSSL calls it before every certificate, even without SNI."""
        self.maybe_reload()
        connection.context = self._loaded.context

    def credentials(self) -> grpc.ServerCredentials:
        """Return credentials for a gRPC server, with the newest files at each handshake. Raises
        TlsError.

        gRPC either requires a client certificate or requests none: it treats ``requested`` as
        ``none``.
        """
        import grpc

        given = self._loaded.pems

        def newest() -> grpc.ServerCertificateConfiguration | None:
            nonlocal given
            self.maybe_reload()
            found = self._loaded.pems
            if found is given:
                return None
            given = found
            try:
                return _for_grpc(found)
            except TlsError as error:
                log.warning("TLS files cannot be used", extra=fields(reason=str(error)))
                return None

        return grpc.dynamic_ssl_server_credentials(
            _for_grpc(given),
            newest,  # type: ignore[arg-type]  # gRPC takes None for: no change
            require_client_authentication=self._settings.client_auth is ClientAuth.REQUIRED,
        )


def client_context(settings: TlsSettings, *, check_host: bool = True) -> ssl.SSLContext:
    """Return a context for a client's sockets. The server's certificate is always verified; its
    host name too, unless ``check_host`` is False (in Kafka, an empty
    ssl.endpoint.identification.algorithm).

    Raises TlsError.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = check_host
    if settings.ca is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    _load(context, settings)
    return context


class ChannelTls:
    """TLS of gRPC channels. Files that have changed are used by channels that are opened then.

    The constructor raises TlsError for files that cannot be used.
    """

    def __init__(self, settings: TlsSettings) -> None:
        self._settings = settings
        self._seen = _stamp(settings)
        self._credentials = channel_credentials(settings)
        self._generation = 1
        self._look_at = 0.0

    def newest(self, now_s: float) -> tuple[int, grpc.ChannelCredentials]:
        """Return the credentials, and a number that grows when they change. Looks at the files at
        most once in LOOK_S; those that cannot be used are logged once for each change.
        """
        if now_s >= self._look_at:
            self._look_at = now_s + LOOK_S
            self._maybe_reload()
        return self._generation, self._credentials

    def _maybe_reload(self) -> None:
        seen = _stamp(self._settings)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._credentials = channel_credentials(self._settings)
        except TlsError as error:
            log.warning("TLS files cannot be used", extra=fields(reason=str(error)))
            return
        self._generation += 1
        log.info("TLS files reloaded", extra=fields(path=str(self._settings.certificate)))


def channel_credentials(settings: TlsSettings) -> grpc.ChannelCredentials:
    """Return credentials for gRPC channels, with the files as they are now. Raises TlsError."""
    import grpc

    pems = _load(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), settings)
    return grpc.ssl_channel_credentials(
        pems.ca, _for_grpc_key(pems) or None, pems.certificate or None
    )


class _Pems(NamedTuple):
    """Contents of the files."""

    certificate: bytes
    key: bytes
    ca: bytes | None


class _Loaded(NamedTuple):
    context: ssl.SSLContext
    pems: _Pems
    stamp: _Stamp
    """Stamp of the files before they were read: a file changed meanwhile is read again."""


def _load_server(settings: TlsSettings) -> _Loaded:
    stamp = _stamp(settings)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Connections live long, and a resumed session's certificate would not be checked again.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    context.verify_mode = _VERIFY_MODES[settings.client_auth]
    return _Loaded(context, _load(context, settings), stamp)


def _load(context: ssl.SSLContext, settings: TlsSettings) -> _Pems:
    """Load the files into ``context``. Raises TlsError, which names the key and the file."""
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    pems = _read(settings)
    if pems.ca is not None:
        try:
            context.load_verify_locations(cadata=pems.ca.decode("ascii", "replace"))
        except (ssl.SSLError, ValueError):
            raise TlsError(
                f"{settings.prefix}{_CA}: {settings.ca} contains no usable PEM certificate"
            ) from None
    if settings.certificate is not None:
        # A function: without a password OpenSSL would prompt for one at the terminal.
        try:
            context.load_cert_chain(
                settings.certificate, settings.key, password=lambda: settings.key_password
            )
        except (ssl.SSLError, OSError, ValueError) as error:
            raise TlsError(_why_not_loaded(settings, pems, error)) from None
    return pems


def _read(settings: TlsSettings) -> _Pems:
    """Read the files. Raises TlsError for one that cannot be read."""
    certificate = b""
    if settings.certificate is not None:
        certificate = _bytes_of(settings.certificate, settings.prefix + _CERTIFICATE)
    key = certificate
    if settings.key is not None:
        key = _bytes_of(settings.key, settings.prefix + _KEY)
    ca = None if settings.ca is None else _bytes_of(settings.ca, settings.prefix + _CA)
    return _Pems(certificate, key, ca)


def _bytes_of(path: Path, key: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise TlsError(f"{key}: cannot read {path}: {error.strerror}") from None


def _for_grpc(pems: _Pems) -> grpc.ServerCertificateConfiguration:
    import grpc

    return grpc.ssl_server_certificate_configuration(
        [(_for_grpc_key(pems), pems.certificate)], pems.ca
    )


def _for_grpc_key(pems: _Pems) -> bytes:
    if b"ENCRYPTED" in pems.key:
        raise TlsError(f"{_KEY}: gRPC cannot use a private key with a password; store it without")
    return pems.key


def _why_not_loaded(settings: TlsSettings, pems: _Pems, error: Exception) -> str:
    """Describe a failed load with its file, which OpenSSL's reasons do not name."""
    key_file, prefix = settings.key or settings.certificate, settings.prefix
    if b"-----BEGIN CERTIFICATE-----" not in pems.certificate:
        return f"{prefix}{_CERTIFICATE}: {settings.certificate} contains no PEM certificate"
    if b"PRIVATE KEY-----" not in pems.key:
        return f"{prefix}{_KEY}: {key_file} contains no PEM private key"
    reason = getattr(error, "reason", None) or str(error)
    if reason == "KEY_VALUES_MISMATCH":
        return (
            f"{prefix}{_KEY}: the private key in {key_file} is not that of the first certificate in"
            f" {settings.certificate}"
        )
    if b"ENCRYPTED" in pems.key:
        if prefix:
            return f"{prefix}{_KEY}: {key_file} needs a password; store it without"
        return f"{_PASSWORD} does not open the private key in {key_file} ({reason})"
    return f"{prefix}{_CERTIFICATE}: {settings.certificate} with {key_file}: {reason}"


def _stamp(settings: TlsSettings) -> _Stamp:
    return tuple(
        _stamp_of(path)
        for path in (settings.certificate, settings.key, settings.ca)
        if path is not None
    )


def _stamp_of(path: Path) -> tuple[int, int, int]:
    """Return the stamp of one file. Follows links, with which Kubernetes swaps a mounted secret."""
    try:
        found = path.stat()
    except OSError:
        return (0, 0, 0)
    return (found.st_ino, found.st_size, found.st_mtime_ns)
