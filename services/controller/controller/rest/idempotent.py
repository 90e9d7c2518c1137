"""Route class of requests that change something: an Idempotency-Key makes a repetition harmless."""

from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Final

from fastapi import Header, Request, Response
from fastapi.routing import APIRoute

from controller.admin.idempotency import KEY_CHARS_MAX, Answer
from controller.rest.shapes import admin_context

REPLAYED: Final = "idempotent-replayed"
_KEPT_HEADERS: Final = ("content-type", "location", "etag")
_FIRST_ERROR: Final = 400

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        max_length=KEY_CHARS_MAX,
        min_length=1,
        description="the same key and body: the first answer again, and the change made once",
    ),
]
IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        max_length=1_024,
        description="ETag of the configuration as it was read; 412 if it has changed since",
    ),
]


class IdempotentRoute(APIRoute):
    """Route that keeps its answer for the Idempotency-Key of the request. Failures free the key."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler with the check of the key around it."""
        handle = super().get_route_handler()

        async def guarded(request: Request) -> Response:
            key = request.headers.get("idempotency-key")
            if key is None or request.method != "POST":
                return await handle(request)
            ctx = admin_context(request)
            store, body = ctx.shared.idempotency, await request.body()
            place = f"{request.url.path}?{request.url.query}"
            claim = await store.claim(ctx.principal, place, key, body)
            if isinstance(claim, Answer):
                headers = {**claim.headers, REPLAYED: "true"}
                return Response(claim.body, claim.status, headers)
            answer: Answer | None = None
            try:
                response = await handle(request)
                if response.status_code < _FIRST_ERROR:
                    answer = _kept(response)
                return response
            finally:
                await store.settle(claim, body, answer)

        return guarded


def _kept(response: Response) -> Answer:
    headers = {name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers}
    return Answer(response.status_code, headers, bytes(response.body))
