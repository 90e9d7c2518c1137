"""Keys, values and headers of records as text, JSON or hex. Pure."""

import base64
import binascii
import json
import math
from typing import Any, Final, Literal

from pydantic import Field

from controller.admin.errors import bad_value
from controller.admin.models import Model

Format = Literal["auto", "text", "json", "hex"]
Encoding = Literal["json", "string", "binary"]
SHOWN_BYTES_MAX: Final = 65_536
JSON_DEPTH_MAX: Final = 100
"""Nesting of lists and objects that is shown as JSON; pydantic writes 255 levels at most."""


class Payload(Model):
    """Bytes of a key, value or header. ``data`` is a string for text and hex."""

    format: Literal["null", "text", "json", "hex"] = Field(examples=["json"])
    data: Any = Field(examples=[{"id": 7}])
    size_bytes: int = Field(examples=[8])
    truncated: bool = Field(
        default=False, description=f"true if only the first {SHOWN_BYTES_MAX} bytes are shown"
    )


def show(content: bytes | None, wanted: Format) -> Payload:
    """Return bytes in a format; in the next simpler one if they do not fit: JSON, text, hex."""
    if content is None:
        return Payload(format="null", data=None, size_bytes=0)
    cut = len(content) > SHOWN_BYTES_MAX
    shown = content[:SHOWN_BYTES_MAX]
    if wanted in ("auto", "json") and not cut:
        try:
            return Payload(format="json", data=_parsed(shown), size_bytes=len(content))
        except (ValueError, RecursionError):
            pass
    if wanted != "hex":
        text = _text(shown, cut=cut)
        if text is not None:
            return Payload(format="text", data=text, size_bytes=len(content), truncated=cut)
    return Payload(format="hex", data=shown.hex(), size_bytes=len(content), truncated=cut)


def _parsed(content: bytes) -> Any:
    """Return what an answer can hold: no NaN, no lone surrogates, no deep nesting."""

    def refuse(name: str) -> None:
        raise ValueError(name)

    found = json.loads(content.decode(), parse_constant=refuse)
    if isinstance(found, float) and not math.isfinite(found):
        raise ValueError(found)
    if _is_deeper(found, JSON_DEPTH_MAX):
        raise ValueError("nested too deep")
    json.dumps(found, allow_nan=False, ensure_ascii=False).encode()
    return found


def _is_deeper(value: Any, levels: int) -> bool:
    """True if lists and objects are nested deeper than ``levels``."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(levels == 0 or _is_deeper(one, levels - 1) for one in inner)


def _text(content: bytes, *, cut: bool) -> str | None:
    """Return UTF-8 text without control characters; None for other bytes."""
    try:
        text = content.decode("utf-8", errors="ignore" if cut else "strict")
    except UnicodeDecodeError:
        return None
    return text if all(char.isprintable() or char in "\t\r\n" for char in text) else None


def encode(data: Any, encoding: Encoding, field: str) -> bytes | None:
    """Return the bytes of a JSON value in one of Confluent's encodings. Raises AdminError."""
    if data is None:
        return None
    if encoding == "json":
        try:
            return json.dumps(data, ensure_ascii=False, allow_nan=False).encode()
        except (ValueError, RecursionError):
            raise bad_value("the data is no JSON value", field=field) from None
    if not isinstance(data, str):
        raise bad_value(f"{encoding} data has to be a string", field=field)
    if encoding == "string":
        try:
            return data.encode()
        except UnicodeEncodeError:
            raise bad_value("the string is no valid Unicode", field=field) from None
    return base64_bytes(data, field)


def base64_bytes(data: str, field: str) -> bytes:
    """Return the bytes of Base64 text. Raises AdminError."""
    try:
        return base64.b64decode(data, validate=True)
    except (ValueError, binascii.Error):
        raise bad_value(
            "the data is not Base64", field=field, remedy="encode the bytes as Base64"
        ) from None
