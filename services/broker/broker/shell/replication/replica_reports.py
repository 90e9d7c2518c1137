"""ReplicaReports: reports replicas whose disk failed or lost bytes to the controller, until none of
them is in an ISR or an ELR.

Every report follows from the state at the time (hosted partitions and image), so that no finding is
forgotten.
"""

import asyncio
import logging
from collections.abc import Iterator
from typing import Final

from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.metadata import PartitionImage
from tidemark.model.topics import topic_id_text
from tidemark.runtime.controller_client import ControllerClient
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark.runtime.metadata_wire import read_position
from tidemark.runtime.telemetry import fields
from tidemark.storage.disk import DiskError
from tidemark_wire.v1 import controller_pb2 as pb

from broker.core.partition import Role
from broker.core.unsound import Unsound, UnsoundReports, must_report
from broker.shell.cluster.live_brokers import LiveBrokers
from broker.shell.cluster.registration import Registration
from broker.shell.facts import BrokerFacts
from broker.shell.partitions.disk_health import DiskHealth
from broker.shell.partitions.hosted import HostedPartition
from broker.shell.partitions.hosting import Hosting
from broker.shell.partitions.log_bytes import DamagedBatchError, VoidSliceError, read_checked
from broker.shell.partitions.table import PartitionTable
from broker.shell.replication.suspects import Suspects

log = logging.getLogger(__name__)

CALL_TIMEOUT_S: Final = 5.0
FEED_WAIT_S: Final = 2.0
LOOK_MS: Final = 1_000
SETTLE_LOOK_MS: Final = 50
_STAYS: Final = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


class ReplicaReports:
    """Reports of one broker."""

    def __init__(
        self,
        facts: BrokerFacts,
        registration: Registration,
        controller: ControllerClient,
        *,
        metadata: MetadataCache,
        live: LiveBrokers,
        table: PartitionTable,
        disks: DiskHealth,
        suspects: Suspects,
        hosting: Hosting,
    ) -> None:
        self._clock = facts.clock
        self._dice = facts.dice
        self._registration = registration
        self._controller = controller
        self._metadata = metadata
        self._live = live
        self._table = table
        self._disks = disks
        self._suspects = suspects
        self._hosting = hosting
        self._reports = UnsoundReports()

    async def run(self) -> None:
        """Look and report until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._report(), name="replica-reports")
            tasks.create_task(self._check_suspects(), name="suspected-batches")

    async def settle(self, limit_ms: int) -> bool:
        """Wait, for at most ``limit_ms``, until this broker is registered and nothing is left to
        report. True if that was reached.
        """
        clock = self._clock
        due = clock.now_ms() + limit_ms
        self._look()  # report what storage has just met as well
        while self._registration.broker_epoch < 0 or any(True for _ in self._unsound()):
            if clock.now_ms() >= due:
                return False
            await asyncio.sleep(SETTLE_LOOK_MS / 1_000)
        return True

    async def _report(self) -> None:
        clock, trouble = self._clock, self._disks.trouble
        while True:
            self._look()
            trouble.clear()  # findings of _look are seen below
            unsound = tuple(self._unsound()) if self._registration.broker_epoch >= 0 else ()
            request = self._reports.next_request(unsound, clock.now_ms())
            if request:
                await self._ask(request)
                continue
            now = clock.now_ms()
            wait_ms = self._reports.next_try(now) - now if unsound else LOOK_MS
            try:
                async with asyncio.timeout(wait_ms / 1_000):
                    await trouble.wait()
            except TimeoutError:
                continue

    # -- unsound replicas

    def _look(self) -> None:
        """Note directories that storage has fenced and damage that it has met, on any path."""
        for manager in self._disks.log_managers:
            if manager.failure is not None:
                self._disks.fence_directory(manager, manager.failure)
        for hosted in self._table.by_name.values():
            if hosted.is_unsound:
                self._hosting.note_unsound(hosted)

    def _unsound(self) -> Iterator[Unsound]:
        """Yield the replicas that are still to be reported."""
        for hosted in self._table.by_name.values():
            since = hosted.unsound_since
            state = None if since is None else self._state(hosted)
            if since is None or state is None:
                continue
            is_offline = hosted.partition.role is Role.FAILED
            if must_report(
                state,
                self._registration.broker_id,
                unsound_since=since,
                is_offline=is_offline,
                live=self._live.epochs,
            ):
                yield Unsound(
                    hosted.topic_id,
                    state.partition,
                    max(hosted.partition.leader_epoch, since),
                    is_offline,
                    hosted.manager.fenced or hosted.log.damage or "",
                )

    def _state(self, hosted: HostedPartition) -> PartitionImage | None:
        topic = self._metadata.image.topics_by_id.get(hosted.topic_id)
        number = hosted.topic_partition.partition
        return None if topic is None else topic.partitions[number]

    # -- the controller

    async def _ask(self, replicas: tuple[Unsound, ...]) -> None:
        clock = self._clock
        try:
            answer = await self._controller.report_replicas(
                _write(self._registration, replicas), CALL_TIMEOUT_S
            )
        except TidemarkError as failure:
            log.warning("unsound replicas not reported", extra=fields(reason=failure.message))
            self._reports.failed(clock.now_ms(), self._dice())
            return
        if answer.error_code != ErrorCode.NONE:
            code = ErrorCode(answer.error_code).name
            log.warning(
                "report of unsound replicas refused",
                extra=fields(code=code, reason=answer.error_message),
            )
            self._reports.failed(clock.now_ms(), self._dice())
            return
        log.warning(
            "unsound replicas reported",
            extra=fields(
                replicas=[self._name(one) for one in replicas[:10]],
                count=len(replicas),
                stay=sum(one.error_code == _STAYS for one in answer.replicas),
                reason=replicas[0].reason,
            ),
        )
        await self._metadata.wait_for(read_position(answer.position), FEED_WAIT_S)
        self._reports.answered(clock.now_ms(), self._dice())

    def _name(self, one: Unsound) -> str:
        hosted = self._table.by_id.get(one.key)
        return topic_id_text(one.topic_id) if hosted is None else str(hosted.topic_partition)

    # -- suspected batches

    async def _check_suspects(self) -> None:
        """Check batches that a follower fetched twice: are the bytes what was written?"""
        suspects = self._suspects
        while True:
            await suspects.wait()
            hosted, offset, found = suspects.take()
            try:
                await read_checked(found, offset)
            except VoidSliceError:
                continue
            except DamagedBatchError as damage:
                self._disks.found_damage(hosted, str(damage), damage.offset)
            except DiskError as failure:
                self._disks.fence_directory(hosted.manager, failure)


def _write(registration: Registration, replicas: tuple[Unsound, ...]) -> pb.ReportReplicasRequest:
    return pb.ReportReplicasRequest(
        broker_id=registration.broker_id,
        broker_epoch=registration.broker_epoch,
        replicas=[
            pb.ReportReplicasRequest.Replica(
                topic_id=one.topic_id,
                partition=one.partition,
                leader_epoch=one.leader_epoch,
                offline=one.is_offline,
                reason=one.reason,
            )
            for one in replicas
        ],
    )
