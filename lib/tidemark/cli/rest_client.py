"""Calls to REST of a controller, for what no API of Kafka's has: operations, events, figures."""

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import quote, urlencode

from tidemark.cli import settings
from tidemark.cli.failure import CommandError
from tidemark.cli.rest_hints import as_commands
from tidemark.cli.rest_login import RestAddress, RestLogin
from tidemark.runtime.exit_codes import ExitCode

_TIMEOUT_S: Final = 60.0
_ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
_CODES: Final = {
    401: ExitCode.NO_PERMISSION,
    403: ExitCode.NO_PERMISSION,
    422: ExitCode.USAGE,
    429: ExitCode.TEMPORARY,
    502: ExitCode.UNAVAILABLE,
    503: ExitCode.TEMPORARY,
}
_EVENT: Final = b"data: "


class RestClient:
    """Client of the first controller that can be reached."""

    def __init__(self, addresses: str) -> None:
        """``addresses``: HOST:PORT or https://HOST:PORT,... as in the setting ``rest``."""
        self._addresses = [one.strip() for one in addresses.split(",") if one.strip()]
        self._address = ""
        self._cluster_id = ""
        self._login = RestLogin(addresses)

    def call(self, method: str, path: str, body: object = None, **query: object) -> Any:
        """Return the JSON of an answer, None without one. Raises CommandError."""
        target = _target(path, query)
        with self._asked(method, target, body) as answer:
            text = answer.read(_ANSWER_BYTES_MAX)
            return json.loads(text) if text else None

    def cluster(self, method: str, path: str, body: object = None, **query: object) -> Any:
        """Return the JSON of an answer about the cluster that the controller serves."""
        return self.call(method, self._of_cluster(path), body, **query)

    def listed(self, path: str, **query: object) -> list[dict[str, Any]]:
        """Return all items of a list of the cluster, page by page."""
        found: list[dict[str, Any]] = []
        page = self.cluster("GET", path, **query)
        found += page["data"]
        while (following := page["metadata"]["next"]) is not None:
            page = self.call("GET", "/v3/" + following.partition("/v3/")[2])
            found += page["data"]
        return found

    def events(self, path: str) -> Iterator[dict[str, Any]]:
        """Yield server-sent events of the cluster until the controller ends."""
        target = _target(self._of_cluster(path), {"follow": "true"})
        with self._asked("GET", target, None, timeout_s=None) as answer:
            while line := answer.readline():
                if line.startswith(_EVENT):
                    yield json.loads(line.removeprefix(_EVENT))

    def _of_cluster(self, path: str) -> str:
        if not self._cluster_id:
            self._cluster_id = self.call("GET", "/v3/clusters")["data"][0]["cluster_id"]
        return f"/v3/clusters/{quote(self._cluster_id, safe='')}{path}"

    @contextmanager
    def _asked(
        self, method: str, target: str, body: object, timeout_s: float | None = _TIMEOUT_S
    ) -> Iterator[http.client.HTTPResponse]:
        """Yield the answer to one request. Raises CommandError for a refusal."""
        connection = self._connected()
        api = f"{method} {target.partition('?')[0]}"
        try:
            content = None if body is None else json.dumps(body).encode()
            headers = self._login.headers(RestAddress.parse(self._address))
            if body is not None:
                headers["content-type"] = "application/json"
            connection.request(method, target, content, headers)
            if connection.sock is not None:
                connection.sock.settimeout(timeout_s)
            answer = connection.getresponse()
            if answer.status >= http.client.BAD_REQUEST:
                raise self._refusal(answer, api)
            yield answer
        except (OSError, http.client.HTTPException, ValueError) as problem:
            raise CommandError(
                f"no answer that can be used: {problem or type(problem).__name__}",
                address=self._address,
                api=api,
                hint="check the log of the controller",
                code=ExitCode.UNAVAILABLE,
            ) from None
        finally:
            connection.close()

    def _connected(self) -> http.client.HTTPConnection:
        """Return a connection to the first controller that takes one. Raises CommandError."""
        reason = "no address is given"
        for address in [self._address] if self._address else self._addresses:
            place = RestAddress.parse(address)
            self._login.headers(place)  # refuses before it waits for a connection
            connection = self._login.connection(place, _TIMEOUT_S)
            try:
                connection.connect()
            except OSError as problem:
                reason = str(problem)
            else:
                self._address = address
                return connection
        raise CommandError(
            f"no controller can be reached: {reason}",
            address=",".join(self._addresses),
            cause="it does not run, or its rest.listen is another address",
            hint="--rest HOST:PORT, or -X rest=HOST:PORT, https://HOST:PORT with TLS",
            code=ExitCode.UNAVAILABLE,
        )

    def _refusal(self, answer: http.client.HTTPResponse, api: str) -> CommandError:
        text = answer.read(_ANSWER_BYTES_MAX).decode("utf-8", "replace")
        try:
            problem = json.loads(text)
        except ValueError:
            problem = {}
        if not isinstance(problem, dict):
            problem = {}
        return CommandError(
            str(problem.get("message", f"HTTP status {answer.status}")),
            address=self._address,
            api=api,
            hint=as_commands(str(problem.get("remedy") or "")),
            code=_CODES.get(answer.status, ExitCode.FAILED),
        )


def _target(path: str, query: dict[str, object]) -> str:
    given = {key: value for key, value in query.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


def segment(name: object) -> str:
    """Return a name as one segment of a path. Raises CommandError for an empty one: the path would
    be that of the whole list.
    """
    if name == "":
        raise CommandError("the name or id is empty", code=ExitCode.USAGE)
    return quote(str(name), safe="")


def rest_client(addresses: str | None) -> RestClient:
    """Return the client of ``--rest``, or of the setting."""
    return RestClient(addresses or settings.address("rest"))
