"""Names, addresses and security protocols of listeners."""

from typing import Final, NamedTuple

from tidemark.model.metadata import PLAINTEXT, SSL
from tidemark.runtime.service_config import HostPort

SASL_PLAINTEXT: Final = "SASL_PLAINTEXT"
SASL_SSL: Final = "SASL_SSL"
PROTOCOLS: Final = (PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL)


class Listener(NamedTuple):
    """One named listening address: ``CLIENT://127.0.0.1:9092``."""

    name: str
    host: str
    port: int
    security_protocol: str = PLAINTEXT

    @property
    def speaks_tls(self) -> bool:
        """True if connections are encrypted."""
        return self.security_protocol in (SSL, SASL_SSL)

    @property
    def speaks_sasl(self) -> bool:
        """True if clients authenticate with SASL."""
        return self.security_protocol in (SASL_PLAINTEXT, SASL_SSL)

    @classmethod
    def parse(cls, text: str) -> "Listener":
        """Parse ``NAME://host:port``; an empty host means every interface. Raises ValueError."""
        name, separator, address = text.strip().partition("://")
        if not separator or not name.isidentifier():
            raise ValueError(f"expected NAME://host:port, not {text!r}")
        host, port = HostPort.parse(address if not address.startswith(":") else f"0.0.0.0{address}")
        return cls(name, host, port)


def protocol_named(listener: str) -> str:
    """Return Kafka's default protocol of a listener: the one it is named after."""
    return listener if listener == SSL or listener.startswith("SASL_") else PLAINTEXT
