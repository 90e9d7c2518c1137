"""Members of one group in one process, a connection each: how long until all have their partitions,
when all join at once, when one leaves and when one comes back; and offset commits as fast as they
go.

``python -m bench.groups_load JSON`` prints one JSON object.
"""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Final

from bench.groups_members import ClassicMember, ConsumerMember, Members
from bench.transactions_wire import Link, Loop
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.long_tail import read_response

_COMMIT_VERSION: Final = 9
_WITHIN_S: Final = 90.0


@dataclass
class GroupPlan:
    """``kind``: classic, consumer (KIP-848), or commits (of members of a classic group)."""

    kind: str
    port: int
    group: str
    topic: str
    partitions: int
    members: int
    heartbeat_s: float = 0.5
    """Of a consumer-protocol member that waits for its partitions; classic members ask at once."""
    seconds: float = 0
    """Of commits."""
    partitions_each: int = 1


@dataclass
class GroupOutcome:
    """Seconds until every member of the group had its partitions."""

    joined_s: float = 0
    left_s: float = 0
    """After one left."""
    returned_s: float = 0
    """After it came back."""
    requests: int = 0
    joins: int = 0
    """Requests until all had joined."""
    load_cpu_s: float = 0
    commit_ms: list[float] = field(default_factory=list)
    seconds: float = 0


def run_group(plan: GroupPlan) -> GroupOutcome:
    """Raises ConnectionError when something is refused, TimeoutError."""
    loop, found = Loop(), GroupOutcome()
    group = Members(plan.group, plan.topic, plan.partitions, heartbeat_s=plan.heartbeat_s)
    make = ConsumerMember if plan.kind == "consumer" else ClassicMember
    members = [make(loop, loop.link(plan.port), group) for _ in range(plan.members)]
    cpu = time.process_time()

    def timed(start: Callable[[], None]) -> float:
        began = time.monotonic()
        start()
        loop.run(group.is_settled, within_s=_WITHIN_S)
        return time.monotonic() - began

    def join_all() -> None:
        for one in members:
            one.join()

    found.joined_s = timed(join_all)
    found.joins = group.requests
    if plan.kind == "commits":
        _commit(plan, loop, [one for one in members if isinstance(one, ClassicMember)], found)
    else:
        found.left_s = timed(members[-1].leave)
        found.returned_s = timed(members[-1].join)
    found.requests = group.requests
    found.load_cpu_s = time.process_time() - cpu
    loop.close()
    return found


# -- commits


def _commit(plan: GroupPlan, loop: Loop, members: list[ClassicMember], found: GroupOutcome) -> None:
    start = time.monotonic()
    committers = [
        _Committer(plan, one.link, one.commit_fields(plan.partitions_each), found)
        for one in members
    ]
    for one in committers:
        one.next(start + plan.seconds)
    loop.run(lambda: all(one.is_idle for one in committers), within_s=plan.seconds + _WITHIN_S)
    found.seconds = time.monotonic() - start


class _Committer:
    """One member: the next commit when the last is answered."""

    def __init__(
        self, plan: GroupPlan, link: Link, fields: dict[str, object], found: GroupOutcome
    ) -> None:
        self.is_idle = False
        self._plan, self._link, self._fields, self._found = plan, link, fields, found

    def next(self, until: float) -> None:
        """Commit until a time on the monotonic clock."""
        sent = time.monotonic()
        self.is_idle = sent >= until
        if self.is_idle:
            return

        def on_answer(body: memoryview) -> None:
            answer = read_response(ApiKey.OFFSET_COMMIT, _COMMIT_VERSION, body)
            codes = {one.error_code for topic in answer.topics for one in topic.partitions}
            if codes != {0}:
                raise ConnectionError(f"OffsetCommit: {codes}")
            self._found.commit_ms.append(1e3 * (time.monotonic() - sent))
            self.next(until)

        self._link.call(ApiKey.OFFSET_COMMIT, _COMMIT_VERSION, self._fields, on_answer)


if __name__ == "__main__":
    print(json.dumps(asdict(run_group(GroupPlan(**json.loads(sys.argv[1]))))))
