"""Parsing of options that is shared by source and sink. Pure.

Spark passes options as strings, with names in any case. Functions that take ``options`` expect the
names in lower case.
"""

import difflib
from collections.abc import Iterable, Mapping
from typing import Final

from tidemark.codec.varint import INT64_MAX

from tidemark_spark.errors import OptionError
from tidemark_spark.security import SECURITY_OPTIONS

CLIENT_PREFIX: Final = "client."
"""Prefix of options that are settings of Tidemark's client, written with dots or underscores."""
_LOGIN: Final = ("client.security", "client.sasl", "client.ssl")
SPARK_OPTIONS: Final = frozenset(
    (
        "path",
        "paths",
        "__paths__",
        "checkpointlocation",
        "queryname",
        "mergeschema",
        "serialization.format",
    )
)
"""Options that Spark itself adds to those of a data source, in lower case."""


def check_names(given: Mapping[str, str], known: Iterable[str]) -> None:
    """Raise OptionError for a name that is not in ``known``, not Spark's own, not `client.*` and
    not about TLS or login.
    """
    known = tuple(known)
    small = {name.lower() for name in known}
    for name in given:
        lower = name.lower()
        if lower.startswith(_LOGIN):
            raise OptionError(
                f"{name} cannot be set", f"kafka.{lower.removeprefix(CLIENT_PREFIX)}, with dots"
            )
        if lower in small or lower in SPARK_OPTIONS or lower.startswith(CLIENT_PREFIX):
            continue
        if lower in SECURITY_OPTIONS:
            continue
        if lower == "kafka.bootstrap.servers":
            raise OptionError(
                "kafka.bootstrap.servers is an option of Spark's Kafka source, not of this one",
                "bootstrap.servers with the gRPC addresses of some brokers (host:9292); the source"
                " finds the Kafka listeners through them",
            )
        if lower.startswith("kafka."):
            raise OptionError(
                f"{name} is an option of Spark's Kafka source, not of this one",
                f"client.{name[6:]}, if Tidemark's client has this setting",
            )
        raise OptionError(f"there is no option {name}", nearest(name, known))


def bootstrap_servers(options: Mapping[str, str]) -> str:
    """Return the option ``bootstrap.servers``: gRPC addresses of brokers. Raises OptionError."""
    servers = options.get("bootstrap.servers", "").strip()
    if not servers:
        raise OptionError(
            "the option bootstrap.servers is missing",
            'option("bootstrap.servers", "host:9292,...") with the gRPC addresses of some brokers',
        )
    return servers


def boolean(options: Mapping[str, str], name: str, *, otherwise: bool) -> bool:
    """Return a boolean option, or ``otherwise`` if it is not given. Raises OptionError."""
    text = options.get(name.lower())
    if text is None:
        return otherwise
    if text.lower() not in ("true", "false"):
        raise OptionError(f"{name} is {text!r}", "true or false")
    return text.lower() == "true"


def positive(options: Mapping[str, str], name: str, most: int = INT64_MAX) -> int | None:
    """Return an option that is a positive integer, or None if it is not given."""
    text = options.get(name.lower())
    return None if text is None else integer(name, text, 1, most)


def integer(name: str, text: str, least: int, most: int = INT64_MAX) -> int:
    """Parse an integer from ``least`` to ``most``. Raises OptionError."""
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        shown = f"an integer of at least {least}" if number < least else f"at most {most}"
        raise OptionError(f"{name} is {text!r}", shown)
    return number


def choice(options: Mapping[str, str], name: str, choices: tuple[str, ...], otherwise: str) -> str:
    """Return an option that is one of ``choices``, in lower case. Raises OptionError."""
    text = options.get(name.lower(), otherwise).lower()
    if text not in choices:
        raise OptionError(f"{name} is {text!r}", " or ".join(choices))
    return text


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint: the known name that is most similar to ``name``, or all of them."""
    by_lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1)
    if near:
        return by_lower[near[0]]
    return "one of " + ", ".join(sorted(by_lower.values()))
