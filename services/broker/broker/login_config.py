"""Options of a broker for listeners whose clients authenticate with SASL."""

from typing import Final

from pydantic import Field, field_validator
from tidemark.model.scram import MECHANISM_NAMES
from tidemark.runtime.service_config import CommaList, ServiceConfig

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
ONLY_WITH_TLS: Final = (PLAIN, OAUTHBEARER)
"""Mechanisms that send the secret itself: listeners without TLS do not serve them."""
SERVED: Final = (*MECHANISM_NAMES, *ONLY_WITH_TLS)


class LoginConfig(ServiceConfig):
    """Options of logins. Those with Kafka's names have Kafka's defaults, but for the mechanisms."""

    sasl_enabled_mechanisms: CommaList = Field(
        tuple(MECHANISM_NAMES),
        min_length=1,
        description="mechanisms of listeners with SASL: SCRAM-SHA-256, SCRAM-SHA-512, and on"
        " listeners with SASL_SSL also PLAIN and OAUTHBEARER",
    )
    connections_max_reauth_ms: int = Field(
        0,
        ge=0,
        description="session lifetime of connections to listeners with SASL: a client that has not"
        " authenticated again by then is disconnected at its next request (KIP-368); 0: no end."
        " With it, a removed user is disconnected after this time at the latest",
    )
    sasl_server_max_receive_size: int = Field(
        524_288,
        ge=1_024,
        description="maximum size of a request frame before authentication",
    )
    sasl_login_deadline_ms: int = Field(
        10_000,
        ge=100,
        description="time from the connection to the end of the login; after that the connection"
        " is closed, so that strangers do not hold connections",
    )
    connection_failed_authentication_delay_ms: int = Field(
        100,
        ge=0,
        le=60_000,
        description="delay of the answer to a failed login: it bounds the guesses of a connection",
    )
    failed_authentication_burst_per_ip: int = Field(
        20,
        ge=1,
        description="logins of an address that may be under way or have failed, broken TLS"
        " handshakes among them; more wait for their turn",
    )
    failed_authentication_rate_per_ip: float = Field(
        2.0,
        ge=0.01,
        description="failed logins a second that an address may go on with. Logins that succeed"
        " make room at once. One that waits longer than sasl.login.deadline.ms is closed",
    )

    @field_validator("sasl_enabled_mechanisms")
    @classmethod
    def _known_mechanisms(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        upper = tuple(dict.fromkeys(name.upper() for name in names))
        unknown = [name for name in upper if name not in SERVED]
        if unknown:
            raise ValueError(f"{unknown[0]} is not served; there are {', '.join(SERVED)}")
        return upper
