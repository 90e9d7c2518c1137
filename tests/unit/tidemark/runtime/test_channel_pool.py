import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest
from tidemark.runtime import tls
from tidemark.runtime.channel_pool import (
    CallFailedError,
    ChannelPool,
    call_failures,
)
from tidemark_wire.v1.txn_pb2 import ListTransactionsRequest
from tidemark_wire.v1.txn_pb2_grpc import TransactionCoordinatorStub
from unit.pem_files import PemFiles
from waiting import PATIENCE_S


def test_a_peer_has_one_channel() -> None:
    async def scenario() -> None:
        pool = ChannelPool()
        assert await pool.channel("127.0.0.1:1") is await pool.channel("127.0.0.1:1")
        await pool.close()
        assert len(pool) == 0

    asyncio.run(scenario())


def test_beyond_the_bound_the_channel_longest_unused_goes() -> None:
    async def scenario() -> None:
        pool = ChannelPool(channels_max=2)
        first, second = [await pool.channel(f"127.0.0.1:{port}") for port in (1, 2)]
        assert await pool.channel("127.0.0.1:1") is first
        await pool.channel("127.0.0.1:3")
        assert await pool.channel("127.0.0.1:1") is first
        assert await pool.channel("127.0.0.1:2") is not second
        await pool.close()

    asyncio.run(scenario())


@pytest.mark.feature("SE09")
def test_with_new_files_a_peer_gets_a_new_channel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "LOOK_S", 0.0)
    files = PemFiles(tmp_path)

    async def scenario() -> None:
        pool = ChannelPool(tls.ChannelTls(files.identity))
        first = await pool.channel("127.0.0.1:1")
        assert await pool.channel("127.0.0.1:1") is first
        files.issue()
        assert await pool.channel("127.0.0.1:1") is not first
        assert first.get_state() is grpc.ChannelConnectivity.IDLE  # still open
        await pool.close()

    asyncio.run(scenario())


@pytest.mark.feature("SE09")
def test_files_that_cannot_be_used_leave_the_channel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "LOOK_S", 0.0)
    files = PemFiles(tmp_path)

    async def scenario() -> None:
        pool = ChannelPool(tls.ChannelTls(files.identity))
        first = await pool.channel("127.0.0.1:1")
        files.key.write_text("half")
        assert await pool.channel("127.0.0.1:1") is first
        await pool.close()

    asyncio.run(scenario())


def test_a_failed_call_says_how_and_where() -> None:
    async def scenario() -> None:
        pool = ChannelPool()
        stub: Any = TransactionCoordinatorStub(await pool.channel("127.0.0.1:1"))
        words = r"^127\.0\.0\.1:1: UNAVAILABLE "
        with (
            pytest.raises(CallFailedError, match=words) as failed,
            call_failures("127.0.0.1:1"),
        ):
            await stub.ListTransactions(ListTransactionsRequest(), timeout=PATIENCE_S)
        assert failed.value.status is grpc.StatusCode.UNAVAILABLE
        await pool.close()

    asyncio.run(scenario())


def test_a_cancellation_that_is_not_ours_is_a_failure() -> None:
    async def scenario() -> None:
        with pytest.raises(CallFailedError) as failed, call_failures("there:1"):
            raise asyncio.CancelledError
        assert failed.value.status is grpc.StatusCode.CANCELLED

    asyncio.run(scenario())


def test_our_own_cancellation_stays_one() -> None:
    async def wait() -> None:
        with call_failures("there:1"):
            await asyncio.Event().wait()

    async def scenario() -> bool:
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(wait())
            await asyncio.sleep(0)
            waiting.cancel()
        return waiting.cancelled()

    assert asyncio.run(scenario())


def test_a_stream_that_has_ended_is_a_failure() -> None:
    async def scenario() -> None:
        with pytest.raises(CallFailedError), call_failures("there:1"):
            raise asyncio.InvalidStateError

    asyncio.run(scenario())
