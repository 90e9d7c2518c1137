"""Conversion of requests for the state of share-partitions, and of their answers, to and from
protobuf: for the brokers that ask and for the share-coordinator that answers.

All requests of one message are about one group. The answers are in the order of the requests.
Readers raise TidemarkError INVALID_REQUEST for a message that is invalid by itself.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Protocol, TypeVar

from tidemark_wire.v1 import share_pb2 as pb

from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import LeaderEpoch, Offset, ProducerEpoch, ProducerId, TopicId
from tidemark.model.share_state import (
    DeliveryState,
    LogEpochs,
    PendingBatch,
    ReadState,
    ReadStateSummary,
    SharePartitionKey,
    StateBatch,
    StateEpoch,
    StateRead,
    StateResult,
    StateSummary,
    TransactionKey,
    WriteState,
)

_TOPIC_ID_BYTES: Final = 16
_STATES: Final = frozenset(map(int, DeliveryState))
_NONE_REFUSED: Final = frozenset[TransactionKey]()
_LISTED: Final = ", ".join(map(str, sorted(_STATES)))


class _Answer(Protocol):
    """Response message with an error of its own, or a part for each part of the request."""

    error_code: int
    error_message: str

    @property
    def parts(self) -> Sequence[object]: ...


AnswerT = TypeVar("AnswerT", bound=_Answer)

# -- reads


def write_reads(group_id: str, reads: Iterable[ReadState]) -> pb.ReadShareStatesRequest:
    """Convert from model to wire."""
    return pb.ReadShareStatesRequest(group_id=group_id, parts=map(_write_read, reads))


def read_reads(wire: pb.ReadShareStatesRequest) -> tuple[ReadState, ...]:
    """Convert from wire to model."""
    return tuple(
        ReadState(
            _key(wire.group_id, part),
            LeaderEpoch(part.leader_epoch),
            _read_log(part.log) if part.HasField("log") else None,
        )
        for part in wire.parts
    )


def write_read_answers(answers: Iterable[StateRead]) -> pb.ReadShareStatesResponse:
    """Convert from model to wire."""
    return pb.ReadShareStatesResponse(
        parts=[
            pb.ReadShareStatesResponse.Part(
                error_code=answer.error_code,
                error_message=answer.error_message,
                state_epoch=answer.state_epoch,
                start_offset=answer.start_offset,
                batches=map(_write_batch, answer.batches),
                pending=map(_write_pending, answer.pending),
            )
            for answer in answers
        ]
    )


def read_read_answers(
    keys: Sequence[SharePartitionKey], wire: pb.ReadShareStatesResponse
) -> list[StateRead]:
    """Convert from wire to model. ``keys`` are those of the request."""
    return [
        StateRead(
            key,
            ErrorCode(part.error_code),
            state_epoch=StateEpoch(part.state_epoch),
            start_offset=Offset(part.start_offset),
            batches=tuple(map(_read_batch, part.batches)),
            pending=tuple(map(_read_pending, part.pending)),
            error_message=_optional(part),
        )
        for key, part in zip(keys, checked(wire, len(keys)).parts, strict=True)
    ]


# -- writes


def write_writes(group_id: str, writes: Iterable[WriteState]) -> pb.WriteShareStatesRequest:
    """Convert from model to wire."""
    return pb.WriteShareStatesRequest(
        group_id=group_id,
        parts=[
            pb.WriteShareStatesRequest.Part(
                topic_id=write.key.topic_id,
                partition=write.key.partition,
                state_epoch=write.state_epoch,
                leader_epoch=write.leader_epoch,
                start_offset=write.start_offset,
                delivery_complete_count=write.delivery_complete_count,
                batches=map(_write_batch, write.batches),
                pending=map(_write_pending, write.pending),
            )
            for write in writes
        ],
    )


def read_writes(wire: pb.WriteShareStatesRequest) -> tuple[WriteState, ...]:
    """Convert from wire to model."""
    return tuple(
        WriteState(
            _key(wire.group_id, part),
            StateEpoch(part.state_epoch),
            LeaderEpoch(part.leader_epoch),
            Offset(part.start_offset),
            tuple(map(_read_batch, part.batches)),
            part.delivery_complete_count,
            tuple(map(_read_pending, part.pending)),
        )
        for part in wire.parts
    )


def write_write_answers(answers: Iterable[StateResult]) -> pb.WriteShareStatesResponse:
    """Convert from model to wire."""
    return pb.WriteShareStatesResponse(
        parts=[
            pb.WriteShareStatesResponse.Part(
                error_code=answer.error_code,
                error_message=answer.error_message,
                refused=[
                    pb.WriteShareStatesResponse.Transaction(
                        producer_id=one.producer_id, producer_epoch=one.producer_epoch
                    )
                    for one in sorted(answer.refused)
                ],
            )
            for answer in answers
        ]
    )


def read_write_answers(
    keys: Sequence[SharePartitionKey], wire: pb.WriteShareStatesResponse
) -> list[StateResult]:
    """Convert from wire to model. ``keys`` are those of the request."""
    return [
        StateResult(
            key,
            ErrorCode(part.error_code) if part.error_code else ErrorCode.NONE,
            frozenset(map(_read_transaction, part.refused)) if part.refused else _NONE_REFUSED,
            _optional(part),
        )
        for key, part in zip(keys, checked(wire, len(keys)).parts, strict=True)
    ]


# -- summaries


def write_summaries(
    group_id: str, summaries: Iterable[ReadStateSummary]
) -> pb.ReadShareStateSummariesRequest:
    """Convert from model to wire."""
    return pb.ReadShareStateSummariesRequest(group_id=group_id, parts=map(_write_read, summaries))


def read_summaries(wire: pb.ReadShareStateSummariesRequest) -> tuple[ReadStateSummary, ...]:
    """Convert from wire to model."""
    return tuple(
        ReadStateSummary(_key(wire.group_id, part), LeaderEpoch(part.leader_epoch))
        for part in wire.parts
    )


def write_summary_answers(answers: Iterable[StateSummary]) -> pb.ReadShareStateSummariesResponse:
    """Convert from model to wire."""
    return pb.ReadShareStateSummariesResponse(
        parts=[
            pb.ReadShareStateSummariesResponse.Part(
                error_code=answer.error_code,
                error_message=answer.error_message,
                state_epoch=answer.state_epoch,
                leader_epoch=answer.leader_epoch,
                start_offset=answer.start_offset,
                delivery_complete_count=answer.delivery_complete_count,
            )
            for answer in answers
        ]
    )


def read_summary_answers(
    keys: Sequence[SharePartitionKey], wire: pb.ReadShareStateSummariesResponse
) -> list[StateSummary]:
    """Convert from wire to model. ``keys`` are those of the request."""
    return [
        StateSummary(
            key,
            ErrorCode(part.error_code),
            state_epoch=StateEpoch(part.state_epoch),
            leader_epoch=LeaderEpoch(part.leader_epoch),
            start_offset=Offset(part.start_offset),
            delivery_complete_count=part.delivery_complete_count,
            error_message=_optional(part),
        )
        for key, part in zip(keys, checked(wire, len(keys)).parts, strict=True)
    ]


# -- parts of messages


def read_topic_id(topic_id: bytes) -> TopicId:
    """Return a topic id. Raises TidemarkError INVALID_REQUEST unless it has 16 bytes."""
    if len(topic_id) != _TOPIC_ID_BYTES:
        raise _invalid(f"a topic id of {len(topic_id)} bytes; it has {_TOPIC_ID_BYTES}")
    return TopicId(topic_id)


def checked(wire: AnswerT, part_count: int) -> AnswerT:
    """Return a response that has all of its parts. Raises TidemarkError: the error of the whole
    response, or UNKNOWN_SERVER_ERROR if parts are missing.
    """
    if wire.error_code != ErrorCode.NONE:
        raise TidemarkError(ErrorCode(wire.error_code), wire.error_message)
    if len(wire.parts) != part_count:
        words = f"the share-coordinator answered {len(wire.parts)} of {part_count} requests"
        raise TidemarkError(ErrorCode.UNKNOWN_SERVER_ERROR, words)
    return wire


class _HasPartition(Protocol):
    topic_id: bytes
    partition: int


def _key(group_id: str, part: _HasPartition) -> SharePartitionKey:
    return SharePartitionKey(group_id, read_topic_id(part.topic_id), part.partition)


def _write_read(request: ReadState | ReadStateSummary) -> pb.ReadShareStatesRequest.Part:
    log = request.log if isinstance(request, ReadState) else None
    return pb.ReadShareStatesRequest.Part(
        topic_id=request.key.topic_id,
        partition=request.key.partition,
        leader_epoch=request.leader_epoch,
        log=None if log is None else _write_log(log),
    )


def _write_log(log: LogEpochs) -> pb.ReadShareStatesRequest.LogEpochs:
    wire = pb.ReadShareStatesRequest.LogEpochs(log_end=log.log_end)
    for leader_epoch, first_offset in log.starts:
        wire.starts.add(leader_epoch=leader_epoch, first_offset=first_offset)
    return wire


def _read_log(wire: pb.ReadShareStatesRequest.LogEpochs) -> LogEpochs:
    starts = tuple((LeaderEpoch(one.leader_epoch), Offset(one.first_offset)) for one in wire.starts)
    return LogEpochs(starts, Offset(wire.log_end))


def _write_batch(batch: StateBatch) -> pb.ShareStateBatch:
    return pb.ShareStateBatch(
        first_offset=batch.first_offset,
        last_offset=batch.last_offset,
        delivery_state=batch.delivery_state,
        delivery_count=batch.delivery_count,
    )


def _read_transaction(wire: pb.WriteShareStatesResponse.Transaction) -> TransactionKey:
    return TransactionKey(ProducerId(wire.producer_id), ProducerEpoch(wire.producer_epoch))


def _read_batch(wire: pb.ShareStateBatch) -> StateBatch:
    return StateBatch(
        Offset(wire.first_offset),
        Offset(wire.last_offset),
        _read_delivery_state(wire.delivery_state),
        wire.delivery_count,
    )


def _write_pending(batch: PendingBatch) -> pb.SharePendingBatch:
    return pb.SharePendingBatch(
        first_offset=batch.first_offset,
        last_offset=batch.last_offset,
        outcome=batch.outcome,
        delivery_count=batch.delivery_count,
        producer_id=batch.transaction.producer_id,
        producer_epoch=batch.transaction.producer_epoch,
        is_dead_letter=batch.before is DeliveryState.ARCHIVING,
    )


def _read_pending(wire: pb.SharePendingBatch) -> PendingBatch:
    return PendingBatch(
        Offset(wire.first_offset),
        Offset(wire.last_offset),
        _read_delivery_state(wire.outcome),
        wire.delivery_count,
        TransactionKey(ProducerId(wire.producer_id), ProducerEpoch(wire.producer_epoch)),
        DeliveryState.ARCHIVING if wire.is_dead_letter else DeliveryState.ACQUIRED,
    )


def _read_delivery_state(number: int) -> DeliveryState:
    if number not in _STATES:
        raise _invalid(f"delivery state {number}; this release has {_LISTED}")
    return DeliveryState(number)


class _WithMessage(Protocol):
    error_message: str

    def HasField(self, name: str, /) -> bool: ...  # noqa: N802 - protobuf's name


def _optional(part: _WithMessage) -> str | None:
    return part.error_message if part.HasField("error_message") else None


def _invalid(words: str) -> TidemarkError:
    return TidemarkError(ErrorCode.INVALID_REQUEST, words)
