"""TLS and login of the command line's clients, from its settings."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tidemark.cli import settings
from tidemark.cli.failure import CommandError
from tidemark.cli.passwords import first_line
from tidemark.client.errors import ClientConfigError
from tidemark.client.security_config import PLAIN, SecurityConfig
from tidemark.model.scram import MECHANISM_NAMES
from tidemark.runtime.exit_codes import ExitCode

_TAKEN_AS_THEY_ARE: Final = (
    "security.protocol",
    "sasl.mechanism",
    "sasl.username",
    "sasl.password",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
)
_PASSWORD_FILE: Final = "sasl.password.file"
_OVER_GRPC: Final = "grpc.security.protocol"
_TOKEN_FILE: Final = "sasl.oauthbearer.token.file"


def security(bootstrap: str | None = None) -> dict[str, Any]:
    """Return the settings of TLS and login of a client of these addresses, by default those of the
    setting. Raises CommandError.
    """
    found = {name: settings.look_up(name, bootstrap).value for name in _TAKEN_AS_THEY_ARE}
    given: dict[str, Any] = {
        name.replace(".", "_"): value for name, value in found.items() if value is not None
    }
    if (file := settings.look_up(_PASSWORD_FILE, bootstrap).value) is not None:
        if "sasl_password" in given:
            raise CommandError(
                f"sasl.password and {_PASSWORD_FILE} are both set",
                hint="tidemark profile show, for where they come from",
                code=ExitCode.USAGE,
            )
        given["sasl_password"] = first_line(Path(file))
    if (file := settings.look_up(_TOKEN_FILE).value) is not None:
        token = Path(file)
        given["sasl_oauthbearer_token"] = lambda: first_line(token)
    return given


def security_over(client: Mapping[str, Any], bootstrap: str | None = None) -> dict[str, Any]:
    """Return a client's settings with those of TLS and login, over its transport. Raises
    CommandError.
    """
    if client.get("transport") == "grpc":
        return {**client, **security_over_grpc(bootstrap)}
    return {**client, **security(bootstrap)}


def security_over_grpc(bootstrap: str | None = None) -> dict[str, Any]:
    """Return the settings of TLS and login of a client over gRPC, and, as kafka_security, those at
    Kafka's listeners, if they differ. A password is sent there as PLAIN. Raises CommandError.
    """
    found = security(bootstrap)
    protocol = settings.look_up(_OVER_GRPC, bootstrap).value
    if protocol is None:
        protocol = "SSL" if found["security_protocol"] == "SSL" else "PLAINTEXT"
    if protocol == "PLAINTEXT":
        return {}
    own = {**found, "security_protocol": protocol}
    if protocol == "SSL":
        own = {name: value for name, value in own.items() if not name.startswith("sasl_")}
    elif own["sasl_mechanism"] in MECHANISM_NAMES:
        own["sasl_mechanism"] = PLAIN
    if found["security_protocol"] == protocol and own.items() <= found.items():
        return own
    try:
        return {**own, "kafka_security": SecurityConfig(**found)}
    except ClientConfigError as problem:
        raise CommandError(str(problem), code=ExitCode.USAGE) from None
