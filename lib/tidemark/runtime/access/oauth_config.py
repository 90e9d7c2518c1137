"""Options of a broker for logins with bearer tokens, with Kafka's names where it has them."""

from typing import Final
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from tidemark.protocol.bearer_tokens import ALGORITHMS, ALGORITHMS_DEFAULT, TokenRules
from tidemark.runtime.service_config import CommaList, ServiceConfig

LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


class OauthConfig(ServiceConfig):
    """Options of SASL/OAUTHBEARER."""

    sasl_oauthbearer_jwks_endpoint_url: str = Field(
        "",
        description="key set of the identity provider: https://... or file:///...",
    )
    sasl_oauthbearer_jwks_endpoint_ca_location: str = Field(
        "",
        description="PEM file with the authorities of that server; default: those of the system",
    )
    sasl_oauthbearer_jwks_endpoint_allow_http: bool = Field(
        default=False,
        description="take an http:// key set from this machine (127.0.0.1, ::1, localhost): for"
        " tests and for a proxy beside the broker",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = Field(
        3_600_000,
        ge=10_000,
        description="age at which the key set is read again; a token with an unknown key makes it"
        " read earlier, at most once in sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = Field(
        10_000, ge=100, description="shortest time between two reads of the key set"
    )
    sasl_oauthbearer_expected_issuer: str = Field(
        "", description="issuer of tokens (claim iss), which OAUTHBEARER needs"
    )
    sasl_oauthbearer_expected_audience: CommaList = Field(
        (), description="tokens are for one of these (claim aud), which OAUTHBEARER needs"
    )
    sasl_oauthbearer_clock_skew_seconds: int = Field(
        30, ge=0, le=300, description="largest difference of clocks when times are checked"
    )
    sasl_oauthbearer_sub_claim_name: str = Field(
        "sub", min_length=1, description="claim with the name of the principal"
    )
    sasl_oauthbearer_algorithms: CommaList = Field(
        ALGORITHMS_DEFAULT,
        min_length=1,
        description=f"algorithms of signatures that are accepted, of {', '.join(ALGORITHMS)}",
    )

    @property
    def token_rules(self) -> TokenRules:
        """Demands on tokens."""
        return TokenRules(
            self.sasl_oauthbearer_expected_issuer,
            self.sasl_oauthbearer_expected_audience,
            self.sasl_oauthbearer_algorithms,
            self.sasl_oauthbearer_sub_claim_name,
            self.sasl_oauthbearer_clock_skew_seconds,
        )

    def missing_for_tokens(self) -> str:
        """Return the option without which no token can be checked; '' if there is none."""
        needed = {
            "sasl.oauthbearer.jwks.endpoint.url": self.sasl_oauthbearer_jwks_endpoint_url,
            "sasl.oauthbearer.expected.issuer": self.sasl_oauthbearer_expected_issuer,
            "sasl.oauthbearer.expected.audience": self.sasl_oauthbearer_expected_audience,
        }
        return next((name for name, value in needed.items() if not value), "")

    @field_validator("sasl_oauthbearer_algorithms")
    @classmethod
    def _asymmetric(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [name for name in names if name not in ALGORITHMS]
        if unknown:
            raise ValueError(f"{unknown[0]} is not accepted; there are {', '.join(ALGORITHMS)}")
        return names

    @model_validator(mode="after")
    def _safe_url(self) -> "OauthConfig":
        url = self.sasl_oauthbearer_jwks_endpoint_url
        parts = urlsplit(url)
        is_local = self.sasl_oauthbearer_jwks_endpoint_allow_http and parts.hostname in LOOPBACK
        is_file = parts.scheme == "file" and not parts.netloc
        if (
            url
            and parts.scheme != "https"
            and not is_file
            and not (parts.scheme == "http" and is_local)
        ):
            raise ValueError(
                f"sasl.oauthbearer.jwks.endpoint.url: {url} can be changed on its way; use https://"
                " or file:///, or http:// of this machine with"
                " sasl.oauthbearer.jwks.endpoint.allow.http"
            )
        return self
