"""Durable handles: a transaction with many writers that any process may commit (Y04).

    one process               several others                          any process
    begin_transaction(id) --> handle.enlist("task-3") --> Writer      handle.finish(commit=True,
      str(handle)               writer.send(...), flush()                writers=[receipt, ...])
                                str(writer.receipt())   ----------->

Each writer has a producer id of its own, so that writers need not know of one another. A commit
names the receipts that count; what other writers wrote, other hand-outs of the same slot included,
is aborted. Asking twice gives the same answer.
"""

import base64
import json
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, ClassVar, NamedTuple, Self

from tidemark_wire.v1 import txn_pb2

from tidemark.client.config import ClientConfig, ProducerConfig, with_settings
from tidemark.client.deadline import Deadline
from tidemark.client.errors import ClientError
from tidemark.client.producer.producer import Producer
from tidemark.client.transactions.control import CoordinatorCalls
from tidemark.client.wire.session import Session, grpc_kafka_addresses
from tidemark.client.wire.transport import ProducerIdentity
from tidemark.model.errors import ErrorCode
from tidemark.runtime.clock import Clock

_HANDLE_PREFIX = "tidemark-transaction-1."
_RECEIPT_PREFIX = "tidemark-writer-1."


class MalformedTokenError(ClientError):
    """A text that is no handle or receipt, or one of a newer release."""

    hint = "pass on what str(handle) or str(receipt) gave, unchanged"


class WriterReceipt(NamedTuple):
    """Which hand-out of which slot wrote; ``str`` of it travels between processes."""

    writer: str
    producer_id: int
    producer_epoch: int

    def __str__(self) -> str:
        return _token(_RECEIPT_PREFIX, list(self))

    @classmethod
    def parse(cls, token: str) -> "WriterReceipt":
        """What ``str`` gave. Raises MalformedTokenError."""
        return cls(*_untoken(_RECEIPT_PREFIX, token, 3))


class TransactionClient:
    """What asks the transaction coordinator: bootstrap servers are gRPC addresses; ``settings`` are
    fields of ClientConfig by name.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        config: ClientConfig | None = None,
        *,
        clock: Clock | None = None,
        default_api_timeout_ms: int = 60_000,
        **settings: Any,
    ) -> None:
        self.config = with_settings(config or ClientConfig(), {**settings, "transport": "grpc"})
        self.clock = clock or Clock()
        self._timeout_ms = default_api_timeout_ms
        self._session = Session(bootstrap_servers, self.config, self.clock)
        self.calls = CoordinatorCalls(self._session, self.config, self.clock)

    async def start(self) -> Self:
        """Begin; connects at the first call. ``async with`` does it for you."""
        await self._session.start()
        return self

    async def close(self) -> None:
        """Let go of connections. Transactions stay as they are."""
        await self._session.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def deadline(self, allowed_ms: int | None = None) -> Deadline:
        """For one call."""
        wanted = self._timeout_ms if allowed_ms is None else allowed_ms
        return Deadline.after(wanted, self.clock.now_ms())

    async def kafka_addresses(self) -> list[str]:
        """Where records are sent."""
        return await grpc_kafka_addresses(self._session)


class Transactions(TransactionClient):
    """``async with Transactions("host:9292") as transactions``."""

    async def begin_transaction(
        self,
        transactional_id: str,
        *,
        timeout_ms: int = 60_000,
        abort_previous: bool = False,
    ) -> "TransactionHandle":
        """Open a transaction, which the coordinator aborts after ``timeout_ms``.

        With ``abort_previous`` one that is open under this id is aborted first; else raises
        ConcurrentTransactionsError.
        """
        request = txn_pb2.BeginTransactionRequest(
            caller=self.calls.caller(),
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            abort_previous=abort_previous,
        )
        answer = await self.calls.until(
            # One that is just ending is waited for, not one that is open.
            self.deadline() if abort_previous else self.deadline(self.config.request_timeout_ms),
            f"beginning a transaction of {transactional_id!r}",
            lambda stub, timeout: stub.BeginTransaction(request, timeout=timeout),
        )
        return TransactionHandle(self, transactional_id, answer.handle)

    def resume(self, token: str) -> "TransactionHandle":
        """The transaction whose handle another process gave as text. Raises
        MalformedTokenError.
        """
        return TransactionHandle(self, *_untoken(_HANDLE_PREFIX, token, 2))


class TransactionHandle:
    """Names one transaction, from any process: ``str(handle)`` there, ``resume`` here."""

    def __init__(self, transactions: Transactions, transactional_id: str, handle: str) -> None:
        self.transactional_id = transactional_id
        self._transactions = transactions
        self._handle = handle

    def __str__(self) -> str:
        return _token(_HANDLE_PREFIX, [self.transactional_id, self._handle])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TransactionHandle) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    async def enlist(
        self, writer: str, config: ProducerConfig | None = None, **settings: Any
    ) -> "Writer":
        """A producer in this transaction, in the slot named ``writer``; enlisting the same slot
        again fences whoever had it. Use it by ``async with``, or ``start`` it.

        Raises InvalidTransactionStateError once the outcome is decided.
        """
        request = txn_pb2.EnlistWriterRequest(
            caller=self._transactions.calls.caller(), handle=self._handle, writer=writer
        )
        answer = await self._transactions.calls.until(
            self._transactions.deadline(),
            f"enlisting writer {writer!r} of {self.transactional_id!r}",
            lambda stub, timeout: stub.EnlistWriter(request, timeout=timeout),
        )
        receipt = WriterReceipt(writer, answer.producer_id, answer.producer_epoch)
        addresses = await self._transactions.kafka_addresses()
        inherited = {
            "transactional_id": self.transactional_id,
            "client_id": self._transactions.config.client_id,
        }
        return Writer(addresses, config, receipt=receipt, **(inherited | settings))

    async def finish(
        self, *, commit: bool, writers: Iterable["Writer | WriterReceipt"] = ()
    ) -> bool:
        """End the transaction: commit what ``writers`` wrote and abort the rest, or abort all.

        True when it was committed. Asking for the same end again, from wherever, gives the same
        answer; asking for the other raises InvalidTransactionStateError. Flush writers before.
        """
        receipts = [each.receipt() if isinstance(each, Writer) else each for each in writers]
        request = txn_pb2.FinishTransactionRequest(
            caller=self._transactions.calls.caller(),
            handle=self._handle,
            commit=commit,
            writers=[
                txn_pb2.FinishTransactionRequest.Writer(
                    writer=each.writer,
                    producer_id=each.producer_id,
                    producer_epoch=each.producer_epoch,
                )
                for each in receipts
            ],
        )
        answer = await self._transactions.calls.until(
            self._transactions.deadline(),
            f"finishing the transaction of {self.transactional_id!r}",
            lambda stub, timeout: stub.FinishTransaction(request, timeout=timeout),
        )
        return bool(answer.committed)


class Writer(Producer):
    """A producer whose records belong to one transaction. A record that fails spoils it: leave it
    out of the commit, or enlist its slot again and write all anew.
    """

    _TRANSACTIONAL: ClassVar[bool] = True

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        config: ProducerConfig | None = None,
        *,
        receipt: WriterReceipt,
        **settings: Any,
    ) -> None:
        super().__init__(bootstrap_servers, config, **settings)
        self.failure: ClientError | None = None
        """Why this writer must not count."""
        self._receipt = receipt
        self._accumulator.on_failed = self._on_failed
        self._accumulator.renew(ProducerIdentity(receipt.producer_id, receipt.producer_epoch))

    def receipt(self) -> WriterReceipt:
        """What ``finish`` needs to know of it. Raises the failure of a record that was not written,
        so that a commit cannot count a writer with a hole.
        """
        if self.failure is not None:
            raise self.failure.with_traceback(None)
        if self._accumulator.statistics().records_unresolved:
            raise ClientError(
                ErrorCode.INVALID_TXN_STATE,
                f"writer {self._receipt.writer!r} has records that are not acknowledged",
                hint="await flush() first",
            )
        return self._receipt

    def _check_sendable(self) -> None:
        if self.failure is not None:
            raise self.failure.with_traceback(None)

    def _on_failed(self, problem: ClientError) -> None:
        if self.failure is None:
            self.failure = problem
            self._accumulator.cut(problem)


def _token(prefix: str, parts: list[Any]) -> str:
    packed = json.dumps(parts, separators=(",", ":")).encode()
    return prefix + base64.urlsafe_b64encode(packed).decode()


def _untoken(prefix: str, token: str, count: int) -> list[Any]:
    if token.startswith(prefix):
        try:
            parts = json.loads(base64.urlsafe_b64decode(token[len(prefix) :]))
        except ValueError:
            parts = None
        if isinstance(parts, list) and len(parts) == count:
            return parts
    raise MalformedTokenError(
        ErrorCode.INVALID_REQUEST, f"{token[:40]!r} is no {prefix.rsplit('-', 1)[0]} token"
    )
