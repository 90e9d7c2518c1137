"""Connection and login of the command line at REST, with the settings of Kafka's listeners."""

import base64
import http.client
import ipaddress
from typing import Any, Final, NamedTuple

from tidemark.cli.failure import CommandError
from tidemark.cli.security import security
from tidemark.runtime.exit_codes import ExitCode

_HTTPS: Final = "https"
_SCHEMES: Final = ("http", _HTTPS)


class RestAddress(NamedTuple):
    """Address of a controller's REST."""

    host: str
    port: int
    has_tls: bool

    @classmethod
    def parse(cls, text: str) -> "RestAddress":
        """Read ``HOST:PORT`` or ``https://HOST:PORT``. Raises CommandError."""
        scheme, _, place = text.strip().rpartition("://")
        host, _, port = place.rstrip("/").rpartition(":")
        is_port = port.isascii() and port.isdigit() and int(port) < 2**16
        if not (host and is_port and (scheme or "http") in _SCHEMES):
            raise CommandError(
                f"{text!r} is not HOST:PORT or https://HOST:PORT", code=ExitCode.USAGE
            )
        return cls(host.strip("[]"), int(port), scheme == _HTTPS)

    @property
    def keeps_secrets(self) -> bool:
        """True if nobody on the way can read what is sent."""
        try:
            return self.has_tls or ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


class RestLogin:
    """Login with the settings of this command."""

    def __init__(self, addresses: str) -> None:
        """``addresses``: those to which the login is sent. Raises CommandError for settings that do
        not fit together.
        """
        self._given = security(addresses)

    def connection(self, address: RestAddress, timeout_s: float) -> http.client.HTTPConnection:
        """Return a connection that is not open yet. Raises CommandError for unusable files."""
        if not address.has_tls:
            return http.client.HTTPConnection(address.host, address.port, timeout=timeout_s)
        from tidemark.client.security_config import SecurityConfig
        from tidemark.runtime.tls import TlsError, client_context, tls_settings

        names = ("ssl_ca_location", "ssl_certificate_location", "ssl_key_location")
        files: Any = {name: self._given.get(name, "") for name in (*names, "ssl_key_password")}
        checks = self._given.get("ssl_endpoint_identification_algorithm") != "none"
        try:
            context = client_context(tls_settings(SecurityConfig(**files)), check_host=checks)
        except TlsError as problem:
            raise CommandError(str(problem), code=ExitCode.CONFIG) from None
        return http.client.HTTPSConnection(
            address.host, address.port, timeout=timeout_s, context=context
        )

    def headers(self, address: RestAddress) -> dict[str, str]:
        """Return the header Authorization, if there is a token or a user. Raises CommandError
        where it could be read on its way.
        """
        value = self._authorization()
        if not value:
            return {}
        if not address.keeps_secrets:
            raise CommandError(
                "a password or token is not sent without TLS to another machine",
                address=f"{address.host}:{address.port}",
                hint=f"-X rest=https://{address.host}:{address.port}",
                code=ExitCode.USAGE,
            )
        return {"authorization": value}

    def _authorization(self) -> str:
        token = self._given.get("sasl_oauthbearer_token")
        if token is not None:
            return f"Bearer {token()}"
        user, password = self._given.get("sasl_username"), self._given.get("sasl_password")
        if not user or not password:
            return ""
        return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"
