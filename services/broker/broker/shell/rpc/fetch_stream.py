"""FetchStream: one Fetch stream. Pulls of several partitions wait in parallel; those of one
partition are answered in order.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

from tidemark.model.authorization import Operation
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.runtime.streams import END_OF_STREAM, StreamContext, receive, send
from tidemark.storage.disk import DiskError
from tidemark_wire.v1 import partition_store_pb2

from broker.shell.facts import BrokerFacts
from broker.shell.partitions.disk_health import DiskHealth
from broker.shell.partitions.hosted import HostedPartition, ReadOutcome
from broker.shell.partitions.log_bytes import DamagedBatchError, VoidSliceError, read_checked
from broker.shell.partitions.parking_lot import ParkingLot
from broker.shell.partitions.reader import PartitionReader
from broker.shell.partitions.table import PartitionTable
from broker.shell.rpc.byte_budget import ByteBudget
from broker.shell.rpc.permitted import permitted
from broker.shell.rpc.streams import Caller
from broker.shell.wire_mapping import FetchCommand, read_fetch

log = logging.getLogger(__name__)

FETCHES_IN_FLIGHT_MAX: Final = 256
"""Pulls of one stream that are not answered yet; at this number reading from the stream stops."""

FETCH_BYTES_MAX: Final = 8 * 1024 * 1024
"""Most bytes of one answer, whatever is requested; a larger first batch still comes whole."""

MESSAGE_ROOM_BYTES: Final = 64 * 1024 * 1024 - 64 * 1024
"""Room for batches in one gRPC message, next to its other fields."""

ABORTED_BYTES_MAX: Final = 24
"""Size of one aborted transaction in a message: two int64 with their tags."""

PartitionKey = tuple[str, bytes, int]


@dataclass(frozen=True, slots=True)
class FetchStreamParts:
    """Parts of the broker that Fetch streams use."""

    facts: BrokerFacts
    table: PartitionTable
    reader: PartitionReader
    disks: DiskHealth
    parked: ParkingLot


class FetchStream:
    """One stream, with a task for each pull; the tasks end when the client goes."""

    def __init__(
        self,
        parts: FetchStreamParts,
        bytes_in_flight: ByteBudget,
        caller: Caller,
        context: StreamContext,
    ) -> None:
        self._parts = parts
        self._bytes_of_all = bytes_in_flight
        self._bytes_of_stream = ByteBudget(max(bytes_in_flight.bytes_max // 4, 1))
        self._caller = caller
        self._context = context
        self._room = asyncio.Semaphore(FETCHES_IN_FLIGHT_MAX)
        self._writing = asyncio.Lock()
        self._last_of: dict[PartitionKey, asyncio.Future[None]] = {}

    async def run(self) -> None:
        """Serve until the client has ended its side and has all answers, or is gone."""
        async with asyncio.TaskGroup() as pulls:
            while (request := await receive(self._context)) is not END_OF_STREAM:
                await self._room.acquire()
                pulls.create_task(self._serve(request, *self._queue_up(request)))

    def _queue_up(
        self, request: partition_store_pb2.FetchRequest
    ) -> tuple[asyncio.Future[None] | None, asyncio.Future[None], PartitionKey]:
        """Queue a pull after the partition's last one. Returns that pull's future, one that is done
        when this pull is answered, and the key.
        """
        named = request.partition
        key = (named.topic, named.topic_id, named.partition)
        before = self._last_of.get(key)
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._last_of[key] = answered
        return before, answered, key

    async def _serve(
        self,
        request: partition_store_pb2.FetchRequest,
        before: asyncio.Future[None] | None,
        answered: asyncio.Future[None],
        key: PartitionKey,
    ) -> None:
        try:
            if before is not None:
                await before
            await self._pull(request)
        except TidemarkError as refused:
            await self._write(
                partition_store_pb2.FetchResponse(
                    correlation_id=request.correlation_id,
                    error_code=refused.code,
                    error_message=refused.message,
                    high_watermark=-1,
                    last_stable_offset=-1,
                    log_start_offset=-1,
                )
            )
        finally:
            self._room.release()
            if not answered.done():  # cancelling a waiter cancels the future as well
                answered.set_result(None)
            if self._last_of.get(key) is answered:
                del self._last_of[key]

    async def _pull(self, request: partition_store_pb2.FetchRequest) -> None:
        """Wait until there is enough to read, then read and send it within the budgets. Raises
        TidemarkError.
        """
        command = read_fetch(request)
        if isinstance(command, ErrorCode):
            raise TidemarkError(command, "the request does not name a partition correctly")
        hosted = self._find(command)
        command = self._within_quota(hosted, command)
        hosted.counters.fetches += 1
        found = await self._wait_readable(hosted, command)
        length = _length(found)
        if length + ABORTED_BYTES_MAX * len(found.aborted or ()) > MESSAGE_ROOM_BYTES:
            raise TidemarkError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"a batch of {length} bytes does not fit a gRPC message;"
                " read it over Kafka's listener",
            )
        async with self._bytes_of_stream.hold(length), self._bytes_of_all.hold(length):
            throttle_ms = await self._send(hosted, command, length)
        if throttle_ms:
            await asyncio.sleep(throttle_ms / 1_000)  # the next pull of the partition waits

    def _within_quota(self, hosted: HostedPartition, command: FetchCommand) -> FetchCommand:
        """Return the pull with no more bytes than a window of the caller's quota allows."""
        quotas, principal = self._parts.facts.quotas, self._caller.requester.principal
        if not quotas.limits_fetch or hosted.is_internal:
            return command
        return command._replace(
            bytes_max=quotas.fetch_bytes_max(principal, None, command.bytes_max)
        )

    async def _wait_readable(self, hosted: HostedPartition, command: FetchCommand) -> ReadOutcome:
        """Return what is readable once it is enough, or once the wait has ended. Raises
        TidemarkError.
        """
        clock = self._parts.facts.clock
        enough = min(command.bytes_min, _room(command))
        due = clock.now_ms() + command.wait_ms_max
        found = self._read(hosted, command)
        missing = self._missing(hosted, command, found, enough)
        moved = True
        while moved and missing > 0 and (wait_ms := due - clock.now_ms()) > 0:
            # A marker can make more readable than was appended: committed records are read again at
            # every move.
            moved = await self._parts.parked.wait_readable(
                [hosted], bytes_missing=1 if command.read_committed else missing, wait_ms=wait_ms
            )
            found = self._read(hosted, command)
            missing = self._missing(hosted, command, found, enough)
        return found

    def _missing(
        self, hosted: HostedPartition, command: FetchCommand, found: ReadOutcome, enough: int
    ) -> int:
        """Return how many of ``enough`` bytes are not readable yet. A batch that does not fit the
        pull's room counts as far as there is room: no wait makes it fit.
        """
        missing = enough - _length(found)
        if missing <= 0 or not _length(found):
            return missing
        # Of this a read returns as much as the room, at least, if it is there.
        more = self._read(
            hosted, command, 2 * (_room(command) + hosted.log.config.max_message_bytes)
        )
        return enough - min(_length(more), _room(command))

    def _find(self, command: FetchCommand) -> HostedPartition:
        parts = self._parts
        hosted = permitted(parts.facts, parts.table, self._caller, Operation.READ, command)
        if isinstance(hosted, ErrorCode):
            raise TidemarkError(hosted, hosted.name)
        return hosted

    def _read(
        self, hosted: HostedPartition, command: FetchCommand, bytes_max: int | None = None
    ) -> ReadOutcome:
        """Read ``bytes_max`` bytes, or as many as the pull has room for. Raises TidemarkError."""
        found = self._parts.reader.read(
            hosted,
            command.fetch_offset,
            bytes_max=_room(command) if bytes_max is None else bytes_max,
            read_committed=command.read_committed,
            leader_epoch_expected=command.leader_epoch,
        )
        if found.error_code is not ErrorCode.NONE:
            hosted.counters.failed_fetches += 1
            raise TidemarkError(found.error_code, found.error_code.name)
        return found

    async def _send(self, hosted: HostedPartition, command: FetchCommand, length: int) -> int:
        """Read again and send: the log may have moved while the budgets were waited for. Never
        sends more than was counted. Returns the throttle time in ms.
        """
        found = self._read(hosted, command, min(_room(command), length))
        batches = b""
        if 0 < _length(found) <= max(length, 1):
            batches = await self._bytes_of(hosted, command, found)
        throttle_ms = 0
        if self._parts.facts.quotas.limits_fetch and not hosted.is_internal:
            throttle_ms = self._parts.facts.quotas.fetched(
                self._caller.requester.principal, None, len(batches)
            )
        hosted.counters.bytes_out += len(batches)
        await self._write(
            partition_store_pb2.FetchResponse(
                correlation_id=command.correlation_id,
                batches=batches,
                high_watermark=found.high_watermark,
                last_stable_offset=found.last_stable,
                log_start_offset=found.log_start,
                throttle_time_ms=throttle_ms,
                aborted=_aborted_in(found) if batches else (),
                read_committed=command.read_committed,
            )
        )
        return throttle_ms

    async def _bytes_of(
        self, hosted: HostedPartition, command: FetchCommand, found: ReadOutcome
    ) -> bytes:
        assert found.read is not None
        try:
            return await read_checked(found.read, command.fetch_offset)
        except VoidSliceError:
            return b""  # truncated while it was read: the next pull finds the new end
        except DamagedBatchError as damage:
            self._parts.disks.found_damage(hosted, str(damage), damage.offset)
            raise TidemarkError(ErrorCode.CORRUPT_MESSAGE, str(damage)) from damage
        except DiskError as failure:
            self._parts.disks.fence_directory(hosted.manager, failure)
            raise TidemarkError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure)) from failure

    async def _write(self, response: partition_store_pb2.FetchResponse) -> None:
        async with self._writing:
            await send(self._context, response)


def _room(command: FetchCommand) -> int:
    """Most bytes of the answer; a larger first batch still comes whole."""
    return min(max(command.bytes_max, 1), FETCH_BYTES_MAX)


def _length(found: ReadOutcome) -> int:
    return found.read.length_bytes if found.read is not None else 0


def _aborted_in(found: ReadOutcome) -> list[partition_store_pb2.FetchResponse.AbortedTransaction]:
    return [
        partition_store_pb2.FetchResponse.AbortedTransaction(
            producer_id=producer_id, first_offset=first_offset
        )
        for producer_id, first_offset in found.aborted or ()
    ]
