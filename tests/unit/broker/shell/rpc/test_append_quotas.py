"""Quotas of producers over gRPC, and what they do not count."""

import asyncio
from typing import Any

import pytest
from broker.core.share.letter_copies import TRANSACTIONAL_IDS
from broker.shell.rpc.append_stream import AppendStream
from broker.shell.rpc.byte_budget import ByteBudget
from broker.shell.throttling import PRODUCE
from tidemark.codec.records import build_batch
from tidemark.model.authorization import PROCESS, Requester
from tidemark.model.quotas import DEFAULT, PRODUCER_BYTE_RATE, QuotaEntity
from tidemark_wire.v1 import partition_store_pb2
from unit.broker.shell.broker_worlds import World, topic
from unit.broker.shell.rpc.peers import CALLER, PARTITION, Peer, append_parts

BATCH = build_batch([(1_700_000_000_000, None, b"x", ())])
EXCESS_MS = 5
RATE = len(BATCH) * 1_000 / (10_000 + EXCESS_MS)
"""Bytes a second of which the batch takes ten seconds and a little."""
LETTERS = f"{TRANSACTIONAL_IDS}group-0a-0"


@pytest.mark.feature("SE20")
@pytest.mark.parametrize(
    ("principal", "transactional_id", "throttle_ms"),
    [
        ("User:alice", "", EXCESS_MS),
        ("User:alice", LETTERS, EXCESS_MS),
        (PROCESS, "", EXCESS_MS),  # without a check of callers, a client
        (PROCESS, LETTERS, 0),
    ],
)
def test_a_default_of_users_holds_for_clients_and_not_for_copies_of_dead_letters(
    principal: str, transactional_id: str, throttle_ms: int
) -> None:
    world = World()
    world.show(topic())
    quotas = world.parts.facts.quotas
    quotas.configure({QuotaEntity(DEFAULT): {PRODUCER_BYTE_RATE: RATE}})
    request: Any = partition_store_pb2.AppendRequest(
        partition=PARTITION,
        batches=BATCH,
        acks=1,
        current_leader_epoch=-1,
        transactional_id=transactional_id,
    )
    peer, caller = Peer(request), CALLER._replace(requester=Requester(principal, ""))
    asyncio.run(AppendStream(append_parts(world.parts), ByteBudget(1 << 20), caller, peer).run())
    assert peer.answers[0].throttle_time_ms == throttle_ms
    assert quotas.counters[PRODUCE].total_ms == throttle_ms
