"""Removal of secrets from what leaves a machine. Pure."""

import re
from collections.abc import Mapping
from typing import Final

REMOVED: Final = "(removed)"
_SECRET_NAME: Final = re.compile(
    r"passw|secret|token|credential|jaas|passphrase|private[._-]?key|api[._-]?key", re.IGNORECASE
)
_IN_TEXT: Final = re.compile(
    r"(?P<name>[\w.-]*(?:passw|secret|token|credential|jaas|passphrase|private[._-]?key|api[._-]?key)"
    r"[\w.-]*[\"']?\s*[:=]\s*)(?P<value>\"[^\"]*\"|'[^']*'|[^\s,;}&]+)",
    re.IGNORECASE,
)
_IN_URL: Final = re.compile(r"(?P<scheme>\w+://[^\s:/@]+:)[^\s@/]+@")
_PEM: Final = re.compile(
    r"-----BEGIN (?P<kind>[A-Z ]*PRIVATE KEY)-----.*?(?:-----END (?P=kind)-----|\Z)", re.DOTALL
)


def is_secret(name: str) -> bool:
    """True if the value of a setting of this name may be a secret."""
    return _SECRET_NAME.search(name) is not None


def without_secrets(value: object) -> object:
    """Return a document in which every value with a secret name is replaced; the names stay."""
    if isinstance(value, Mapping):
        return {
            name: REMOVED
            if is_secret(str(name)) and inner not in (None, "", {}, [])
            else without_secrets(inner)
            for name, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [without_secrets(inner) for inner in value]
    return text_without_secrets(value) if isinstance(value, str) else value


def text_without_secrets(text: str) -> str:
    """Return a text in which values of ``password=...``, passwords in addresses, and private keys
    are replaced.
    """
    text = _PEM.sub(REMOVED, text)
    text = _IN_URL.sub(lambda match: f"{match['scheme']}{REMOVED}@", text)
    return _IN_TEXT.sub(lambda match: f"{match['name']}{REMOVED}", text)
