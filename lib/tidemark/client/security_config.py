"""Settings of a client's TLS and login, with Kafka's names, and librdkafka's for PEM files."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

from tidemark.client.errors import ClientConfigError
from tidemark.model.errors import ErrorCode
from tidemark.model.scram import MECHANISM_NAMES

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (*MECHANISM_NAMES, PLAIN, OAUTHBEARER)
ENDPOINT_CHECKS: Final = ("https", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityConfig:
    """Settings of TLS and login. Secrets are not part of the printed form."""

    security_protocol: SecurityProtocol = "PLAINTEXT"
    sasl_mechanism: str = "SCRAM-SHA-512"
    """SCRAM-SHA-256, SCRAM-SHA-512, or over TLS PLAIN and OAUTHBEARER."""
    sasl_username: str = ""
    sasl_password: str = field(default="", repr=False)
    sasl_oauthbearer_token: Callable[[], str] | None = field(default=None, repr=False)
    """Returns a token that is valid now. Called at every login, and over gRPC every few seconds
    while calls are made, in a thread: it may wait.
    """
    ssl_ca_location: str = ""
    """PEM file of the authorities of brokers' certificates; empty: those of the system."""
    ssl_certificate_location: str = ""
    """PEM file of the client's certificate, for brokers that require one."""
    ssl_key_location: str = ""
    """PEM file of its private key; empty: in the file of the certificate."""
    ssl_key_password: str = field(default="", repr=False)
    ssl_endpoint_identification_algorithm: str = "https"
    """``https``: the certificate must have the broker's host name; ``none``: any name will do."""

    def __post_init__(self) -> None:
        _one_of("security_protocol", self.security_protocol, SECURITY_PROTOCOLS)
        _one_of("sasl_mechanism", self.sasl_mechanism, MECHANISMS)
        _one_of(
            "ssl_endpoint_identification_algorithm",
            self.ssl_endpoint_identification_algorithm,
            ENDPOINT_CHECKS,
        )
        if self.uses_sasl:
            self._check_login()
        elif self.sasl_username or self.sasl_password:
            raise _problem(
                f"sasl_username and sasl_password are set, and security_protocol"
                f" {self.security_protocol} has no login: set SASL_SSL or SASL_PLAINTEXT"
            )

    def _check_login(self) -> None:
        if self.sasl_mechanism in (PLAIN, OAUTHBEARER) and not self.uses_tls:
            raise _problem(
                f"sasl_mechanism {self.sasl_mechanism} shows the secret to the network without TLS:"
                " use security_protocol SASL_SSL, or SCRAM"
            )
        if self.sasl_mechanism == OAUTHBEARER:
            if self.sasl_oauthbearer_token is None:
                raise _problem("sasl_mechanism OAUTHBEARER needs sasl_oauthbearer_token")
            return
        for name in ("sasl_username", "sasl_password"):
            if not getattr(self, name):
                raise _problem(f"security_protocol {self.security_protocol} needs {name}")

    @property
    def uses_sasl(self) -> bool:
        """True if the client logs in."""
        return self.security_protocol.startswith("SASL_")

    @property
    def uses_tls(self) -> bool:
        """True if connections are encrypted."""
        return self.security_protocol.endswith("SSL")


def _one_of(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise _problem(f"{name} is {value!r}; it must be one of {', '.join(choices)}")


def _problem(text: str) -> ClientConfigError:
    return ClientConfigError(ErrorCode.INVALID_CONFIG, text)
