"""Choice of the replica that a consumer should read from (KIP-392), by Kafka's rules for
``RackAwareReplicaSelector``.
"""

from collections.abc import Iterable
from typing import NamedTuple

from tidemark.model.ids import BrokerId, InstantMs


class Candidate(NamedTuple):
    """In-sync follower that can be reached, as its leader last saw it. ``log_end`` is exclusive."""

    broker_id: BrokerId
    rack: str
    log_start: int
    log_end: int
    caught_up_at: InstantMs


def preferred_follower(
    rack: str, leader_rack: str, fetch_offset: int, followers: Iterable[Candidate]
) -> BrokerId | None:
    """Return the follower in the consumer's ``rack`` that has ``fetch_offset`` and most of the log;
    None: the leader, which a consumer without a rack, or in the leader's, reads from.

    Among equals it is the one that was caught up last, then the one with the highest id.
    """
    if not rack or rack == leader_rack:
        return None
    near = [
        one
        for one in followers
        if one.rack == rack and one.log_start <= fetch_offset <= one.log_end
    ]
    if not near:
        return None
    return max(near, key=lambda one: (one.log_end, one.caught_up_at, one.broker_id)).broker_id
