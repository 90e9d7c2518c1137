"""Styles, scripts and pictures, at addresses that change with their content."""

import hashlib
from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_FOR_EVER: Final = "public, max-age=31536000, immutable"


class StaticFiles:
    """All static files, read once. Their folder is part of the address: a hash of all of them, so
    that modules that import each other are of one release.
    """

    def __init__(self) -> None:
        folder = files("controller.console") / "static"
        self._contents = {
            item.name: item.read_bytes()
            for item in sorted(folder.iterdir(), key=lambda it: it.name)
            if item.is_file()
        }
        digest = hashlib.sha256()
        for name, content in self._contents.items():
            digest.update(name.encode() + b"\0" + content)
        self.version: Final = digest.hexdigest()[:12]

    def url(self, name: str) -> str:
        """Return the address of a file. Raises KeyError for an unknown one."""
        if name not in self._contents:
            raise KeyError(name)
        return f"/static/{self.version}/{name}"

    def answer(self, request: Request, version: str, name: str) -> Response | None:
        """Return a file, or that it has not changed; None if there is no such file."""
        content = self._contents.get(name)
        kind = _TYPES.get("." + name.rpartition(".")[2])
        if content is None or kind is None:
            return None
        tag = f'"{self.version}"'
        cache = _FOR_EVER if version == self.version else "no-cache"
        headers = {"cache-control": cache, "etag": tag}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, headers={**headers, "content-type": kind})
