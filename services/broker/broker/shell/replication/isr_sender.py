"""IsrSender: sends the leaders' ISR proposals to the controller, one request at a time, and applies
the answers.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import BrokerId
from tidemark.model.metadata import PartitionImage
from tidemark.runtime.controller_client import ControllerClient
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark.runtime.metadata_wire import read_partition, read_position
from tidemark.runtime.telemetry import fields
from tidemark_wire.v1 import controller_pb2 as pb

from broker.core.isr_proposals import IsrProposals
from broker.core.partition import IsrProposal, Role
from broker.shell.cluster.live_brokers import LiveBrokers
from broker.shell.cluster.registration import Registration
from broker.shell.counters import BrokerCounters
from broker.shell.facts import BrokerFacts
from broker.shell.partitions.hosted import HostedPartition
from broker.shell.partitions.parking_lot import ParkingLot
from broker.shell.partitions.table import PartitionTable

log = logging.getLogger(__name__)

CALL_TIMEOUT_S: Final = 5.0
FEED_WAIT_MS: Final = 2_000
AGAIN_S: Final = 0.2
LOOK_MS_MIN: Final = 50


class IsrSender:
    """Proposals of every partition that one broker leads."""

    def __init__(
        self,
        facts: BrokerFacts,
        registration: Registration,
        controller: ControllerClient,
        *,
        metadata: MetadataCache,
        live: LiveBrokers,
        table: PartitionTable,
        parked: ParkingLot,
        counters: BrokerCounters,
    ) -> None:
        self._clock = facts.clock
        self._dice = facts.dice
        self._lag_ms = facts.config.replica_lag_time_max_ms
        self._registration = registration
        self._controller = controller
        self._metadata = metadata
        self._live = live
        self._table = table
        self._parked = parked
        self._counters = counters
        self._proposals = IsrProposals()
        self._proposed = asyncio.Event()

    def consider(self, hosted: HostedPartition) -> None:
        """Propose a change of the ISR if one follows from the progress of a follower, or from
        time.
        """
        now = self._clock.now_ms()
        proposal = hosted.partition.propose(now, self._live.epochs, self._lag_ms)
        if proposal is not None:
            self._proposals.add(proposal)
            self._proposed.set()

    async def run(self) -> None:
        """Look for followers that lag, and send, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._look(), name="isr-look")
            tasks.create_task(self._send(), name="isr-send")

    async def _look(self) -> None:
        """Look periodically, and when a follower begins to lag: a silent one causes no event."""
        longest_ms = max(LOOK_MS_MIN, self._lag_ms // 2)
        shortest_ms = max(LOOK_MS_MIN, self._lag_ms // 10)  # each looks at all partitions
        pause_ms = longest_ms
        while True:
            await asyncio.sleep(pause_ms / 1_000)
            now, pause_ms = self._clock.now_ms(), longest_ms
            for hosted in tuple(self._table.by_name.values()):
                partition = hosted.partition
                if partition.role is Role.LEADER and len(partition.replicas) > 1:
                    self.consider(hosted)
                    due = partition.replica_set.next_lag(now, self._lag_ms)
                    if due is not None:
                        pause_ms = min(pause_ms, max(due - now, shortest_ms))

    async def _send(self) -> None:
        """Send one request at a time; what is proposed meanwhile goes into the next one."""
        clock = self._clock
        while True:
            self._proposed.clear()
            proposals = self._proposals.next_request(clock.now_ms())
            if proposals is not None:
                await self._ask(proposals)
                continue
            due = self._proposals.next_try(clock.now_ms())
            wait_s = None if due is None else max(0, due - clock.now_ms()) / 1_000
            try:
                async with asyncio.timeout(wait_s):
                    await self._proposed.wait()
            except TimeoutError:
                continue

    async def _ask(self, proposals: tuple[IsrProposal, ...]) -> None:
        """Send proposals. Without an answer every proposal stays pending: it may have been
        agreed.
        """
        request = _write(self._registration, proposals)
        before = self._agreed(proposals)  # later the feed may have shown what is agreed
        try:
            began_s = self._clock.precise_s()
            answer = await self._controller.alter_partitions(request, CALL_TIMEOUT_S)
            self._counters.isr_change_seconds.at().observe(self._clock.precise_s() - began_s)
        except TidemarkError as failure:
            log.warning("ISR proposals not answered", extra=fields(reason=failure.message))
            self._failed()
            return
        if answer.error_code != ErrorCode.NONE:
            self._refused(proposals, answer)
            return
        # Not ahead of the feed, which has what the state depends on (such as min.insync.replicas).
        position = read_position(answer.position)
        if not await self._metadata.wait_for(position, FEED_WAIT_MS / 1_000):
            log.warning("answer to ISR proposals is ahead of the feed")
            self._failed()
            return
        self._proposals.answered()
        self._take(proposals, answer)
        self._count(proposals, answer, before)
        again = [one for one in proposals if self._is_pending(one)]
        if again:
            await asyncio.sleep(AGAIN_S)
        for proposal in again:
            if self._is_pending(proposal):
                self._proposals.add(proposal)

    def _failed(self) -> None:
        self._proposals.failed(self._clock.now_ms(), self._dice())

    def _is_pending(self, proposal: IsrProposal) -> bool:
        """True if the proposal is not yet known to be agreed or refused."""
        hosted = self._table.by_id.get((proposal.topic_id, proposal.partition))
        return hosted is not None and hosted.partition.replica_set.isr.pending == proposal

    def _refused(
        self, proposals: tuple[IsrProposal, ...], answer: pb.AlterPartitionsResponse
    ) -> None:
        """Handle a refusal of the whole request: this broker is not registered as it states, or not
        yet.
        """
        log.warning(
            "ISR proposals refused",
            extra=fields(code=ErrorCode(answer.error_code).name, reason=answer.error_message),
        )
        self._counters.isr_updates_failed += len(proposals)
        self._failed()

    def _take(self, proposals: tuple[IsrProposal, ...], answer: pb.AlterPartitionsResponse) -> None:
        """Pass the controller's answers to the partitions, and wake the requests that they
        release.
        """
        answered = {(one.topic_id, one.partition): one for one in answer.partitions}
        for proposal in proposals:
            key = (proposal.topic_id, proposal.partition)
            hosted = self._table.by_id.get(key)
            result = answered.get(key)
            if hosted is None or result is None:
                continue
            state = read_partition(result.state) if result.HasField("state") else None
            self._apply(hosted, proposal, ErrorCode(result.error_code), state)

    def _apply(
        self,
        hosted: HostedPartition,
        proposal: IsrProposal,
        error_code: ErrorCode,
        state: PartitionImage | None,
    ) -> None:
        partition = hosted.partition
        high_watermark = partition.high_watermark
        gained_bytes = partition.proposal_answered(proposal, error_code, state)
        log.info(
            "ISR agreed" if error_code is ErrorCode.NONE else "ISR proposal refused",
            extra=fields(
                partition=str(hosted.topic_partition),
                proposed=list(proposal.members),
                isr=list(partition.isr),
                code=error_code.name,
            ),
        )
        if partition.high_watermark != high_watermark:
            self._parked.moved(hosted, gained_bytes)
        self._parked.has_news(hosted)

    def _agreed(self, proposals: tuple[IsrProposal, ...]) -> list[frozenset[BrokerId]]:
        """Return the agreed ISR of each partition; empty for one that is no longer hosted."""
        all_hosted = (self._table.by_id.get((one.topic_id, one.partition)) for one in proposals)
        return [frozenset(() if one is None else one.partition.isr) for one in all_hosted]

    def _count(
        self,
        proposals: tuple[IsrProposal, ...],
        answer: pb.AlterPartitionsResponse,
        before: Sequence[frozenset[BrokerId]],
    ) -> None:
        """Count what was agreed and refused. ``before``: the ISRs that the proposals change."""
        codes = {(one.topic_id, one.partition): one.error_code for one in answer.partitions}
        counters = self._counters
        for proposal, agreed in zip(proposals, before, strict=True):
            code = codes.get((proposal.topic_id, proposal.partition))
            if code is None or not agreed:
                continue
            if code != ErrorCode.NONE:
                counters.isr_updates_failed += 1
                continue
            proposed = frozenset(proposal.members)
            counters.isr_expands += not proposed <= agreed
            counters.isr_shrinks += not agreed <= proposed


def _write(
    registration: Registration, proposals: tuple[IsrProposal, ...]
) -> pb.AlterPartitionsRequest:
    return pb.AlterPartitionsRequest(
        broker_id=registration.broker_id,
        broker_epoch=registration.broker_epoch,
        partitions=[
            pb.AlterPartitionsRequest.Partition(
                topic_id=one.topic_id,
                partition=one.partition,
                leader_epoch=one.leader_epoch,
                partition_epoch=one.partition_epoch,
                new_isr=[
                    pb.AlterPartitionsRequest.IsrMember(broker_id=member, broker_epoch=epoch)
                    for member, epoch in one.isr
                ],
            )
            for one in proposals
        ],
    )
