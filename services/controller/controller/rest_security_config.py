"""Options of a controller that decide who may use REST and the console, and for what."""

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from pydantic import Field, field_validator, model_validator
from tidemark.protocol.principal_mapping import DEFAULT_RULES, PrincipalMapper
from tidemark.runtime.access.authorization_config import AuthorizationConfig
from tidemark.runtime.access.header_logins import BASIC, BEARER
from tidemark.runtime.access.oauth_config import OauthConfig
from tidemark.runtime.service_config import Address, CommaList, HostPort
from tidemark.runtime.tls import ClientAuth, TlsSettings

from controller.core.roles import Role, parse_roles

MTLS: Final = "mtls"
MECHANISMS: Final = (BASIC, BEARER, MTLS)


class RestSecurityConfig(AuthorizationConfig, OauthConfig):
    """Options of the listener of REST and the console."""

    rest_listen: Address = Field(
        "127.0.0.1:8080",
        description="address of REST, /metrics, /livez, /readyz, /loglevel and /stacks; one that"
        " other machines reach needs rest.authentication.mechanisms, or rest.private.network",
    )
    rest_authentication_mechanisms: CommaList = Field(
        (),
        description="ways in which callers of REST and the console prove who they are: basic (the"
        " users and passwords of SCRAM), bearer (tokens by the rules of sasl.oauthbearer), mtls"
        " (certificates, by rest.ssl.principal.mapping.rules); empty: nobody has to, and everybody"
        " is User:ANONYMOUS",
    )
    rest_private_network: bool = Field(
        default=False,
        description="only a private network reaches rest.listen: it may be an address of other"
        " machines without authentication, and basic and bearer may be used without TLS, for"
        " instance behind a proxy that has it",
    )
    rest_ssl_certificate_location: str = Field(
        "",
        description="PEM file with the certificate of REST and the console, followed by the"
        " intermediate ones: with it, rest.listen serves https",
    )
    rest_ssl_key_location: str = Field(
        "", description="PEM file with its private key; default: rest.ssl.certificate.location"
    )
    rest_ssl_key_password: str = Field(
        "", repr=False, description="password of that private key, if it has one"
    )
    rest_ssl_ca_location: str = Field(
        "", description="PEM file with the authorities of callers' certificates"
    )
    rest_ssl_client_auth: Literal["none", "requested", "required"] = Field(
        "none", description="request or require a certificate from callers; mtls needs one"
    )
    rest_ssl_principal_mapping_rules: str = Field(
        DEFAULT_RULES,
        description="rules that make the name of a principal of a certificate's subject (KIP-371)",
    )
    rest_roles: str = Field(
        "",
        description="roles of principals, User:name=viewer;User:name=admin, of viewer, editor,"
        " operator and admin: what they may do by REST and the console beyond what ACLs allow",
    )
    rest_session_ms: int = Field(
        28_800_000,
        ge=60_000,
        le=604_800_000,
        description="time after which a user of the console has to log in again",
    )
    rest_failed_authentication_delay_ms: int = Field(
        500,
        ge=0,
        le=60_000,
        description="delay of the answer to a failed login: it bounds the guesses of a caller",
    )

    @property
    def rest_tls(self) -> TlsSettings | None:
        """Files of https; None: plain http."""
        if not self.rest_ssl_certificate_location:
            return None
        certificate, key, ca = (
            Path(one) if one else None
            for one in (
                self.rest_ssl_certificate_location,
                self.rest_ssl_key_location,
                self.rest_ssl_ca_location,
            )
        )
        auth = ClientAuth(self.rest_ssl_client_auth)
        return TlsSettings(certificate, key, self.rest_ssl_key_password, ca, auth)

    @property
    def roles(self) -> Mapping[str, Role]:
        """Roles of principals."""
        return parse_roles(self.rest_roles)

    @field_validator("rest_authentication_mechanisms")
    @classmethod
    def _known_mechanisms(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        lower = tuple(dict.fromkeys(name.lower() for name in names))
        unknown = [name for name in lower if name not in MECHANISMS]
        if unknown:
            raise ValueError(f"{unknown[0]} is not served; there are {', '.join(MECHANISMS)}")
        return lower

    @field_validator("rest_ssl_principal_mapping_rules")
    @classmethod
    def _readable_rules(cls, text: str) -> str:
        PrincipalMapper(text)
        return text

    @field_validator("rest_roles")
    @classmethod
    def _readable_roles(cls, text: str) -> str:
        parse_roles(text)
        return text

    @model_validator(mode="after")
    def _safe_rest(self) -> "RestSecurityConfig":
        if problem := self._rest_problem():
            raise ValueError(problem)
        return self

    def _rest_problem(self) -> str:
        """Return why the options do not fit together; '' if they do."""
        mechanisms, has_tls = self.rest_authentication_mechanisms, self.rest_tls is not None
        is_private = self.rest_private_network or _is_loopback(self.rest_listen)
        if not mechanisms and not is_private:
            return (
                f"rest.listen is {self.rest_listen}, where everybody who reaches it may do"
                " everything: set rest.authentication.mechanisms and rest.ssl.certificate.location,"
                " or rest.private.network=true"
            )
        sends_secrets = next((one for one in (BASIC, BEARER) if one in mechanisms), "")
        if sends_secrets and not has_tls and not is_private:
            return (
                f"rest.authentication.mechanisms has {sends_secrets}, whose secret anybody on the"
                " way could read: set rest.ssl.certificate.location, or rest.private.network=true"
            )
        if MTLS in mechanisms and not (has_tls and self.rest_ssl_client_auth != "none"):
            return (
                "rest.authentication.mechanisms has mtls: set rest.ssl.certificate.location,"
                " rest.ssl.ca.location, and rest.ssl.client.auth to requested or required"
            )
        if BEARER in mechanisms and (missing := self.missing_for_tokens()):
            return f"rest.authentication.mechanisms has bearer: set {missing}"
        if self.rest_roles and not self.authorizer_class_name:
            return "rest.roles is set and authorizer.class.name is not: everybody may do everything"
        return ""


def _is_loopback(listen: str) -> bool:
    host = HostPort.parse(listen).host
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
