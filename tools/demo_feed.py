"""One of the demonstration's feeding processes: it plays some of the servers.

    python tools/demo_feed.py '{"bootstrap": "...", "topic": "...", ...}'

It prints one line of JSON at its end: records, bytes, seconds.
"""

import asyncio
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from demo_input import Input, Lines, Message, Queries, partition_of
from tidemark.client import Producer
from tidemark.runtime.clock import Clock

_YIELD_EVERY: Final = 1_000
_clock = Clock()


@dataclass(frozen=True, slots=True)
class FeedPlan:
    """What one process sends: the partitions whose number is ``member`` modulo ``members``."""

    bootstrap: str
    topic: str
    partitions: int
    member: int
    members: int
    path: str
    copies: int = 0
    """Of a file; 0: it holds made-up queries."""
    servers: int = 0

    def as_argument(self) -> str:
        """For the command line."""
        return json.dumps(asdict(self))

    def input(self) -> Input:
        """Where the lines come from."""
        if self.copies:
            return Lines(Path(self.path), self.copies, self.servers)
        return Queries(Path(self.path))

    def messages(self) -> Iterator[tuple[int, Message]]:
        """Partition and record of the servers that this process plays."""
        for message in self.input().messages():
            partition = partition_of(message.server, self.partitions)
            if partition % self.members == self.member:
                yield partition, message


async def feed(plan: FeedPlan) -> dict[str, Any]:
    """Send all of it, each record to its server's partition; the server is the key."""
    records = size_bytes = 0
    began_ms = _clock.now_ms()
    async with Producer(
        plan.bootstrap, linger_ms=20, batch_size=256 * 1024, compression_type="lz4"
    ) as producer:
        for partition, message in plan.messages():
            await producer.enqueue(plan.topic, message.value, message.server, partition=partition)
            records += 1
            size_bytes += len(message.value)
            if records % _YIELD_EVERY == 0:
                await asyncio.sleep(0)
        await producer.flush()
    return {
        "records": records,
        "bytes": size_bytes,
        "seconds": (_clock.now_ms() - began_ms) / 1_000,
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(feed(FeedPlan(**json.loads(sys.argv[1]))))))
