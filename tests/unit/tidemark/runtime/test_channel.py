import asyncio
import socket

import grpc
import pytest
from tidemark.runtime.channel import open_channel


def test_a_target_without_a_port_is_our_bug() -> None:
    with pytest.raises(AssertionError, match="host:port"):
        open_channel("localhost")


def test_a_channel_connects_when_it_is_used_and_not_before() -> None:
    async def use(target: str) -> list[grpc.ChannelConnectivity]:
        channel = open_channel(target)
        await asyncio.sleep(0)
        seen = [channel.get_state()]
        channel.get_state(try_to_connect=True)
        await channel.wait_for_state_change(seen[0])
        seen.append(channel.get_state())
        await channel.close(None)
        return seen

    with socket.create_server(("127.0.0.1", 0)) as server:
        before, after = asyncio.run(use(f"127.0.0.1:{server.getsockname()[1]}"))
    assert before is grpc.ChannelConnectivity.IDLE
    assert after is not grpc.ChannelConnectivity.IDLE
