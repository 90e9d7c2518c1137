"""Bytes of keys and values for people: JSON, text or hex, whichever is asked for or fits."""

import json
from typing import Final, Literal

from controller.console.names import visible

Format = Literal["auto", "json", "text", "hex"]
FORMATS: Final[tuple[Format, ...]] = ("auto", "json", "text", "hex")
_HEX_BYTES_MAX: Final = 4_096
_TEXT_CHARS_MAX: Final = 200_000
_CUT_CHARS: Final = 300
_WIDTH: Final = 16


def whole(content: bytes | None, form: Format) -> str:
    """Return all of a key or value, on several lines where that reads better."""
    if content is None:
        return ""
    if form in ("auto", "json"):
        pretty = _pretty(content)
        if pretty is not None:
            return pretty
    if form == "hex" or (form == "auto" and not is_text(content)):
        return _dump(content)
    return _lines(content.decode(errors="replace"))[:_TEXT_CHARS_MAX]


def brief(content: bytes | None, form: Format) -> str:
    """Return the beginning of a key or value, on one line."""
    if content is None:
        return "null"
    if form == "hex" or (form == "auto" and not is_text(content)):
        return content[: _CUT_CHARS // 3].hex(" ")
    return visible(content[: _CUT_CHARS * 4].decode(errors="replace")[:_CUT_CHARS])


def is_text(content: bytes) -> bool:
    """True if the bytes are UTF-8 without control characters other than white space."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return False
    return all(char >= " " or char in "\t\r\n" for char in text)


def _pretty(content: bytes) -> str | None:
    if content[:1] not in (b"{", b"[") or len(content) > _TEXT_CHARS_MAX:
        return None
    try:
        return _lines(json.dumps(json.loads(content), indent=2, ensure_ascii=False))
    except (ValueError, RecursionError):
        return None


def _lines(text: str) -> str:
    return "\n".join(visible(line) for line in text.split("\n"))


def _dump(content: bytes) -> str:
    rows = []
    for start in range(0, min(len(content), _HEX_BYTES_MAX), _WIDTH):
        part = content[start : start + _WIDTH]
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)
        rows.append(f"{start:08x}  {part.hex(' '):<{3 * _WIDTH}} {text}")
    if len(content) > _HEX_BYTES_MAX:
        rows.append(f"… {len(content) - _HEX_BYTES_MAX} more bytes; download the value to see them")
    return "\n".join(rows)
