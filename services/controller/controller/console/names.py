"""Names as segments of a path: any name of Kafka's is one segment, and comes back unchanged.

Browsers resolve the segments ``.`` and ``..`` even if they are percent-encoded, and an empty
segment is not addressable: these names are marked with a tilde.
"""

import shlex
from typing import Final
from urllib.parse import quote, unquote, urlencode

_MARK: Final = "~"
_NOT_ADDRESSABLE: Final = frozenset(("", ".", ".."))
_INVISIBLE: Final = frozenset(
    (0x00AD, 0x061C, 0xFEFF, *range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2060, 0x2070))
)
"""Code points without a glyph that hide or reorder text."""


def segment(name: str) -> str:
    """Return the path segment of a name."""
    marked = name in _NOT_ADDRESSABLE or name.startswith(_MARK)
    return quote((_MARK if marked else "") + name, safe="")


def name_of(text: str) -> str:
    """Return the name of a path segment. Raises ValueError if it is not UTF-8."""
    return unquote(text, errors="strict").removeprefix(_MARK)


def path(*names: object) -> str:
    """Return the path of these segments: ``path("topics", "a/b")`` is ``/topics/a%2Fb``."""
    return "/" + "/".join(segment(str(name)) for name in names)


def query(**values: object) -> str:
    """Return a query string of the values that are neither None nor empty, '' if there are none."""
    pairs = [(key, str(value)) for key, value in values.items() if value not in (None, "")]
    return "?" + urlencode(pairs) if pairs else ""


def visible(text: str) -> str:
    """Return a text with escapes in place of control characters and of invisible ones."""
    if text.isprintable() and text.isascii():
        return text
    return "".join(char if _has_glyph(char) else _escape(char) for char in text)


def _has_glyph(char: str) -> bool:
    return ord(char) not in _INVISIBLE and (char == " " or char.isprintable())


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) > 0xFF else f"\\x{ord(char):02x}"


def command(*words: object) -> str:
    """Return a line of a shell that runs ``tidemark`` with these words, quoted where needed."""
    return shlex.join(("tidemark", *(str(word) for word in words)))
