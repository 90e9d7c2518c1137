import asyncio
import logging

import grpc
import grpc.aio
import pytest
from grpc._cython import cygrpc  # type: ignore[attr-defined]  # not in the stubs
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from tidemark.runtime.ops_http import AddressTakenError
from tidemark.runtime.server import make_grpc_server

STORE = "tidemark_wire.v1.PartitionStore"
RAISED = "raised in a servicer method"


async def _health_before_and_after() -> list[int]:
    async with (
        make_grpc_server("127.0.0.1:0", [STORE], lambda _: None) as server,
        grpc.aio.insecure_channel(str(server.address)) as channel,
    ):
        check = health_pb2_grpc.HealthStub(channel).Check
        before = await check(health_pb2.HealthCheckRequest(service=STORE))
        await server.set_serving(serving=True)
        after = await check(health_pb2.HealthCheckRequest(service=STORE))
    return [before.status, after.status]


def test_health_follows_what_the_service_says() -> None:
    status = health_pb2.HealthCheckResponse
    assert asyncio.run(_health_before_and_after()) == [status.NOT_SERVING, status.SERVING]


async def _services_listed() -> set[str]:
    async with (
        make_grpc_server("127.0.0.1:0", [STORE], lambda _: None) as server,
        grpc.aio.insecure_channel(str(server.address)) as channel,
    ):
        ask = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo
        call = ask(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
        answer = await call.read()
        call.cancel()
    return {service.name for service in answer.list_services_response.service}


def test_reflection_lists_the_services() -> None:
    assert {STORE, "grpc.health.v1.Health"} <= asyncio.run(_services_listed())


async def _listen_twice() -> None:
    async with (
        make_grpc_server("127.0.0.1:0", [], lambda _: None) as first,
        make_grpc_server(str(first.address), [], lambda _: None),
    ):
        pass


def test_a_taken_port_names_the_key_to_change() -> None:
    with pytest.raises(AddressTakenError, match=r"or change grpc\.listen"):
        asyncio.run(_listen_twice())


async def _answer_nobody(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What is logged when grpc's core says that an answer found no caller, and when it fails
    otherwise.
    """
    core = logging.getLogger("grpc._cython.cygrpc")
    async with make_grpc_server("127.0.0.1:0", [], lambda _: None):
        for problem in (cygrpc.ExecuteBatchError("execute_batch"), RuntimeError("a bug")):
            try:
                raise problem
            except type(problem):
                core.exception(RAISED)
    # gRPC's own thread may log that the loop of an earlier test is closed, with the same logger.
    told = [record for record in caplog.records if record.getMessage() == RAISED]
    return [str(record.exc_info and record.exc_info[1]) for record in told]


def test_an_answer_that_finds_no_caller_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    assert asyncio.run(_answer_nobody(caplog)) == ["a bug"]
