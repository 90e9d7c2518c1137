"""TLS and login of the command line's clients, from its settings."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tidemark.cli import settings
from tidemark.cli.failure import CommandError
from tidemark.cli.passwords import first_line
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
    """Return a client's settings with those of TLS and login. Over gRPC, which has no login, those
    of TLS apply with security.protocol SSL only.
    """
    found = security(bootstrap)
    if client.get("transport") == "grpc" and found.get("security_protocol") != "SSL":
        return dict(client)
    return {**client, **found}
