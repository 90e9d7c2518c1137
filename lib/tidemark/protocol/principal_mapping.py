"""Principal of a client's certificate: its subject as Java prints it, then rules (KIP-371)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

DEFAULT_RULES: Final = "DEFAULT"
_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
"""Types of attributes that RFC 2253 names; Java prints others as numbers."""
_ESCAPED: Final = re.compile(r'[,=+<>#;"\\]')
_BLANKS: Final = " \r"
_RULE: Final = r"(DEFAULT)|RULE:((\\.|[^\\/])*)/((\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER: Final = re.compile(rf"\s*({_RULE})\s*(,\s*|$)")
_PARSER: Final = re.compile(_RULE)
_REFERENCE: Final = re.compile(r"\\(.)|\$(\d+)", re.DOTALL)


class NoPrincipalError(Exception):
    """No rule applies to the certificate's subject."""


class NameAttribute(NamedTuple):
    """One attribute of a distinguished name."""

    oid: str
    text: str | None
    """None for a value that is no text."""
    der: bytes
    """Value with its ASN.1 tag and length."""


def java_name(subject: Sequence[Sequence[NameAttribute]]) -> str:
    """Return a subject as Java's X500Principal.getName does (RFC 2253): the last one first.

    ``subject`` is in the order of the certificate; several attributes of one level are an inner
    sequence.
    """
    return ",".join("+".join(map(_attribute, level)) for level in reversed(subject))


def _attribute(one: NameAttribute) -> str:
    keyword = _KEYWORDS.get(one.oid)
    if keyword is None or one.text is None:
        return f"{keyword or one.oid}=#{one.der.hex()}"
    escaped = _ESCAPED.sub(r"\\\g<0>", one.text).replace("\0", "\\00")
    inner = escaped.strip(_BLANKS)
    lead = len(escaped) - len(escaped.lstrip(_BLANKS))
    trail = escaped[lead + len(inner) :]
    blanks_before, blanks_after = (
        "".join(f"\\{blank}" for blank in blanks) for blanks in (escaped[:lead], trail)
    )
    return f"{keyword}={blanks_before}{inner}{blanks_after}"


@dataclass(frozen=True, slots=True)
class _Rule:
    """One rule; ``pattern`` None: the name as it is."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """Return the principal's name; None if the rule does not apply."""
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        found = self.pattern.sub(lambda match: _expanded(self.replacement, match), name)
        return {"L": found.lower(), "U": found.upper()}.get(self.case, found)


class PrincipalMapper:
    """Rules of ``ssl.principal.mapping.rules``, in order; the first one that applies decides."""

    def __init__(self, rules: str) -> None:
        """Raises ValueError for rules that Kafka would not take."""
        found = (_parsed(match[1]) for match in _SPLITTER.finditer(rules.strip()))
        self._rules = tuple(rule for rule in found if rule is not None)

    def name_of(self, subject: str) -> str:
        """Return the principal's name of a subject. Raises NoPrincipalError."""
        for rule in self._rules:
            if name := rule.apply(subject):
                return name
        raise NoPrincipalError(f"ssl.principal.mapping.rules has no rule for {subject!r}")


def _parsed(rule: str) -> _Rule | None:
    match = _PARSER.match(rule)
    if match is None or match.end() != len(rule):
        raise ValueError(
            f"{rule!r} is no rule: write DEFAULT or RULE:pattern/replacement/ with L or U at the"
            " end for lower or upper case"
        )
    if match[1]:
        return _Rule()
    if match[2] is None:
        return None  # between two commas
    try:
        return _Rule(re.compile(match[2]), match[4], match[6])
    except re.error as problem:
        raise ValueError(f"{rule!r}: {match[2]!r} is no regular expression: {problem}") from None


def _expanded(replacement: str, match: re.Match[str]) -> str:
    """Return Java's replacement: ``$1`` is a group, ``\\c`` the character c. A number beyond the
    groups loses its last digits until it is one, as in Kafka, or stays as it is.
    """
    groups = match.re.groups

    def one(found: re.Match[str]) -> str:
        if found[1] is not None:
            return found[1]
        digits = found[2]
        number = digits
        while int(number) > groups and len(number) > 1:
            number = number[:-1]
        if int(number) > groups:
            return found[0]
        return (match[int(number)] or "") + digits[len(number) :]

    return _REFERENCE.sub(one, replacement)
