"""Options of TLS and login, as settings of Tidemark's client. Pure.

The names are those of Spark's Kafka connector: ``kafka.`` and Kafka's own name. Stores of keys and
authorities are PEM files, which Kafka's Java client reads too (``ssl.truststore.type=PEM``).
GRPC_PROTOCOL turns the same login on for gRPC.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from tidemark.client.errors import ClientConfigError
from tidemark.client.security_config import OAUTHBEARER, PLAIN, SecurityConfig

from tidemark_spark.errors import OptionError

KAFKA_PREFIX: Final = "kafka."
GRPC_PROTOCOL: Final = "grpc.security.protocol"
_JAAS: Final = "kafka.sasl.jaas.config"
_SETTINGS: Final[Mapping[str, str]] = {
    "kafka.security.protocol": "security_protocol",
    "kafka.sasl.mechanism": "sasl_mechanism",
    "kafka.sasl.username": "sasl_username",
    "kafka.sasl.password": "sasl_password",
    "kafka.ssl.ca.location": "ssl_ca_location",
    "kafka.ssl.truststore.location": "ssl_ca_location",
    "kafka.ssl.certificate.location": "ssl_certificate_location",
    "kafka.ssl.keystore.location": "ssl_certificate_location",
    "kafka.ssl.key.location": "ssl_key_location",
    "kafka.ssl.key.password": "ssl_key_password",
    "kafka.ssl.endpoint.identification.algorithm": "ssl_endpoint_identification_algorithm",
}
_STORES: Final = ("kafka.ssl.truststore", "kafka.ssl.keystore")
SECURITY_OPTIONS: Final = (
    *_SETTINGS,
    _JAAS,
    *(f"{store}.type" for store in _STORES),
    GRPC_PROTOCOL,
)
_OVER_GRPC: Final = ("PLAINTEXT", "SSL", "SASL_SSL")
_OF_TLS: Final = (
    "ssl_ca_location",
    "ssl_certificate_location",
    "ssl_key_location",
)
_MODULE: Final = re.compile(
    r"\s*org\.apache\.kafka\.common\.security\.(?:scram\.Scram|plain\.Plain)LoginModule\s+"
    r"required\s+(?P<options>.*?);\s*",
    re.DOTALL,
)
_ENTRY: Final = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)')""")
_ESCAPE: Final = re.compile(r"\\(.)")


def kafka_security(options: Mapping[str, str]) -> SecurityConfig | None:
    """Return the client's settings of ``kafka.security.*``, ``kafka.sasl.*`` and ``kafka.ssl.*``;
    None if there are none.

    ``options`` have names in lower case; others are left out. Raises OptionError, which has no
    secret.
    """
    for store in _STORES:
        _check_store(options, store)
    settings: dict[str, str] = {}
    for name, setting in _SETTINGS.items():
        if name in options:
            if setting in settings:
                raise OptionError(f"{name} and another name of the same file are set", "one name")
            settings[setting] = options[name]
    if _JAAS in options:
        settings |= _login(options[_JAAS])
    if settings.get("ssl_endpoint_identification_algorithm") == "":
        settings["ssl_endpoint_identification_algorithm"] = "none"  # as Kafka writes it
    if settings.get("sasl_mechanism") == OAUTHBEARER:
        raise OptionError(
            "kafka.sasl.mechanism is OAUTHBEARER, and tasks have no token", "SCRAM-SHA-512 or PLAIN"
        )
    try:
        return SecurityConfig(**settings) if settings else None  # type: ignore[arg-type]
    except ClientConfigError as problem:
        raise OptionError(str(problem), f"options that begin with {KAFKA_PREFIX}") from None


class _Hidden(str):
    """A secret, which is not printed with the options that hold it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


def client_security(options: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of TLS and login of a client with transport="grpc": those of gRPC, and
    ``kafka_security``.

    Over gRPC the user's password is sent through TLS (PLAIN), whatever the mechanism at Kafka's
    listeners. ``options`` as for ``kafka_security``. Raises OptionError.
    """
    at_kafka = kafka_security(options)
    protocol = options.get(GRPC_PROTOCOL, "PLAINTEXT").upper()
    if protocol not in _OVER_GRPC:
        raise OptionError(f"{GRPC_PROTOCOL} is {protocol}", ", ".join(_OVER_GRPC))
    if protocol == "PLAINTEXT":
        return {} if at_kafka is None else {"kafka_security": at_kafka}
    login = at_kafka or SecurityConfig()
    settings: dict[str, Any] = {
        "kafka_security": login,
        "security_protocol": protocol,
        **{name: getattr(login, name) for name in _OF_TLS},
        "ssl_key_password": _Hidden(login.ssl_key_password),
    }
    if protocol == "SASL_SSL":
        if not login.sasl_username:
            raise OptionError(
                f"{GRPC_PROTOCOL} is SASL_SSL, and there is no user",
                "kafka.sasl.username and kafka.sasl.password, or kafka.sasl.jaas.config",
            )
        settings |= {
            "sasl_mechanism": PLAIN,
            "sasl_username": login.sasl_username,
            "sasl_password": _Hidden(login.sasl_password),
        }
    return settings


def _check_store(options: Mapping[str, str], store: str) -> None:
    if f"{store}.location" not in options:
        return
    kind = options.get(f"{store}.type", "JKS")
    if kind.upper() != "PEM":
        raise OptionError(
            f"{store}.location is a store of type {kind}, and this format reads PEM",
            f"{store}.type=PEM and a PEM file; `keytool -exportcert -rfc` writes a certificate",
        )


def _login(jaas: str) -> dict[str, str]:
    """Return user and password of ``sasl.jaas.config``. Raises OptionError, without its text."""
    hint = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="..."'
    module = _MODULE.fullmatch(jaas)
    if module is None:
        raise OptionError(
            f"{_JAAS} is not a login with ScramLoginModule or PlainLoginModule",
            f'{hint} password="...";',
        )
    found = {
        name: _ESCAPE.sub(r"\1", double or single)
        for name, double, single in _ENTRY.findall(module["options"])
    }
    if not {"username", "password"} <= found.keys():
        raise OptionError(f"{_JAAS} lacks username or password", f'{hint} password="...";')
    return {"sasl_username": found["username"], "sasl_password": found["password"]}


def kafka_properties(text: str) -> dict[str, str]:
    """Return the options in a configuration of Kafka's Java clients; its addresses are left out.

    Raises OptionError for a line that is not NAME=VALUE, or a name that is no option here.
    """
    options: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith(("#", "!")):
            continue
        name, equals, value = line.partition("=")
        own = name.strip().lower()
        option = own if own == GRPC_PROTOCOL else f"{KAFKA_PREFIX}{own}"
        if not equals:
            raise OptionError(f"line {number} of the properties is not NAME=VALUE", "name=value")
        if option == f"{KAFKA_PREFIX}bootstrap.servers":
            continue
        if option not in SECURITY_OPTIONS:
            raise OptionError(
                f"line {number} of the properties has {name.strip()}, which is not about TLS or"
                " login",
                "a file with security.*, sasl.* and ssl.* alone",
            )
        options[option] = value.strip()
    return options
