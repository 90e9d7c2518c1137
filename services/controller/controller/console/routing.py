"""Routes: patterns of path segments and the functions that answer them."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

from starlette.responses import Response

from controller.console.names import name_of

NAME: Final = None
"""Segment of a pattern that matches any name."""
Handler = Callable[..., Awaitable[Response]]


class Route(NamedTuple):
    """A pattern, and its functions: one that shows the page, one that takes its form."""

    pattern: tuple[str | None, ...]
    show: Handler | None
    change: Handler | None = None


class Found(NamedTuple):
    """A route and the names in the path."""

    route: Route
    names: tuple[str, ...]


def route(pattern: str, show: Handler | None, change: Handler | None = None) -> Route:
    """Return a route for a pattern such as ``topics/*/messages``; ``*`` stands for a name."""
    return Route(tuple(NAME if word == "*" else word for word in pattern.split("/")), show, change)


def find(routes: Sequence[Route], raw_path: str) -> Found | None:
    """Return the route of a path that is still percent-encoded, None if there is none."""
    segments = raw_path.removeprefix("/").split("/")
    for candidate in routes:
        if len(candidate.pattern) == len(segments):
            names = _match(candidate.pattern, segments)
            if names is not None:
                return Found(candidate, names)
    return None


def _match(pattern: Sequence[str | None], segments: Sequence[str]) -> tuple[str, ...] | None:
    names: list[str] = []
    for wanted, segment in zip(pattern, segments, strict=True):
        if wanted is NAME:
            try:
                names.append(name_of(segment))
            except ValueError:
                return None
        elif wanted != segment:
            return None
    return tuple(names)


def raw_path(scope: Any) -> str:
    """Return the path of a request as it was sent, without its query."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw.partition(b"?")[0].decode("latin-1")
