"""Options of TLS and logins that one listener may have of its own, as
``listener.name.NAME.OPTION``.
"""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import Field, ValidationError, field_validator
from tidemark.protocol.principal_mapping import DEFAULT_RULES, PrincipalMapper
from tidemark.runtime.access.oauth_config import OauthConfig
from tidemark.runtime.service_config import ServiceConfig, TlsServiceConfig, dotted

from broker.login_config import LoginConfig


class SecurityConfig(LoginConfig, OauthConfig, TlsServiceConfig):
    """Options of the security of listeners."""

    ssl_principal_mapping_rules: str = Field(
        DEFAULT_RULES,
        description="rules by which the subject of a client's certificate becomes the name of its"
        " principal (KIP-371): RULE:pattern/replacement/ with L or U for lower or upper case, and"
        " DEFAULT for the subject as it is; the first that applies decides",
    )

    @field_validator("ssl_principal_mapping_rules")
    @classmethod
    def _readable_rules(cls, rules: str) -> str:
        PrincipalMapper(rules)
        return rules


_OF_ALL_LISTENERS: Final = frozenset(
    (
        "sasl_server_max_receive_size",
        "sasl_login_deadline_ms",
        "connection_failed_authentication_delay_ms",
        "failed_authentication_burst_per_ip",
        "failed_authentication_rate_per_ip",
    )
)
OF_ONE_LISTENER: Final = tuple(
    name
    for name in SecurityConfig.model_fields
    if name not in ServiceConfig.model_fields and name not in _OF_ALL_LISTENERS
)
"""Fields that a listener may set for itself."""


class ListenerSecurityConfig(SecurityConfig):
    """Options of security, for all listeners and for one."""

    listener_name: Mapping[str, Any] = Field(
        {},
        repr=False,
        description="options of one listener, before those of all: listener.name.NAME.OPTION with"
        f" the listener's name in lower case, and {', '.join(map(dotted, OF_ONE_LISTENER))}",
    )

    def own_options(self, listener: str) -> dict[str, Any]:
        """Return the options that a listener sets for itself, by field."""
        prefix = f"{listener.lower()}_"
        return {
            key.removeprefix(prefix): value
            for key, value in self.listener_name.items()
            if key.startswith(prefix) and key.removeprefix(prefix) in OF_ONE_LISTENER
        }

    def security_of(self, listener: str) -> SecurityConfig:
        """Return the options of a listener. Raises ValueError."""
        own = self.own_options(listener)
        shared = {name: getattr(self, name) for name in OF_ONE_LISTENER}
        try:
            return SecurityConfig(**{**shared, **own})
        except ValidationError as error:
            first = error.errors()[0]
            option = ".".join(dotted(str(part)) for part in first["loc"][:1])
            where = f"listener.name.{listener.lower()}.{option}"
            raise ValueError(f"{where}: {first['msg'].removeprefix('Value error, ')}") from None

    def check_own_options(self, listeners: tuple[str, ...]) -> None:
        """Raise ValueError for an option of no listener, or that no listener has of its own."""
        known = {f"{one.lower()}_{option}" for one in listeners for option in OF_ONE_LISTENER}
        for key in self.listener_name.keys() - known:
            raise ValueError(
                f"listener.name.{dotted(key)}: a listener of listeners, in lower case, and then one"
                f" of {', '.join(map(dotted, OF_ONE_LISTENER))}"
            )
