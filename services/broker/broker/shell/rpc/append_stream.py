"""AppendStream: one Append stream. Batches are appended in the order in which they arrive, and
answered in the same order.
"""

import asyncio
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidemark.codec.record_batch import iterate_headers
from tidemark.model.authorization import PROCESS, Operation, transactional_id_resource
from tidemark.model.errors import ErrorCode
from tidemark.runtime.inbox import Inbox
from tidemark.runtime.streams import END_OF_STREAM, StreamContext, receive, send
from tidemark_wire.v1 import partition_store_pb2

from broker.core.commit_wait import CommitWait
from broker.core.parked import INTERNAL, WRITE
from broker.core.share.letter_copies import TRANSACTIONAL_IDS
from broker.core.txn_checks import NOT_ALLOWED
from broker.shell.facts import BrokerFacts
from broker.shell.partitions.appender import PartitionAppender
from broker.shell.partitions.hosted import AppendOutcome, HostedPartition
from broker.shell.partitions.inspection import InspectedAppend, Inspection, must_inspect
from broker.shell.partitions.parking_lot import ParkingLot
from broker.shell.partitions.table import PartitionTable
from broker.shell.rpc.byte_budget import ByteBudget
from broker.shell.rpc.owned_append import append_owned
from broker.shell.rpc.permitted import permitted
from broker.shell.rpc.streams import Caller
from broker.shell.transactions.txn_verifier import TxnVerifier
from broker.shell.transactions.verified_append import VerifiedAppend
from broker.shell.wire_mapping import AppendCommand, read_append

APPENDS_IN_FLIGHT_MAX: Final = 256
"""Appends of one stream that are not answered yet; at this number reading from the stream stops."""

COMMIT_WAIT_MS: Final = 30_000
"""Time that an append waits for the in-sync replicas if the client does not set one."""


@dataclass(frozen=True, slots=True)
class AppendParts:
    """Parts of the broker that Append streams use."""

    facts: BrokerFacts
    table: PartitionTable
    appender: PartitionAppender
    parked: ParkingLot
    inspection: Inspection
    verifier: TxnVerifier | None
    """None: transaction.partition.verification.enable is off."""


class PendingAnswer(NamedTuple):
    """Append that is in the log or refused; with ``commit``, its answer waits for that."""

    correlation_id: int
    outcome: AppendOutcome
    throttle_ms: int
    committed: asyncio.Future[bool] | None
    commit: CommitWait[HostedPartition] | None = None


class AppendStream:
    """One stream: two loops under one parent, one reads and appends, one answers."""

    def __init__(
        self,
        parts: AppendParts,
        bytes_in_flight: ByteBudget,
        caller: Caller,
        context: StreamContext,
    ) -> None:
        self._parts = parts
        self._bytes_in_flight = bytes_in_flight
        self._caller = caller
        self._context = context
        self._pending: Inbox[PendingAnswer | None] = Inbox(inputs_max=APPENDS_IN_FLIGHT_MAX + 1)
        self._room = asyncio.Semaphore(APPENDS_IN_FLIGHT_MAX)
        self._unanswered = 0
        """Appends whose answers the other loop sends."""

    async def run(self) -> None:
        """Serve until the client has ended its side and has all answers, or is gone."""
        async with asyncio.TaskGroup() as loops:
            loops.create_task(self._answer(), name="append-answers")
            loops.create_task(self._append(), name="append-requests")

    async def _append(self) -> None:
        while (request := await receive(self._context)) is not END_OF_STREAM:
            await self._room.acquire()
            async with self._bytes_in_flight.hold(len(request.batches)):
                pending = await self._take(request)
            if pending.committed is None and not self._unanswered:
                await send(self._context, await _answered(pending))  # without the other loop
                self._room.release()
            else:
                self._unanswered += 1
                queued = self._pending.put_nowait(pending)
                assert queued, "the semaphore keeps room"
            if pending.throttle_ms:
                await asyncio.sleep(pending.throttle_ms / 1_000)  # throttling as a stream can do it
        queued = self._pending.put_nowait(None)
        assert queued, "the end has a place of its own"

    async def _take(self, request: partition_store_pb2.AppendRequest) -> PendingAnswer:
        command = read_append(request)
        if isinstance(command, ErrorCode):
            return _refused(
                request.correlation_id, command, "the request does not name a partition correctly"
            )
        parts = self._parts
        hosted = permitted(parts.facts, parts.table, self._caller, Operation.WRITE, command)
        if isinstance(hosted, ErrorCode):
            return _refused(command.correlation_id, hosted, None)
        hosted.counters.produces += 1
        if hosted.is_internal:
            outcome = append_owned(
                parts.facts, parts.appender, hosted, command, self._caller.requester
            )
        elif not self._may_transact(command):
            outcome = parts.appender.refused(hosted, NOT_ALLOWED)
        else:
            if parts.parked.requests.is_full and hosted.partition.commitment.may_wait(command.acks):
                await parts.parked.wait_room()
            outcome = await self._write(hosted, command)
        throttle_ms = self._throttle_ms(hosted, command)
        if not outcome.must_wait:
            return PendingAnswer(command.correlation_id, outcome, throttle_ms, None)
        commit = CommitWait.of(hosted, outcome.end)
        committed = self._park(commit, command)
        return PendingAnswer(command.correlation_id, outcome, throttle_ms, committed, commit)

    def _throttle_ms(self, hosted: HostedPartition, command: AppendCommand) -> int:
        """Count an append. Return the throttle time in ms. What processes write on their own is
        free: throttled, the copies of dead letters would not be done in time, and be made again
        and again.
        """
        quotas, principal = self._parts.facts.quotas, self._caller.requester.principal
        if not quotas.limits_produce or hosted.is_internal:
            return 0
        if principal == PROCESS and command.transactional_id.startswith(TRANSACTIONAL_IDS):
            return 0
        return quotas.produced(principal, None, len(command.batches))

    def _may_transact(self, command: AppendCommand) -> bool:
        """True if the caller may write in transactions of the id, or no batch is of a
        transaction.
        """
        if command.transactional_id:
            resource = transactional_id_resource(command.transactional_id)
            requester = self._caller.requester
            if self._parts.facts.authorizer.authorize(requester, Operation.WRITE, resource):
                return True
        batches = iterate_headers(memoryview(command.batches))
        return not any(header.is_transactional for _, header in batches)

    async def _write(self, hosted: HostedPartition, command: AppendCommand) -> AppendOutcome:
        """Append batches, in one go if no record must be inspected first."""
        view = memoryview(command.batches)
        if not command.transactional_id and hosted.rule is None and not hosted.turns:
            return self._append_now(hosted, command, view)
        first: AppendOutcome | None = None
        last: AppendOutcome | None = None
        end = 0
        for position, header in iterate_headers(view):
            end = position + header.size_bytes
            last = await self._write_one(hosted, command, view[position:end])
            if last.error_code is not ErrorCode.NONE:
                return last
            first = first or last
            # A leader that was replaced and leads again may have lost earlier appends: one answer
            # covers batches of one leader epoch.
            command = command._replace(leader_epoch=hosted.partition.leader_epoch)
        if first is None or last is None or end < len(view):
            return self._append_now(hosted, command, view[end:])  # no whole batch: refused as such
        return last._replace(base_offset=first.base_offset)

    async def _write_one(
        self, hosted: HostedPartition, command: AppendCommand, batch: memoryview
    ) -> AppendOutcome:
        """Append one batch, after a worker has inspected it or the coordinator has verified it, if
        required.
        """
        if command.transactional_id:
            return await VerifiedAppend(
                self._parts.verifier,
                self._parts.inspection,
                hosted,
                bytes(batch),
                acks=command.acks,
                lane=self._caller.peer,
                transactional_id=command.transactional_id,
                transactions_v2=True,
                leader_epoch_expected=command.leader_epoch,
            ).run()
        if must_inspect(hosted, batch, self._caller.peer):
            return await InspectedAppend(
                self._parts.inspection,
                hosted,
                bytes(batch),
                acks=command.acks,
                lane=self._caller.peer,
                leader_epoch_expected=command.leader_epoch,
            ).run()
        return self._append_now(hosted, command, batch)

    def _append_now(
        self, hosted: HostedPartition, command: AppendCommand, batches: memoryview
    ) -> AppendOutcome:
        """Append a copy of the message, whose memory is immutable. The copy is patched."""
        return self._parts.appender.append(
            hosted,
            memoryview(bytearray(batches)),
            acks=command.acks,
            leader_epoch_expected=command.leader_epoch,
            now_ms=self._parts.facts.clock.wall_ms(),
        )

    def _park(
        self, commit: CommitWait[HostedPartition], command: AppendCommand
    ) -> asyncio.Future[bool]:
        """Park the answer, before anything else may append."""
        committed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def wake(fulfilled: bool) -> None:  # noqa: FBT001 - the callback's one answer
            if not committed.done():
                committed.set_result(fulfilled)

        parked = self._parts.parked.requests.park_produce(
            [(commit.hosted, commit.end)],
            now=self._parts.facts.clock.now_ms(),
            wait_ms=command.timeout_ms or COMMIT_WAIT_MS,
            wake=wake,
            kind=INTERNAL if commit.hosted.is_internal else WRITE,
        )
        if parked is None:  # the broker stops
            committed.set_result(False)
        else:
            committed.add_done_callback(lambda _: self._parts.parked.requests.cancel(parked))
        return committed

    async def _answer(self) -> None:
        try:
            while (pending := await self._pending.get()) is not None:
                await send(self._context, await _answered(pending))
                self._unanswered -= 1
                self._room.release()
        finally:
            for left in self._pending.drain_nowait():
                if left is not None and left.committed is not None:
                    left.committed.cancel()


async def _answered(pending: PendingAnswer) -> partition_store_pb2.AppendResponse:
    outcome = pending.outcome
    error_code, message = outcome.error_code, outcome.message
    if pending.committed is not None and not await pending.committed:
        assert pending.commit is not None, "what waits for a commit says which"
        error_code = pending.commit.failure()
        message = f"appended, but not acknowledged by the in-sync replicas: {error_code.name}"
    return partition_store_pb2.AppendResponse(
        correlation_id=pending.correlation_id,
        error_code=error_code,
        error_message=message or "",
        base_offset=outcome.base_offset,
        log_append_time_ms=outcome.log_append_time_ms,
        log_start_offset=outcome.log_start,
        throttle_time_ms=pending.throttle_ms,
    )


def _refused(correlation_id: int, error_code: ErrorCode, message: str | None) -> PendingAnswer:
    outcome = AppendOutcome(
        error_code, -1, -1, -1, -1, must_wait=False, message=message or error_code.name
    )
    return PendingAnswer(correlation_id, outcome, 0, None)
