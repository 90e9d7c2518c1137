"""Configuration of a service: file < environment < flag, with Kafka's names where it has one.

The field ``num_partitions`` is the key ``num.partitions``; in a file, in the environment and as a
flag it may be written with '.', '_' or '-'. An unknown key is refused in all three places, with
the most similar key in the message.
"""

import difflib
import importlib.metadata
import os
import re
import sys
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

import yaml  # type: ignore[import-untyped]
from pydantic import AfterValidator, BeforeValidator, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from tidemark.runtime.build import build_text
from tidemark.runtime.exit_codes import MEANING, OF_SERVICES, ExitCode

Config = TypeVar("Config", bound="ServiceConfig")

_CONFIG_FLAG: Final = "config"
_OF_A_LISTENER: Final = "listener_name"
# Kubernetes puts the addresses of every Service of a namespace into the environment. A Service
# named tidemark-broker yields names like our keys. (Pods can disable it: enableServiceLinks.)
_SERVICE_LINK: Final = re.compile(r"(.*_)?(service_host|(service_)?port(_.*)?)")


def version() -> str:
    """Return the installed release."""
    try:
        return importlib.metadata.version("tidemark")
    except importlib.metadata.PackageNotFoundError:
        return "0+source"


class ConfigError(Exception):
    """An invalid configuration. ``problems`` has one line for each problem."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class HostPort(NamedTuple):
    """Address to listen at or to call: ``127.0.0.1:9092``, ``[::1]:9092``, ``broker-1:9092``."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "HostPort":
        """Read ``host:port``. Raises ValueError with the expected form."""
        host, _, port = text.strip().rpartition(":")
        if not host or re.fullmatch(r"\d{1,5}", port) is None or int(port) > 65_535:
            raise ValueError(f"expected host:port with a port from 0 to 65535, not {text!r}")
        return cls(host.removeprefix("[").removesuffix("]"), int(port))

    @property
    def is_wildcard(self) -> bool:
        """True if the host stands for all addresses of the machine."""
        return self.host in ("0.0.0.0", "::")

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def check_advertised(grpc_listen: str, grpc_advertised: str) -> None:
    """Raise ValueError if a gRPC listener on a wildcard address has no advertised address."""
    if not grpc_advertised and HostPort.parse(grpc_listen).is_wildcard:
        raise ValueError(
            f"grpc.listen is {grpc_listen}: set grpc.advertised to where brokers reach it"
        )


def _check_host_port(text: str) -> str:
    HostPort.parse(text)
    return text


def split_list(value: object) -> object:
    """Split ``a,b,c``; anything else is left as it is."""
    if isinstance(value, str):
        return tuple(word.strip() for word in value.split(",") if word.strip())
    return value


def _upper(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


LogLevel = Annotated[
    Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"], BeforeValidator(_upper)
]

Address = Annotated[str, AfterValidator(_check_host_port)]
"""Field with ``host:port``; read it with ``HostPort.parse``."""

CommaList = Annotated[tuple[str, ...], BeforeValidator(split_list)]
"""Field written as ``a,b,c`` (or as a list in a file)."""


class ServiceConfig(BaseSettings):
    """Options of every service. Subclasses give each field a default, bounds and a description.

    An instance built directly (``BrokerConfig(broker_id=1)``) reads neither environment nor files;
    ``load`` does.
    """

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", validate_default=True, coerce_numbers_to_str=True
    )
    kafka_keys_replaced: ClassVar[Mapping[str, str]] = {}
    """Keys of Kafka that do not exist here, by field name, and what to set instead."""

    log_level: LogLevel = Field(
        default="INFO",
        description="lowest level that is logged; PUT /loglevel changes it at run time",
    )
    log_format: Literal["json", "text"] = Field(
        default="text", description="format of log lines: json for machines, text for people"
    )
    ops_listen: Address = Field(
        default="127.0.0.1:0",
        description="address of /metrics, /livez, /readyz, /startupz, /loglevel and /stacks",
    )
    event_loop_stall_ms: int = Field(
        default=5_000,
        ge=100,
        le=600_000,
        description="an event loop that is blocked for this long is logged with its stack and"
        " counted; longer than any regular work, shorter than the timeout of a liveness probe",
    )
    zookeeper_connect: str = Field(
        default="127.0.0.1:2181",
        min_length=1,
        description="ZooKeeper servers, host:port,host:port, with an optional chroot at the end",
    )
    zookeeper_session_timeout_ms: int = Field(
        default=9_000,
        ge=1_000,
        le=120_000,
        description="ZooKeeper ends a session without a heartbeat after this time",
    )
    zookeeper_connect_timeout_ms: int = Field(
        default=30_000,
        ge=100,
        le=604_800_000,
        description="time to wait for ZooKeeper at the start, after which the process ends with 69",
    )
    shutdown_deadline_ms: int = Field(
        default=20_000,
        ge=0,
        description="time that draining may take after SIGTERM; after that the process ends at"
        " once",
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take only the arguments. ``load`` merges file, environment and flags, with origins."""
        return (init_settings,)


class TlsServiceConfig(ServiceConfig):
    """Options of a service with TLS: PEM files, with librdkafka's names, read by
    ``tls.tls_settings``.
    """

    ssl_certificate_location: str = Field(
        "", description="PEM file with the server's certificate, followed by the intermediate ones"
    )
    ssl_key_location: str = Field(
        "", description="PEM file with the private key; default: ssl.certificate.location"
    )
    ssl_key_password: str = Field(
        "", repr=False, description="password of the private key, if it has one"
    )
    ssl_ca_location: str = Field(
        "", description="PEM file with the authorities of clients' certificates"
    )
    ssl_client_auth: Literal["none", "requested", "required"] = Field(
        "none", description="request or require a certificate from clients"
    )


class ConfigKey(NamedTuple):
    """One key, described for ``--help`` and the reference."""

    name: str
    accepts: str
    default: str
    doc: str


class _Setting(NamedTuple):
    value: Any
    origin: str  # as the user wrote it: "--num.partitions", "TIDEMARK_BROKER_X in the environment"


def config_keys(config_class: type[ServiceConfig]) -> list[ConfigKey]:
    """Return every key of a service, in the order of its fields."""
    return [
        ConfigKey(dotted(name), _accepts(info), _default_text(info), info.description or "")
        for name, info in config_class.model_fields.items()
    ]


def is_secret(field_name: str) -> bool:
    """True if the value of a key is a secret, by its name."""
    return field_name.endswith(("password", "secret"))


def dotted(field_name: str) -> str:
    """Return a key in Kafka's spelling: ``num_partitions`` -> ``num.partitions``."""
    return field_name.replace("_", ".")


def load(
    config_class: type[Config],
    argv: Sequence[str],
    env_prefix: str,
    environ: Mapping[str, str] | None = None,
) -> Config:
    """Read file (``--config PATH``), environment (``env_prefix`` + KEY) and flags; the later wins.

    Raises ConfigError with every problem found. ``load_or_exit`` handles ``--help`` and
    ``--version``.
    """
    flags = _read_flags(argv)
    environment = _read_environment(os.environ if environ is None else environ, env_prefix)
    path = {**environment, **flags}.get(_CONFIG_FLAG)
    from_file = _read_file(Path(str(path.value))) if path is not None else {}
    settings = {**from_file, **environment, **flags}
    settings.pop(_CONFIG_FLAG, None)
    settings = _with_listener_options(config_class, settings)
    problems = _unknown_keys(config_class, settings)
    known = {name: item for name, item in settings.items() if name in config_class.model_fields}
    try:
        config = config_class(**{name: item.value for name, item in known.items()})
    except ValidationError as error:
        raise ConfigError(problems + _bad_values(config_class, known, error)) from None
    if problems:
        raise ConfigError(problems)
    return config


def load_or_exit(config_class: type[Config], argv: Sequence[str], *, service: str) -> Config:
    """Load for a process's main: handle --help and --version, and print problems on stderr.

    Raises SystemExit: 0 after --help or --version, ExitCode.CONFIG on an invalid configuration.
    """
    env_prefix = f"TIDEMARK_{service.upper().replace('-', '_')}_"
    if "--version" in argv:
        sys.stdout.write(f"tidemark-{service} {version()} ({build_text()})\n")
        raise SystemExit(ExitCode.OK)
    if "--help" in argv or "-h" in argv:
        sys.stdout.write(help_text(config_class, service=service, env_prefix=env_prefix))
        raise SystemExit(ExitCode.OK)
    try:
        return load(config_class, argv, env_prefix)
    except ConfigError as error:
        for problem in error.problems:
            sys.stderr.write(f"tidemark-{service}: {problem}\n")
        sys.stderr.write(f"tidemark-{service}: --help lists every key\n")
        raise SystemExit(ExitCode.CONFIG) from None


def help_text(config_class: type[ServiceConfig], *, service: str, env_prefix: str) -> str:
    """Return the text of ``--help``: usage, then each key with its values and its default."""
    keys = config_keys(config_class)
    first = keys[0].name
    variable = env_prefix + first.replace(".", "_").upper()
    lines = [
        f"tidemark-{service} {version()}",
        "",
        f"usage: tidemark-{service} [--config FILE] [--KEY VALUE]... | --help | --version",
        "",
        f"A key can be set in the file, in the environment ({variable}) or as a",
        f"flag (--{first} VALUE); a flag overrides the environment, which overrides the file.",
        "",
    ]
    for key in keys:
        lines += [f"  --{key.name}", f"      {key.doc}" if key.doc else "      -"]
        lines.append(f"      {key.accepts}; default: {key.default}")
    lines += [
        "",
        "exit codes:",
        *(f"  {int(code):>3}  {MEANING[code]}" for code in OF_SERVICES),
        "",
    ]
    return "\n".join(lines)


# -- sources of keys


def _field_name(key: str) -> str:
    return re.sub(r"[.\-]", "_", key.strip()).lower()


def _read_flags(argv: Sequence[str]) -> dict[str, _Setting]:
    found: dict[str, _Setting] = {}
    words = list(argv)
    while words:
        word = words.pop(0)
        if not word.startswith("--") or word == "--":
            raise ConfigError([f"{word!r} is not a flag: write --key value or --key=value"])
        key, equals, value = word[2:].partition("=")
        if not equals:
            if not words:
                raise ConfigError([f"--{key} needs a value: --{key} VALUE"])
            value = words.pop(0)
        if is_secret(_field_name(key)):
            raise ConfigError(
                [
                    f"--{key} may not be an argument, which others can read in the list of"
                    " processes: set it in the file or in the environment"
                ]
            )
        found[_field_name(key)] = _Setting(value, f"--{key}")
    return found


def _read_environment(environ: Mapping[str, str], prefix: str) -> dict[str, _Setting]:
    found = {
        _field_name(name[len(prefix) :]): _Setting(value, f"{name} in the environment")
        for name, value in sorted(environ.items())
        if name.startswith(prefix) and len(name) > len(prefix)
    }
    return {name: item for name, item in found.items() if not _SERVICE_LINK.fullmatch(name)}


def _read_file(path: Path) -> dict[str, _Setting]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            [f"cannot read the configuration file {path}: {error.strerror}"]
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path} is not YAML: {error}"]) from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(
            [f"{path} must contain 'key: value' lines, not a {type(content).__name__}"]
        )
    found: dict[str, _Setting] = {}
    for key, value in _flatten(content):
        name = _field_name(key)
        if name in found:
            raise ConfigError([f"{path} sets {dotted(name)} twice"])
        found[name] = _Setting(value, f"{key} in {path}")
    return found


def _flatten(mapping: Mapping[object, object], prefix: str = "") -> list[tuple[str, object]]:
    """Flatten nested keys: ``{log: {dirs: a}}`` is ``log.dirs: a``."""
    flat: list[tuple[str, object]] = []
    for key, value in mapping.items():
        name = f"{prefix}{key}"
        flat += _flatten(value, f"{name}.") if isinstance(value, dict) else [(name, value)]
    return flat


# -- messages for wrong keys


def _with_listener_options(
    config_class: type[ServiceConfig], settings: Mapping[str, _Setting]
) -> dict[str, _Setting]:
    """Gather ``listener.name.X.KEY`` in one setting, for services with listeners."""
    prefix = f"{_OF_A_LISTENER}_"
    if _OF_A_LISTENER not in config_class.model_fields:
        return dict(settings)
    own = {
        name.removeprefix(prefix): item.value
        for name, item in settings.items()
        if name.startswith(prefix)
    }
    others = {name: item for name, item in settings.items() if not name.startswith(prefix)}
    return others | ({_OF_A_LISTENER: _Setting(own, "listener.name")} if own else {})


def _unknown_keys(config_class: type[ServiceConfig], settings: Mapping[str, _Setting]) -> list[str]:
    known = [*config_class.model_fields, _CONFIG_FLAG]
    problems = []
    for name, item in settings.items():
        if name in config_class.model_fields:
            continue
        hint = config_class.kafka_keys_replaced.get(name) or _similar(name, known)
        problems.append(f"unknown key: {item.origin}; {hint}")
    return problems


def _similar(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"did you mean {dotted(near[0])}?" if near else "--help lists every key"


def _bad_values(
    config_class: type[ServiceConfig], settings: Mapping[str, _Setting], error: ValidationError
) -> list[str]:
    problems = []
    for detail in error.errors():
        name = str(detail["loc"][0]) if detail["loc"] else ""
        if name not in config_class.model_fields:  # a check over several fields
            problems.append(str(detail["msg"]).removeprefix("Value error, "))
            continue
        accepts = _accepts(config_class.model_fields[name])
        if detail["type"] == "missing":
            problems.append(f"{dotted(name)} must be set: {accepts}")
            continue
        item = settings.get(name, _Setting(detail.get("input"), f"{dotted(name)}'s default"))
        hides = is_secret(name) or name == _OF_A_LISTENER
        shown = "the value" if hides else repr(item.value)
        problems.append(f"{item.origin}: {shown} is not valid; expected {accepts}")
    return problems


_PLAIN_TYPES: Final[Mapping[object, str]] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    Path: "a path",
}


def _accepts(info: FieldInfo) -> str:
    """Describe the values of a key by its type and its bounds."""
    words = _type_words(info.annotation)
    if _check_host_port in {getattr(item, "func", None) for item in info.metadata}:
        words = "host:port"
    bounds = []
    for item in info.metadata:
        for attribute, word in (
            ("ge", "at least"),
            ("gt", "above"),
            ("le", "at most"),
            ("lt", "below"),
        ):
            bound = getattr(item, attribute, None)
            if bound is not None:
                bounds.append(f"{word} {bound}")
    return " ".join([words, " and ".join(bounds)]).strip()


def _type_words(annotation: Any) -> str:
    origin = get_origin(annotation)
    if origin is Annotated:
        return _type_words(get_args(annotation)[0])
    if origin is Literal:
        return "one of: " + ", ".join(str(choice) for choice in get_args(annotation))
    if origin in (Union, types.UnionType):
        kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
        return " or ".join(_type_words(kind) for kind in kinds)
    if origin in (tuple, list, frozenset, set):
        words = get_args(annotation)[:1]
        named = bool(words) and get_origin(words[0]) is Literal
        return "a comma-separated list" + (f" of {_type_words(words[0])}" if named else "")
    return _PLAIN_TYPES.get(annotation, "text")


def _default_text(info: FieldInfo) -> str:
    if info.default is PydanticUndefined:
        return "none, must be set" if info.default_factory is None else "computed"
    if info.default is None or info.default in ("", ()):
        return "none"
    if isinstance(info.default, bool):
        return str(info.default).lower()
    if isinstance(info.default, (tuple, list)):
        return ",".join(str(word) for word in info.default)
    return str(info.default)
