"""A follower's connection to its leader over a simulated socket."""

import asyncio

from broker.shell.replication.leader_connection import LENGTH_BYTES, LeaderConnection

from sim.cluster.wire_socket import SimSocket


class SimLeaderConnection(LeaderConnection):
    """One connection."""

    def __init__(self, sock: SimSocket, *, client_id: str, answer_bytes_max: int) -> None:
        super().__init__(client_id=client_id, answer_bytes_max=answer_bytes_max)
        self._socket = sock

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    async def _exchange(self, data: bytes, timeout_s: float) -> memoryview:
        async with asyncio.timeout(timeout_s):
            await self._socket.send_all(data)
            size = int.from_bytes(await self._receive(LENGTH_BYTES), "big")
            self._check_size(size)
            return await self._receive(size)

    async def _receive(self, size: int) -> memoryview:
        frame, position = memoryview(bytearray(size)), 0
        while position < size:
            got = await self._socket.receive_into(frame[position:])
            if got == 0:
                raise ConnectionError("the leader closed the connection")
            position += got
        return frame
