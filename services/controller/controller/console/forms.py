"""Forms: their bodies, and the check that a page of this origin has sent them."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import Request

BODY_BYTES_MAX: Final = 4 * 1024 * 1024
FIELDS_MAX: Final = 1_000
FORM_TOKEN: Final = "form-token"
"""Field with the token of a session's forms."""
_SHOWN_CHARS: Final = 40


class BadFormError(Exception):
    """A form that is refused. ``status`` is that of the answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Form:
    """Fields of a form. A field that occurs several times keeps all its values."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self._pairs = pairs

    def text(self, name: str, default: str = "") -> str:
        """Return the last value of a field."""
        return self.values(name)[-1] if self.values(name) else default

    def values(self, name: str) -> list[str]:
        """Return all values of a field, in order."""
        return [value for key, value in self._pairs if key == name]

    def integer(self, name: str, default: int | None = None, *, bits: int = 64) -> int | None:
        """Return a whole number, the default for an empty field. Raises BadFormError for other
        text, and for a number that a signed field of Kafka's protocol of ``bits`` cannot hold.
        """
        text = self.text(name).strip()
        if not text:
            return default
        try:
            number = int(text)
        except ValueError:
            raise BadFormError(
                400, f"{name}: {text[:_SHOWN_CHARS]!r} is not a whole number"
            ) from None
        if not -(1 << bits - 1) <= number < 1 << bits - 1:
            raise BadFormError(400, f"{name}: {text[:_SHOWN_CHARS]} is out of bounds")
        return number

    def checked(self, name: str) -> bool:
        """True if a box is checked."""
        return bool(self.values(name))

    def as_mapping(self) -> Mapping[str, str]:
        """Return the last value of every field."""
        return dict(self._pairs)


def check_origin(request: Request) -> None:
    """Refuse a form that another site may have sent (cross-site request forgery).

    Browsers send Sec-Fetch-Site or Origin with every POST. Raises BadFormError.
    """
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    own = site == "same-origin" or (
        site is None
        and origin is not None
        and urlsplit(origin).netloc == request.headers.get("host")
    )
    if not own:
        raise BadFormError(
            403,
            "this form was not sent by a page of this console; open the page and send it again,"
            " or use the REST API for programs",
        )


async def read_form(request: Request) -> Form:
    """Return the fields of a POST. Raises BadFormError."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in ("application/x-www-form-urlencoded", ""):
        raise BadFormError(415, f"a form is application/x-www-form-urlencoded, not {kind}")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > BODY_BYTES_MAX:
            raise BadFormError(413, f"a form may have at most {BODY_BYTES_MAX} bytes")
    try:
        pairs = parse_qsl(
            body.decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX, errors="strict"
        )
    except ValueError as error:
        raise BadFormError(400, f"the form cannot be read: {error}") from None
    return Form(pairs)
