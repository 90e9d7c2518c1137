import asyncio
from functools import partial
from types import SimpleNamespace

import pytest
from grpc import StatusCode
from grpc.aio import AioRpcError, Metadata
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.runtime.controller_client import ControllerClient
from tidemark.runtime.zk_session import SessionLostError
from tidemark_wire.v1 import controller_pb2 as pb
from unit.tidemark.runtime.scripted_controller import ScriptedController, serving
from virtual_time import run_skipping, skip
from waiting import PATIENCE_S

NOT_CONTROLLER = int(ErrorCode.NOT_CONTROLLER)
DUPLICATE = int(ErrorCode.DUPLICATE_BROKER_REGISTRATION)


async def call_through(
    first: ScriptedController, *others: ScriptedController, timeout_s: float = PATIENCE_S
) -> tuple[pb.CreateTopicsResponse, str]:
    client = ControllerClient(endpoints=[item.endpoint for item in (first, *others)])
    try:
        answer = await client.call("CreateTopics", pb.CreateTopicsRequest(), timeout_s)
        return answer, client.active_endpoint
    finally:
        await client.close()


def test_a_standby_sends_the_caller_to_the_active_one() -> None:
    async def use() -> None:
        async with serving() as standby, serving() as active:
            hint = pb.CreateTopicsResponse(
                error_code=NOT_CONTROLLER, controller_hint=active.endpoint
            )
            standby.answers["CreateTopics"] = [hint]
            active.answers["CreateTopics"] = [pb.CreateTopicsResponse()]
            answer, endpoint = await call_through(standby)
            assert (answer.error_code, endpoint) == (0, active.endpoint)

    asyncio.run(use())


def test_a_dead_endpoint_gives_way_to_the_next() -> None:
    async def use() -> None:
        async with serving() as active:
            active.answers["CreateTopics"] = [pb.CreateTopicsResponse()]
            dead = ScriptedController()
            dead.endpoint = "127.0.0.1:1"
            _, endpoint = await call_through(dead, active)
            assert endpoint == active.endpoint

    asyncio.run(use())


def test_a_controller_that_does_not_answer_is_looked_up_again() -> None:
    """It may have been paused, and another be active by now."""

    class Silent(ControllerClient):
        def stub(self, endpoint: str) -> object:
            async def create_topics(_request: object, **_: float) -> None:
                nothing = Metadata()
                raise AioRpcError(StatusCode.DEADLINE_EXCEEDED, nothing, nothing, "", "")

            return SimpleNamespace(CreateTopics=create_topics)

    async def use() -> None:
        client = Silent(endpoints=["one:1", "two:2"])
        for _ in range(2):
            with pytest.raises(TidemarkError, match="did not answer CreateTopics in time"):
                await client.call("CreateTopics", pb.CreateTopicsRequest(), PATIENCE_S)
            assert not client.active_endpoint
        assert await client.find(PATIENCE_S) == "one:1"
        await client.close()

    asyncio.run(use())


def test_an_error_of_the_request_is_the_answer() -> None:
    async def use() -> None:
        async with serving() as active:
            refused = pb.CreateTopicsResponse(error_code=ErrorCode.REQUEST_TIMED_OUT)
            active.answers["CreateTopics"] = [refused]
            answer, _ = await call_through(active)
            assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT

    asyncio.run(use())


def test_nobody_active_is_told_at_the_deadline() -> None:
    async def use() -> None:
        async with serving() as standby:
            standby.answers["CreateTopics"] = [pb.CreateTopicsResponse(error_code=NOT_CONTROLLER)]
            standby.on_asked = partial(skip, PATIENCE_S)
            with pytest.raises(TidemarkError, match="is not active") as refused:
                await call_through(standby)
            assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT

    run_skipping(use())


async def register(*answers: pb.RegisterBrokerResponse, passing_s: float = 0) -> tuple[int, str]:
    """So much time passes whenever the controller is asked."""
    async with serving() as active:
        active.answers["RegisterBroker"] = list(answers)
        active.on_asked = partial(skip, passing_s)
        client = ControllerClient(endpoints=[active.endpoint])
        try:
            return await client.register_broker(pb.RegisterBrokerRequest(), PATIENCE_S)
        finally:
            await client.close()


def test_a_registration_answers_epoch_and_cluster() -> None:
    response = pb.RegisterBrokerResponse(broker_epoch=42, cluster_id="tide")
    assert run_skipping(register(response)) == (42, "tide")


def test_an_older_incarnation_is_waited_for_but_not_for_ever() -> None:
    duplicate = pb.RegisterBrokerResponse(error_code=DUPLICATE, error_message="alive")
    with pytest.raises(TidemarkError, match="alive") as refused:
        run_skipping(register(duplicate, passing_s=PATIENCE_S))
    assert refused.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_a_live_znode_that_is_gone_means_a_lost_session() -> None:
    gone = pb.RegisterBrokerResponse(error_code=ErrorCode.BROKER_ID_NOT_REGISTERED)
    with pytest.raises(SessionLostError):
        run_skipping(register(gone))
