"""Settings of the command line, and where each value comes from.

In this order: an option of the command, ``-X key=value``, an environment variable, the profile, the
embedded cluster of this directory, the default. From the embedded cluster come addresses and, if
it is secure, the login for commands that go to these addresses.
"""

import difflib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tidemark.cli import profiles
from tidemark.cli.failure import CommandError
from tidemark.runtime.exit_codes import ExitCode

if TYPE_CHECKING:
    from tidemark.cli.dev.layout import Layout

EMBEDDED: Final = ".tidemark"
_ADDRESSES: Final = ("bootstrap", "grpc-bootstrap", "rest")
_TIMEOUT_MS_MAX: Final = 3_600_000


class Setting(NamedTuple):
    """One setting; its environment variable is TIDEMARK_ and the name in capitals."""

    purpose: str
    default: str | None = None
    lowest: int | None = None
    highest: int | None = None
    choices: tuple[str, ...] = ()
    is_secret: bool = False

    def problem(self, value: str) -> str | None:
        """Return why a value cannot be used; None if it can."""
        if not value:
            return "the value is empty"
        if self.choices and value not in self.choices:
            return f"expected one of {', '.join(self.choices)}"
        if self.lowest is None or self.highest is None:
            return None
        if not (value.isascii() and value.isdecimal()):
            return "expected a whole number"
        inside = self.lowest <= int(value) <= self.highest
        return None if inside else f"expected {self.lowest} to {self.highest}"


SETTINGS: Final[Mapping[str, Setting]] = {
    "bootstrap": Setting("Kafka addresses of some brokers: HOST:PORT,...", "127.0.0.1:9092"),
    "grpc-bootstrap": Setting("gRPC addresses of some brokers: HOST:PORT,...", "127.0.0.1:9292"),
    "rest": Setting(
        "REST addresses of some controllers: HOST:PORT or https://HOST:PORT,...", "127.0.0.1:8080"
    ),
    "output": Setting("format of results", "table", choices=("table", "wide", "json", "yaml")),
    "timeout-ms": Setting(
        "time for one administrative call with its retries, in ms", "60000", 100, _TIMEOUT_MS_MAX
    ),
    "client-id": Setting("client id in requests and in the brokers' metrics", "tidemark-cli"),
    "security.protocol": Setting(
        "protocol of the listener",
        "PLAINTEXT",
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    ),
    "grpc.security.protocol": Setting(
        "protocol over gRPC; default: SSL if security.protocol is SSL, otherwise PLAINTEXT",
        choices=("PLAINTEXT", "SSL", "SASL_SSL"),
    ),
    "sasl.mechanism": Setting(
        "mechanism of the login",
        "SCRAM-SHA-512",
        choices=("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER"),
    ),
    "sasl.username": Setting("user that logs in"),
    "sasl.password": Setting("its password", is_secret=True),
    "sasl.password.file": Setting("file whose first line is the password"),
    "sasl.oauthbearer.token.file": Setting("file whose first line is the token of OAUTHBEARER"),
    "ssl.ca.location": Setting("PEM file of the authorities of brokers' certificates"),
    "ssl.certificate.location": Setting("PEM file of the client's certificate"),
    "ssl.key.location": Setting("PEM file of the client's private key"),
    "ssl.key.password": Setting("password of the private key", is_secret=True),
    "ssl.endpoint.identification.algorithm": Setting(
        "https: the certificate must have the broker's host name",
        "https",
        choices=("https", "none"),
    ),
}
assert {name for name, setting in SETTINGS.items() if setting.is_secret} == profiles.SECRETS


def variable_of(name: str) -> str:
    """Return the environment variable of a setting."""
    return "TIDEMARK_" + name.upper().replace("-", "_").replace(".", "_")


class Found(NamedTuple):
    """Value of a setting and its source, for people."""

    value: str | None
    source: str


@dataclass(slots=True)
class _Session:
    """Settings of this process."""

    given: dict[str, str] = field(default_factory=dict)
    profile: str | None = None
    announced: bool = False


_session = _Session()


def begin(given: Sequence[str], profile: str | None, *, quiet: bool = False) -> None:
    """Take ``-X`` and ``--profile`` of this command; with ``quiet``, print no address. Raises
    CommandError.
    """
    _session.given = parse_given(given, "-X")
    _session.profile = profile
    _session.announced = quiet


def parse_given(texts: Sequence[str], option: str) -> dict[str, str]:
    """Return ``["timeout-ms=500"]`` by name, checked. Raises CommandError."""
    values: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise CommandError(f"{option} {text!r}: expected KEY=VALUE", code=ExitCode.USAGE)
        if name in profiles.SECRETS:
            raise _on_the_command_line(name, option)
        check(name, value, f"{option} {text}")
        values[name] = value
    return values


def _on_the_command_line(name: str, option: str) -> CommandError:
    return CommandError(
        f"{option} {name}: a secret cannot be an argument, which others can read",
        hint=f"the environment variable {variable_of(name)}, -X sasl.password.file=FILE, or a"
        " profile: tidemark profile set NAME --password-file FILE",
        code=ExitCode.USAGE,
    )


def check(name: str, value: str, where: str) -> None:
    """Raise CommandError for an unknown setting, or a value that it cannot have."""
    setting = SETTINGS.get(name)
    if setting is None:
        near = difflib.get_close_matches(name, SETTINGS, 1)
        raise CommandError(
            f"{where}: there is no setting {name!r}",
            hint=f"{near[0]}" if near else f"the settings are {', '.join(SETTINGS)}",
            code=ExitCode.USAGE,
        )
    if (problem := setting.problem(value)) is not None:
        raise CommandError(f"{where}: {problem}", hint=setting.purpose, code=ExitCode.USAGE)


def look_up(name: str, to: str | None = None) -> Found:
    """Return a setting without the command's own option; ``to``: the addresses that it goes to, if
    they are known. Raises CommandError for a wrong value.
    """
    stated = _stated(name)
    if stated is not None:
        return stated
    embedded = _embedded(name, to)
    if embedded is not None:
        return embedded
    return Found(SETTINGS[name].default, "default")


def _stated(name: str) -> Found | None:
    """Return a setting that the command, the environment or a profile names; None without one."""
    if name in _session.given:
        return Found(_session.given[name], "-X")
    variable = variable_of(name)
    if value := os.environ.get(variable):
        check(name, value, f"environment variable {variable}")
        return Found(value, variable)
    stored, values = profiles.selected(_session.profile)
    if name in values:
        check(name, values[name], f"profile {stored!r}")
        return Found(values[name], f"profile {stored}")
    return None


def address(name: str) -> str:
    """Return the value of a setting that is an address, and print where another one than the
    default was found.
    """
    found = look_up(name)
    assert found.value is not None, "addresses have a default"
    if found.source.startswith("cluster") and not _session.announced:
        _session.announced = True
        if found.value.partition(",")[0] != SETTINGS[name].default:
            sys.stderr.write(f"using the embedded {found.source}: {found.value}\n")
    return found.value


def whole_number(name: str) -> int:
    """Return a setting that is a number."""
    value = look_up(name).value
    assert value is not None, "numbers have a default"
    return int(value)


def embedded_directory() -> Path | None:
    """Return the directory of the embedded cluster: TIDEMARK_DIR, or .tidemark here or above."""
    if named := os.environ.get("TIDEMARK_DIR"):
        directory = Path(named)
        return directory if (directory / "cluster.json").is_file() else None
    try:
        here = Path.cwd()
    except FileNotFoundError:  # the working directory was deleted
        return None
    places = (folder / EMBEDDED for folder in (here, *here.parents))
    return next((place for place in places if (place / "cluster.json").is_file()), None)


def _embedded(name: str, to: str | None) -> Found | None:
    """Return an address of an embedded cluster, or a setting of the login to a secure one; None
    for other settings, or without such a cluster.
    """
    is_login = name.startswith(("security.", "grpc.", "sasl.", "ssl."))
    if not is_login and name not in _ADDRESSES:
        return None
    directory = embedded_directory()
    if directory is None:
        return None
    from tidemark.cli.dev.layout import Layout, Shape

    shape = Shape.read(directory / "cluster.json")
    if shape is None:
        return None
    layout = Layout(directory, shape)
    found = _embedded_login(name, layout, to) if is_login else _embedded_address(name, layout)
    return None if found is None else Found(found, f"cluster in {directory}")


def _embedded_address(name: str, layout: "Layout") -> str:
    if name == "rest":
        return layout.rest_addresses
    return layout.bootstrap if name == "bootstrap" else layout.grpc_for_clients


def _embedded_login(name: str, layout: "Layout", to: str | None) -> str | None:
    """Return a setting of the login to a secure cluster, if the command goes there. Its user's name
    and password belong together: a setting of SASL from elsewhere excludes them.
    """
    if not layout.shape.is_secure or _stated("security.protocol") is not None:
        return None
    if to is None:
        bootstrap = _stated("bootstrap")
        to = layout.bootstrap if bootstrap is None else bootstrap.value
    addresses = {each.strip() for each in (to or "").split(",")}
    own = (layout.bootstrap, layout.rest_addresses, layout.grpc_for_clients)
    if not addresses <= {address for each in own for address in each.split(",")}:
        return None
    if name.startswith("sasl.") and any(
        _stated(each) is not None for each in SETTINGS if each.startswith("sasl.")
    ):
        return None
    from tidemark.cli.dev.secure import login_of

    return login_of(layout).get(name)
