"""Rules of the listener GRPC, which serves clients over gRPC instead of Kafka's protocol.

A caller sends its password or token with each call, in the metadata ``authorization``.
"""

from collections.abc import Mapping
from typing import Any

from broker.listener_address import SASL_PLAINTEXT, SASL_SSL, Listener
from broker.login_config import OAUTHBEARER, ONLY_WITH_TLS, PLAIN
from broker.security_config import SecurityConfig


def mechanisms_over_grpc(own: Mapping[str, Any], security: SecurityConfig) -> tuple[str, ...]:
    """Return the mechanisms of the listener: PLAIN, if it does not name its own. Those of all
    listeners do not count, because SCRAM is an exchange of messages.
    """
    return security.sasl_enabled_mechanisms if "sasl_enabled_mechanisms" in own else (PLAIN,)


def problem_over_grpc(
    listener: Listener, security: SecurityConfig, mechanisms: tuple[str, ...]
) -> str:
    """Return why the listener cannot serve clients; '' if it can."""
    name = f"listener {listener.name}"
    if listener.security_protocol == SASL_PLAINTEXT:
        return (
            f"{name}: callers send a password or a token with each call; give it {SASL_SSL}, or SSL"
            " with certificates"
        )
    if listener.speaks_tls and security.ssl_client_auth == "requested":
        return (
            f"{name}: gRPC requires a certificate or asks for none; set"
            f" listener.name.{listener.name.lower()}.ssl.client.auth to required or none"
        )
    if not listener.speaks_sasl:
        return ""
    unfit = [one for one in mechanisms if one not in ONLY_WITH_TLS]
    if unfit:
        return (
            f"{name}: {unfit[0]} is an exchange of messages, for which a call has no room; there"
            f" are {', '.join(ONLY_WITH_TLS)}"
        )
    missing = security.missing_for_tokens()
    return f"{name}: {OAUTHBEARER} needs {missing}" if OAUTHBEARER in mechanisms and missing else ""
