"""The OpenAPI document."""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, cast

import pytest
from controller.admin.service import AdminService
from controller.config import ControllerConfig
from controller.rest.application import ROUTERS, Rest, make_rest
from controller.rest.problems import RESPONSES
from controller.rest.shapes import ErrorData, links
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from tidemark.runtime.clock import Clock


@cache
def application() -> Rest:
    # No request is made: a document needs no cluster.
    return make_rest(cast("AdminService", None), ControllerConfig(controller_id=1), Clock())


def operations() -> list[tuple[str, Any]]:
    paths = application().openapi()["paths"]
    return [(f"{method} {path}", one) for path, of in paths.items() for method, one in of.items()]


@pytest.mark.parametrize("name", dict(operations()))
def test_every_operation_describes_its_refusals(name: str) -> None:
    responses = dict(operations())[name]["responses"]
    assert responses.keys() >= {str(status) for status in RESPONSES}
    for status in RESPONSES:
        (content,) = responses[str(status)]["content"].values()
        assert content["schema"]["$ref"].endswith("/ErrorData")


def test_every_shape_that_is_referred_to_is_described() -> None:
    document = application().openapi()
    named = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document)))
    assert named <= document["components"]["schemas"].keys()


def test_the_shape_of_a_refusal_is_that_of_its_model() -> None:
    shape = application().openapi()["components"]["schemas"]["ErrorData"]
    assert shape["properties"].keys() == ErrorData.model_fields.keys()
    assert shape["required"] == ["error_code", "message"]


DOCS = Path(__file__).parents[4] / "docs"
NAMED = re.compile(r"(?:(GET|PUT|POST|DELETE|PATCH) )?(/v3(?:/[\w{}$:.-]+)+)")


def without_names(path: str) -> str:
    """A path with `{}` for each part that a caller fills in."""
    return re.sub(r"\{[^}]*\}|\$\w+|(?<=/topics/)\w+", "{}", path).rstrip(".:")


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda path: path.stem)
def test_every_path_of_rest_that_a_document_names_exists(page: Path) -> None:
    known = {without_names(name.partition(" ")[2]) for name, _ in operations()}
    methods = {tuple(without_names(name).split(" ")) for name, _ in operations()}
    for method, path in NAMED.findall(page.read_text()):
        assert without_names(path) in known
        assert not method or (method.lower(), without_names(path)) in methods


def functions_of(dependant: Dependant) -> Iterator[object]:
    yield dependant.call
    for one in dependant.dependencies:
        yield from functions_of(one)


def test_every_request_to_a_cluster_is_refused_for_the_id_of_another_one() -> None:
    routes = [route for router in ROUTERS for route in router.routes]
    of_cluster = [
        route
        for route in routes
        if isinstance(route, APIRoute) and route.path.startswith("/v3/clusters/{cluster_id}")
    ]
    assert len(of_cluster) > 80
    unchecked = [one.path for one in of_cluster if links not in functions_of(one.dependant)]
    assert not unchecked
