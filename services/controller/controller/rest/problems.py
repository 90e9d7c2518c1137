"""Answers to requests that fail: ``{error_code, message, field, remedy}`` with an HTTP status."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.constants import REF_TEMPLATE
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from tidemark.model.errors import TidemarkError

from controller.admin.errors import INTERNAL, UNPROCESSABLE, AdminError
from controller.rest.shapes import ErrorData

log = logging.getLogger(__name__)

MALFORMED: Final = 40001
TOO_LARGE: Final = 41301
RETRY_AFTER_S: Final = "1"
_SHAPE: Final = ErrorData.__name__


def _refusals(descriptions: Mapping[int, str]) -> dict[int | str, dict[str, Any]]:
    """Return OpenAPI's descriptions of refusals by status. They refer to ErrorData by its name:
    with a model FastAPI would make a validator for each status of each route, 880 in all, whenever
    a controller starts.
    """
    content = {"application/json": {"schema": {"$ref": REF_TEMPLATE.format(model=_SHAPE)}}}
    return {
        status: {"description": words, "content": content} for status, words in descriptions.items()
    }


RESPONSES: Final = _refusals(
    {
        400: "a value is not allowed, or the body is no JSON",
        403: "the caller lacks a permission",
        404: "the cluster, or what the path names, does not exist",
        413: "the body is too large",
        422: "a field has a wrong type, or is out of bounds",
        429: "too many requests at a time, or per second",
        502: "a broker or coordinator failed; its log says why",
        503: "not possible now: try again",
    }
)
CHANGES: Final = _refusals({409: "not possible in the present state"})
GUARDED: Final = _refusals({412: "If-Match does not match: it has changed"})


def problem_answer(error: AdminError) -> JSONResponse:
    """Return the response to a refusal."""
    content = ErrorData(
        error_code=error.error_code,
        message=error.message,
        field=error.field,
        remedy=error.remedy,
    )
    headers = {"retry-after": RETRY_AFTER_S} if error.status in (429, 503) else None
    return JSONResponse(content.model_dump(exclude_none=True), error.status, headers)


def describe(document: dict[str, Any]) -> None:
    """Add the shape of refusals to an OpenAPI document whose routes refer to it."""
    shapes: dict[str, Any] = document["components"]["schemas"]
    shape = ErrorData.model_json_schema(ref_template=REF_TEMPLATE, mode="serialization")
    shapes[_SHAPE] = jsonable_encoder(shape, exclude_none=True)
    document["components"]["schemas"] = dict(sorted(shapes.items()))


def install(application: FastAPI) -> None:
    """Answer every failure of an application in the one shape."""

    @application.exception_handler(AdminError)
    async def _refused(_: Request, error: AdminError) -> JSONResponse:
        return problem_answer(error)

    @application.exception_handler(TidemarkError)
    async def _cluster(_: Request, error: TidemarkError) -> JSONResponse:
        from controller.admin.errors import from_cluster

        return problem_answer(from_cluster(error))

    @application.exception_handler(RequestValidationError)
    async def _invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        return problem_answer(_explained(error.errors()))

    @application.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> JSONResponse:
        answer = problem_answer(_of_http(request, error))
        answer.headers.update(error.headers or {})
        return answer

    @application.exception_handler(Exception)
    async def _bug(request: Request, error: Exception) -> JSONResponse:
        log.error("REST request failed", exc_info=error, extra={"path": request.url.path})
        return problem_answer(
            AdminError(500, INTERNAL, "the controller failed; its log has the reason")
        )


def _explained(errors: Sequence[Mapping[str, Any]]) -> AdminError:
    """Return one refusal for the errors of pydantic: it names the first one's field."""
    first = errors[0]
    if first["type"] in ("json_invalid", "model_attributes_type"):
        return AdminError(
            400,
            MALFORMED,
            f"the body is not the JSON object that is expected: {first['msg']}",
            field="body",
            remedy="send a JSON object, with content-type: application/json",
        )
    place, *path = first["loc"]
    field = ".".join(str(part) for part in path) or str(place)
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return AdminError(
        422,
        UNPROCESSABLE,
        f"{field}: {first['msg']}{more}",
        field=field,
        remedy=f"GET /openapi.json describes {place} parameters"
        if place != "body"
        else "GET /openapi.json describes the body",
    )


def _of_http(request: Request, error: HTTPException) -> AdminError:
    path = request.url.path
    if error.status_code == 404:
        return AdminError(
            404, 404, f"{path} does not exist", remedy="GET /openapi.json lists all paths"
        )
    if error.status_code == 405:
        return AdminError(
            405,
            405,
            f"{request.method} {path} is not possible",
            remedy="the header Allow lists the methods",
        )
    if error.status_code == 413:
        return AdminError(413, TOO_LARGE, str(error.detail), field="body", remedy="send less")
    return AdminError(error.status_code, error.status_code, str(error.detail))
