"""schemathesis calls every operation of the OpenAPI document with made-up input, right and wrong:
no 500, and no answer that the document does not describe. The count is bounded.
"""

from collections.abc import Callable
from typing import Any

import pytest
import schemathesis
from controller.rest.application import ROUTERS
from e2e.clusters import Cluster
from e2e.rest_world import Api
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

pytestmark = pytest.mark.e2e

EXAMPLES = 10
"""Calls of one operation in each mode."""
NOTHING_TO_GET_WRONG = "listKafkaClusters"
"""Operation without a parameter."""
CHECKS: list[Callable[..., Any]] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]


def operations() -> list[str]:
    """Operation ids of the document, made without a cluster."""
    application = FastAPI()
    for router in ROUTERS:
        application.include_router(router)
    paths = application.openapi()["paths"].values()
    return sorted(each["operationId"] for methods in paths for each in methods.values())


def prepared(case: schemathesis.Case[Any], rest: Api, *, named: bool) -> schemathesis.Case[Any]:
    """The case at this cluster; with ``named``, at things that exist. What it may do to the cluster
    is bounded: a topic of thousands of partitions would only cost disk.
    """
    parameters = dict(case.path_parameters or {})
    known = rest.names if named else {"cluster_id": rest.cluster_id}
    case.path_parameters = parameters | {key: known[key] for key in known if key in parameters}
    query = dict(case.query or {})
    takes = {one.name for one in case.operation.iter_parameters()}
    if "dry_run" in takes:
        query["dry_run"] = "true"
    if "follow" in takes:
        query["follow"] = "false"
    case.query = query
    return case


@pytest.mark.feature("AD19")
@pytest.mark.parametrize(
    ("operation_id", "mode"),
    [
        (each, mode)
        for each in operations()
        for mode in GenerationMode
        if (each, mode) != (NOTHING_TO_GET_WRONG, GenerationMode.NEGATIVE)
    ],
)
def test_no_made_up_request_fails_or_leaves_the_document(
    rest: Api, rest_cluster: Cluster, operation_id: str, mode: GenerationMode
) -> None:
    schema = schemathesis.openapi.from_dict(rest.document)
    operation = schema.find_operation_by_id(operation_id)
    cases = operation.as_strategy(generation_mode=mode)

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases, named=st.booleans())
    def check(case: schemathesis.Case[Any], named: bool) -> None:
        prepared(case, rest, named=named)
        case.call_and_validate(base_url=rest.base, checks=CHECKS)

    check()
    for number in (1, 2):
        assert "REST request failed" not in rest_cluster.log(f"controller-{number}")
