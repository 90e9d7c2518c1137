"""What the client raises: one class for each failure a program tells apart; each says what, where
and what to try.
"""

from collections.abc import Mapping
from typing import ClassVar, Final

from tidemark.model.errors import ErrorCode, TidemarkError

__all__ = [
    "AbortableTransactionError",
    "AuthorizationError",
    "BufferFullError",
    "ClientClosedError",
    "ClientConfigError",
    "ClientError",
    "CommitFailedError",
    "ConcurrentTransactionsError",
    "ConnectionLostError",
    "CoordinatorNotAvailableError",
    "CorruptBatchError",
    "DeliveryTimeoutError",
    "DuplicateSequenceError",
    "DuplicateSequenceNumber",
    "FencedInstanceError",
    "GroupNotEmptyError",
    "GroupNotFoundError",
    "InvalidSequenceNumber",
    "InvalidTransactionStateError",
    "MessageTooLargeError",
    "NotEnoughReplicasError",
    "NotLeaderError",
    "OffsetOutOfRangeError",
    "OutOfOrderSequenceError",
    "ProducerFencedError",
    "RequestTimedOutError",
    "TidemarkError",
    "TopicAlreadyExistsError",
    "TransactionalIdNotFoundError",
    "UnknownTopicOrPartitionError",
    "UnsupportedVersionError",
    "error_for",
]


class ClientError(TidemarkError):
    """Base of all the client raises: ``code`` is Kafka's, ``where`` names broker or partition."""

    hint: ClassVar[str] = ""

    def __init__(self, code: ErrorCode, message: str, *, where: str = "", hint: str = "") -> None:
        advice = hint or self.hint
        place = f" at {where}" if where else ""
        super().__init__(code, f"{message}{place}" + (f"; {advice}" if advice else ""))
        self.where = where

    @property
    def retriable(self) -> bool:
        """Whether the same call may succeed later."""
        return self.code.retriable


class UnknownTopicOrPartitionError(ClientError):
    """The topic or the partition does not exist, or not yet everywhere."""

    hint = "create the topic first (tidemark topic create) or check its name and partition count"


class NotLeaderError(ClientError):
    """The broker asked does not lead the partition, or nobody does; retried until the deadline."""

    hint = "the partition has no reachable leader: check that its brokers are up"


class OffsetOutOfRangeError(ClientError):
    """The position is outside the log and auto_offset_reset is ``none``."""

    hint = (
        "seek to an offset between beginning_offsets() and end_offsets(), or set auto_offset_reset"
    )


class MessageTooLargeError(ClientError):
    """A record or batch exceeds a limit of the client (max_request_size) or the topic
    (max.message.bytes).
    """

    hint = (
        "raise max.message.bytes on the topic or max_request_size here,"
        " lower batch_size, or send smaller records"
    )


class NotEnoughReplicasError(ClientError):
    """acks=all with fewer in-sync replicas than min.insync.replicas."""

    hint = "bring replicas back, or lower min.insync.replicas on the topic"


class OutOfOrderSequenceError(ClientError):
    """The broker met a gap in this producer's sequence numbers: a batch before this one is not in
    its log.
    """

    hint = "earlier records are missing at the broker; later ones go on under a new producer epoch"


class DuplicateSequenceError(ClientError):
    """The batch is in the log already, so far back that the broker no longer knows at which
    offset.
    """

    hint = "the records are stored once; do not send them again"


InvalidSequenceNumber = OutOfOrderSequenceError
DuplicateSequenceNumber = DuplicateSequenceError


class ProducerFencedError(ClientError):
    """The broker knows a newer epoch of this producer."""

    hint = (
        "another producer took over this identity, or its transaction ran out of time:"
        " make a new producer"
    )


class AbortableTransactionError(ClientError):
    """The open transaction can no longer commit; abort() it, and the next one starts clean
    (KIP-1050).
    """

    hint = "abort() the transaction and do its work again"


class InvalidTransactionStateError(ClientError):
    """A transaction call out of order, or about a transaction that ended already."""

    hint = (
        "the order is begin(), send() and send_offsets(), then commit() or abort();"
        " what has ended stays as it ended"
    )


class ConcurrentTransactionsError(ClientError):
    """The transactional id has a transaction that is still open, or not yet ended everywhere."""

    hint = "wait until it has ended, finish it by its handle, or ask to abort it"


class TransactionalIdNotFoundError(ClientError):
    """The coordinator knows no such transactional id, or the producer id is not (any more) its
    own.
    """

    hint = "it never wrote, or expired (transactional.id.expiration.ms)"


class CoordinatorNotAvailableError(ClientError):
    """The coordinator moves, loads its state or has no leader yet; retried until the deadline."""

    hint = "check that the brokers leading __consumer_offsets and __transaction_state are up"


class CommitFailedError(ClientError):
    """An offset commit was refused: the member was fenced or its partitions went to another
    (E14).
    """

    hint = (
        "the records since the last commit will be read again by the partitions' new owner;"
        " poll() to rejoin, and keep max_poll_interval_ms above the time between polls"
    )


class FencedInstanceError(ClientError):
    """Another live member of the group has this group_instance_id."""

    hint = "give each running consumer a group_instance_id of its own"


class GroupNotFoundError(ClientError):
    """The coordinator knows no such group."""

    hint = "check its name (tidemark group list)"


class GroupNotEmptyError(ClientError):
    """The group has members, so that its offsets are theirs to move."""

    hint = "stop the group's consumers first, and wait until their sessions ended"


class AuthorizationError(ClientError):
    """The principal may not do this."""

    hint = "grant the operation to this principal"


class TopicAlreadyExistsError(ClientError):
    """CreateTopics named a topic that exists."""

    hint = "pick another name, or delete the topic first"


class UnsupportedVersionError(ClientError):
    """Client and broker share no version of the API, or the broker does not serve it."""

    hint = "bring client and brokers to compatible releases"


class RequestTimedOutError(ClientError):
    """No answer within the deadline; the outcome is unknown."""

    hint = "check the brokers' load and network, or raise the timeout"


class DeliveryTimeoutError(RequestTimedOutError):
    """A record was not acknowledged within delivery_timeout_ms; it may or may not be in the log."""

    hint = "check that the partition has a leader, or raise delivery_timeout_ms"


class ConnectionLostError(ClientError):
    """A broker cannot be reached, or its connection ended with requests unanswered."""

    hint = "check the address and that the broker is up"


class BufferFullError(ClientError):
    """buffer_memory is used up and the caller chose not to wait (longer)."""

    hint = "await send() or enqueue() instead, raise buffer_memory, or send more slowly"


class CorruptBatchError(ClientError):
    """A batch failed its checksum or cannot be decoded."""

    hint = "read on with seek() past it; run the broker's scrubber on the partition"


class ClientClosedError(ClientError):
    """The producer, consumer or admin client was closed, or never started."""

    hint = "use it inside `async with`, or call start() first"


class ClientConfigError(ClientError):
    """A setting that is unknown, out of range or contradicts another."""


_CLASSES: Final[Mapping[ErrorCode, type[ClientError]]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: UnknownTopicOrPartitionError,
    ErrorCode.UNKNOWN_TOPIC_ID: UnknownTopicOrPartitionError,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: NotLeaderError,
    ErrorCode.LEADER_NOT_AVAILABLE: NotLeaderError,
    ErrorCode.FENCED_LEADER_EPOCH: NotLeaderError,
    ErrorCode.UNKNOWN_LEADER_EPOCH: NotLeaderError,
    ErrorCode.OFFSET_OUT_OF_RANGE: OffsetOutOfRangeError,
    ErrorCode.MESSAGE_TOO_LARGE: MessageTooLargeError,
    ErrorCode.RECORD_LIST_TOO_LARGE: MessageTooLargeError,
    ErrorCode.NOT_ENOUGH_REPLICAS: NotEnoughReplicasError,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: NotEnoughReplicasError,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: OutOfOrderSequenceError,
    ErrorCode.UNKNOWN_PRODUCER_ID: OutOfOrderSequenceError,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: DuplicateSequenceError,
    ErrorCode.INVALID_PRODUCER_EPOCH: ProducerFencedError,
    ErrorCode.PRODUCER_FENCED: ProducerFencedError,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.TOPIC_ALREADY_EXISTS: TopicAlreadyExistsError,
    ErrorCode.UNSUPPORTED_VERSION: UnsupportedVersionError,
    ErrorCode.REQUEST_TIMED_OUT: RequestTimedOutError,
    ErrorCode.NETWORK_EXCEPTION: ConnectionLostError,
    ErrorCode.BROKER_NOT_AVAILABLE: ConnectionLostError,
    ErrorCode.CORRUPT_MESSAGE: CorruptBatchError,
    ErrorCode.INVALID_CONFIG: ClientConfigError,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: CoordinatorNotAvailableError,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: CoordinatorNotAvailableError,
    ErrorCode.NOT_COORDINATOR: CoordinatorNotAvailableError,
    ErrorCode.ILLEGAL_GENERATION: CommitFailedError,
    ErrorCode.UNKNOWN_MEMBER_ID: CommitFailedError,
    ErrorCode.REBALANCE_IN_PROGRESS: CommitFailedError,
    ErrorCode.FENCED_MEMBER_EPOCH: CommitFailedError,
    ErrorCode.STALE_MEMBER_EPOCH: CommitFailedError,
    ErrorCode.FENCED_INSTANCE_ID: FencedInstanceError,
    ErrorCode.UNRELEASED_INSTANCE_ID: FencedInstanceError,
    ErrorCode.GROUP_ID_NOT_FOUND: GroupNotFoundError,
    ErrorCode.NON_EMPTY_GROUP: GroupNotEmptyError,
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: GroupNotEmptyError,
    ErrorCode.INVALID_TXN_STATE: InvalidTransactionStateError,
    ErrorCode.TRANSACTION_ABORTABLE: AbortableTransactionError,
    ErrorCode.CONCURRENT_TRANSACTIONS: ConcurrentTransactionsError,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: TransactionalIdNotFoundError,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: TransactionalIdNotFoundError,
}


def code_of(number: int) -> ErrorCode:
    """The code for a number from the wire; one that this release does not know is
    UNKNOWN_SERVER_ERROR.
    """
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def error_for(
    number: int, message: str, *, where: str = "", detail: str | None = None
) -> ClientError:
    """The exception for an error number that a broker answered.

    ``message`` says what was tried, ``where`` at which broker or partition, ``detail`` is the
    broker's own text.
    """
    code = code_of(number)
    text = message + (f": {detail}" if detail else "")
    if code is ErrorCode.UNKNOWN_SERVER_ERROR and number != code:
        text += f" (error {number}, unknown to this client)"
    return _CLASSES.get(code, ClientError)(code, text, where=where)
