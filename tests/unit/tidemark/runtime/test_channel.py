import asyncio

import pytest
from tidemark.runtime.channel import open_channel


def test_a_target_without_a_port_is_our_bug() -> None:
    with pytest.raises(AssertionError, match="host:port"):
        open_channel("localhost")


def test_a_channel_is_made_without_connecting() -> None:
    async def use() -> None:
        channel = open_channel("127.0.0.1:1")
        await channel.close(None)

    asyncio.run(use())
