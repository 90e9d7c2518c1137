"""Pages of processes, at ops.listen or rest.listen."""

from typing import NamedTuple

from tidemark.cli.rest_login import RestAddress, RestLogin


class HttpPage(NamedTuple):
    """Answer of a process."""

    status: int
    body: bytes


def ask(
    address: str,
    method: str,
    path: str,
    body: bytes = b"",
    *,
    bytes_max: int,
    timeout_s: float,
) -> HttpPage:
    """Return the answer of the process at HOST:PORT or https://HOST:PORT. There, the settings of
    the login are sent. Raises OSError, HTTPException, CommandError.
    """
    place = RestAddress.parse(address)
    login = RestLogin(address)
    connection = login.connection(place, timeout_s)
    try:
        connection.request(method, path, body, login.headers(place) if place.has_tls else {})
        answer = connection.getresponse()
        return HttpPage(answer.status, answer.read(bytes_max))
    finally:
        connection.close()
