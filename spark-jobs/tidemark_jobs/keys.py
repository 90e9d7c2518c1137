"""Rules that extract a record's key: from its own key, or from a part of its value.

A rule is written as ``kind`` or ``kind:argument`` and becomes a column expression. Spark compiles
it with the rest of the plan, so no Python runs for a row.

| rule | the key is |
| --- | --- |
| ``key`` | the record's own key |
| ``access-log:FIELD`` | a field of an access log: host (or ip), ident, user, user-or-ip |
| ``json:PATH`` | a field of a JSON object: ``user.id``, ``$.users[0].id`` |
| ``field:N`` or ``field:N:SEPARATOR`` | the Nth field, from 1, of a line; separated by tabs |
| ``regex:PATTERN`` | the first group of a regular expression (Java's) |
| ``sql:EXPRESSION`` | any Spark SQL expression of the columns text (the value), key, topic, ... |

The key is null if the rule finds nothing, or an empty text.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as sf
from tidemark_spark.errors import OptionError

TEXT: Final = "text"
"""Name of the column with the value as a string; its bytes are those of the value."""
KEY: Final = "key"
"""Name of the column with the record's own key: binary."""

_HOST: Final = r"^(\S+) \S+ .+? \["
_IDENT: Final = r"^\S+ (\S+) .+? \["
_USER: Final = r"^\S+ \S+ (.+?) \["
_NOBODY: Final = "-"
_TAB: Final = "\t"
_GROUP: Final = re.compile(r"(?<!\\)(?:\\\\)*\((?!\?)|\(\?<[A-Za-z]")
_CLASS: Final = re.compile(r"\[(?:\\.|[^\]\\])*\]")
_JSON_PATH: Final = re.compile(r"\$(\.[^.\[\]]+|\[\d+\]|\['[^']+'\])+")


@dataclass(frozen=True, slots=True)
class KeyRule:
    """A rule that extracts a key; ``str()`` of it can be parsed by ``parse_key``."""

    kind: str
    argument: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.argument}" if self.argument else self.kind

    def column(self) -> Column:
        """Return an expression for the key (binary, null if there is none).

        It refers to the columns ``TEXT`` and ``KEY``.
        """
        found = _COLUMNS[self.kind](self.argument).cast("binary")
        return sf.when(sf.length(found) > 0, found)


def parse_key(text: str) -> KeyRule:
    """Parse a rule as written by the user. Raises OptionError."""
    kind, _, argument = text.partition(":")
    check = _CHECKS.get(kind)
    if check is None:
        raise OptionError(f"there is no key rule {kind!r}", f"one of {', '.join(sorted(_CHECKS))}")
    return KeyRule(kind, check(argument))


# -- arguments of rules


def _nothing(argument: str) -> str:
    if argument:
        raise OptionError(f"the key rule key takes no argument: {argument!r}", "write key alone")
    return argument


def _log_field(argument: str) -> str:
    if argument not in _LOG_FIELDS:
        raise OptionError(
            f"an access log has no field {argument!r}",
            " or ".join(f"access-log:{name}" for name in _LOG_FIELDS),
        )
    return argument


def _json_path(argument: str) -> str:
    path = argument if argument.startswith("$") else f"$.{argument}"
    if not _JSON_PATH.fullmatch(path):
        raise OptionError(
            f"{argument!r} is not a path to one field of a JSON object",
            "for example json:user.id or json:$.users[0]['full name']",
        )
    return path


def _line_field(argument: str) -> str:
    number, _, separator = argument.partition(":")
    if not number.isdecimal() or int(number) < 1:
        raise OptionError(
            f"{number!r} is not the number of a field, counted from 1",
            "for example field:3 or field:3:,",
        )
    return f"{int(number)}:{separator}" if separator else str(int(number))


def _pattern(argument: str) -> str:
    if not _GROUP.search(_CLASS.sub("", argument)):
        raise OptionError(
            f"the regular expression {argument!r} has no group for the key",
            r"for example regex:user=(\w+)",
        )
    return argument


def _expression(argument: str) -> str:
    if not argument.strip():
        raise OptionError(
            "the key rule sql needs an expression", "for example sql:split(text, ' ')[2]"
        )
    return argument


# -- columns


def _own_key(_argument: str) -> Column:
    return sf.col(KEY)


def _from_log(field: str) -> Column:
    return _LOG_FIELDS[field]()


def _group_of(pattern: str) -> Column:
    return sf.regexp_extract(sf.col(TEXT), pattern, 1)


def _named(pattern: str) -> Column:
    """Return the group of the pattern; null for ``-``, which access logs write for no value."""
    return sf.nullif(_group_of(pattern), sf.lit(_NOBODY))


def _user_or_ip() -> Column:
    # A line that is not from an access log yields '' for both, which is no key.
    return sf.coalesce(_named(_USER), _group_of(_HOST))


def _from_json(path: str) -> Column:
    return sf.get_json_object(sf.col(TEXT), path)


def _from_line(argument: str) -> Column:
    number, _, separator = argument.partition(":")
    separator = separator or _TAB
    # substring_index takes the separator literally and works on bytes, so any encoding will do.
    before = sf.substring_index(sf.col(TEXT), separator, int(number))
    long_enough = sf.length(sf.col(TEXT)) > 0
    if int(number) > 1:
        shorter = sf.substring_index(sf.col(TEXT), separator, int(number) - 1)
        long_enough = sf.length(before) > sf.length(shorter)
    return sf.when(long_enough, sf.substring_index(before, separator, -1))


def _from_sql(expression: str) -> Column:
    return sf.expr(expression)


_LOG_FIELDS: Final[Mapping[str, Callable[[], Column]]] = {
    "host": lambda: _named(_HOST),
    "ip": lambda: _named(_HOST),
    "ident": lambda: _named(_IDENT),
    "user": lambda: _named(_USER),
    "user-or-ip": _user_or_ip,
}
_CHECKS: Final[Mapping[str, Callable[[str], str]]] = {
    "key": _nothing,
    "access-log": _log_field,
    "json": _json_path,
    "field": _line_field,
    "regex": _pattern,
    "sql": _expression,
}
_COLUMNS: Final[Mapping[str, Callable[[str], Column]]] = {
    "key": _own_key,
    "access-log": _from_log,
    "json": _from_json,
    "field": _from_line,
    "regex": _group_of,
    "sql": _from_sql,
}
