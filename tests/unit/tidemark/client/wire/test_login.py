"""Logins of a connection, with a broker that is a function."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from tidemark.client.config import ClientConfig
from tidemark.client.errors import AuthenticationError, ClientError, ConnectionLostError
from tidemark.client.wire.login import REPEATED_AT, ConnectionLogin
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.long_tail import Struct
from tidemark.model.errors import ErrorCode
from virtual_time import pass_time, run_virtual

CONFIG = ClientConfig(
    security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_username="a", sasl_password="b"
)


class Broker:
    """Accepts every password; ``asked`` has the APIs, ``lost`` why the connection is closed."""

    def __init__(self, *, refuses: ErrorCode = ErrorCode.NONE, hangs: bool = False) -> None:
        self.refuses, self.hangs = refuses, hangs
        self.asked: list[ApiKey] = []
        self.lost: list[ClientError] = []

    async def ask(self, api_key: ApiKey, fields: Mapping[str, object]) -> Struct:
        self.asked.append(api_key)
        await pass_time(3_600 if self.hangs else 1)
        if api_key is ApiKey.SASL_HANDSHAKE:
            return Struct(error_code=int(self.refuses), mechanisms=["SCRAM-SHA-256"])
        return Struct(error_code=0, error_message=None, auth_bytes=b"", session_lifetime=100_000)


def test_callers_that_come_together_log_in_once_and_again_before_the_session_ends() -> None:
    async def run() -> Any:
        broker, login = Broker(), ConnectionLogin(CONFIG, "b:1")
        await asyncio.gather(*(login.ensure(broker.ask, broker.lost.append) for _ in range(5)))
        first = len(broker.asked), login.is_due
        await pass_time(100 * REPEATED_AT)
        due = login.is_due
        await login.ensure(broker.ask, broker.lost.append)
        return first, due, len(broker.asked), login.is_due

    assert run_virtual(run()) == ((2, False), True, 4, False)


@pytest.mark.feature("SE01")
def test_a_mechanism_that_is_not_enabled_is_named_with_those_that_are() -> None:
    broker = Broker(refuses=ErrorCode.UNSUPPORTED_SASL_MECHANISM)
    login = ConnectionLogin(CONFIG, "b:1")
    with pytest.raises(AuthenticationError, match=r"PLAIN; it enables: SCRAM-SHA-256 at b:1"):
        run_virtual(login.ensure(broker.ask, broker.lost.append))
    assert [type(one) for one in broker.lost] == [AuthenticationError]


def test_a_login_that_is_cancelled_closes_the_connection_and_one_that_waits_does_not() -> None:
    async def run() -> tuple[int, int]:
        broker, login = Broker(hangs=True), ConnectionLogin(CONFIG, "b:1")
        async with asyncio.TaskGroup() as tasks:
            ensure = (login.ensure(broker.ask, broker.lost.append) for _ in range(2))
            first, second = map(tasks.create_task, ensure)
            await pass_time(1)
            second.cancel()
            await pass_time(1)
            after_second = len(broker.lost)
            first.cancel()
        return after_second, sum(isinstance(one, ConnectionLostError) for one in broker.lost)

    assert run_virtual(run()) == (0, 1)
