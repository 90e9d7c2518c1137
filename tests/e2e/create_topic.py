"""``python -m e2e.create_topic 10.77.1.2:9390 orders``: ask one controller, and nobody else, to
create a topic of three replicas; prints the answer's error code.

A process of its own, because gRPC's threads stay in the network namespace that they began in.
"""

import asyncio
import sys

from tidemark.runtime.channel import open_channel
from tidemark_wire.v1 import controller_pb2 as pb
from tidemark_wire.v1 import controller_pb2_grpc
from waiting import PATIENCE_S

ANSWER_S = PATIENCE_S


async def create(address: str, name: str) -> int:
    """The error code of the answer."""
    topic = pb.CreateTopicsRequest.Topic(name=name, partition_count=1, replication_factor=3)
    channel = open_channel(address)
    try:
        stub = controller_pb2_grpc.ControllerStub(channel)
        answer = await stub.CreateTopics(pb.CreateTopicsRequest(topics=[topic]), timeout=ANSWER_S)
    finally:
        await channel.close(None)
    return int(answer.error_code or answer.topics[0].error_code)


if __name__ == "__main__":
    print(asyncio.run(create(sys.argv[1], sys.argv[2])))
