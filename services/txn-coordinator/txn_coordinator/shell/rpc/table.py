"""Handlers of the TransactionCoordinator's RPCs, by their names on the wire.

Most requests go to the shard of one transactional id, and differ in the rows below only: the
transactional id of the request, its reader, the kind of reply, and the writer of the reply. The
others have a module of their own.
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeVar

from tidemark.model.authorization import Operation
from tidemark.model.errors import ErrorCode
from tidemark.runtime.coordinator.calls import Context, answered, ask
from tidemark.runtime.coordinator.server import Handler

from txn_coordinator.core import requests as core
from txn_coordinator.shell.metrics import RequestStats
from txn_coordinator.shell.node import TxnCoordinatorNode
from txn_coordinator.shell.rpc import (
    add_offsets,
    add_partitions,
    describe_transactions,
    list_transactions,
)
from txn_coordinator.shell.rpc.call import WithProducerId, ask_with_spare, check_allowed
from txn_coordinator.shell.wire_mapping import (
    FromCaller,
    handle_named,
    needs_spare,
    read_begin,
    read_end,
    read_enlist,
    read_enlist_in_batch,
    read_finish,
    read_finish_batch,
    read_forget_sink,
    read_init,
    read_keep_alive,
    sink_named,
    transaction_named,
    write_begun,
    write_end,
    write_enlisted,
    write_enlisted_in_batch,
    write_finished,
    write_finished_batch,
    write_forgotten,
    write_init,
    write_kept_alive,
)


class Refusable(Protocol):
    """Reply that may be an error and nothing else."""

    def __init__(self, error_code: ErrorCode, error_message: str) -> None: ...


class Giving(Refusable, WithProducerId, Protocol):
    """Reply that may give a producer id."""


RequestT = TypeVar("RequestT", bound=FromCaller)
RefusableT = TypeVar("RefusableT", bound=Refusable)
GivingT = TypeVar("GivingT", bound=Giving)


def _ignore(stats: RequestStats, reply: object) -> None:
    del stats, reply


def _asking(
    name_of: Callable[[RequestT], str],
    read: Callable[[RequestT], core.Request],
    kind: type[RefusableT],
    write: Callable[[RefusableT], object],
    count: Callable[[RequestStats, RefusableT], None] = _ignore,
) -> Handler[TxnCoordinatorNode]:
    """Return the handler of requests that write."""

    async def handle(node: TxnCoordinatorNode, request: RequestT, context: Context) -> object:
        async def work() -> RefusableT:
            name = name_of(request)
            check_allowed(node, request, Operation.WRITE, name)
            reply = await ask(node, name, read(request), kind, context)
            count(node.stats, reply)
            return reply

        return write(await answered(work(), kind))

    return handle


def _asking_with_spare(
    name_of: Callable[[RequestT], str],
    read: Callable[[RequestT, int], core.Request],
    kind: type[GivingT],
    write: Callable[[GivingT], object],
    *,
    when: Callable[[RequestT], bool] = lambda _: True,
    count: Callable[[RequestStats, GivingT], None] = _ignore,
) -> Handler[TxnCoordinatorNode]:
    """Return the handler of requests that write and may need a new producer id."""

    async def handle(node: TxnCoordinatorNode, request: RequestT, context: Context) -> object:
        async def work() -> GivingT:
            name = name_of(request)
            check_allowed(node, request, Operation.WRITE, name)
            if when(request):
                reply = await ask_with_spare(
                    node, name, lambda spare: read(request, spare), kind, context
                )
            else:
                reply = await ask(node, name, read(request, core.NO_PRODUCER_ID), kind, context)
            count(node.stats, reply)
            return reply

        return write(await answered(work(), kind))

    return handle


HANDLERS: Final[Mapping[str, Handler[TxnCoordinatorNode]]] = {
    # A session of a transactional id: producer id and epoch, which fence all earlier sessions.
    "InitTransactionalId": _asking_with_spare(
        transaction_named, read_init, core.InitTransactionalIdReply, write_init
    ),
    "AddPartitions": add_partitions.handle,
    "AddOffsets": add_offsets.handle,
    # Commit or abort.
    "EndTransaction": _asking_with_spare(
        transaction_named, read_end, core.EndTransactionReply, write_end, when=needs_spare
    ),
    "DescribeTransactions": describe_transactions.handle,
    "ListTransactions": list_transactions.handle,
    # A multi-writer transaction, whose handle any process can use.
    "BeginTransaction": _asking(
        transaction_named, read_begin, core.BeginTransactionReply, write_begun
    ),
    # A slot of such a transaction, which fences an earlier holder.
    "EnlistWriter": _asking_with_spare(
        handle_named, read_enlist, core.EnlistWriterReply, write_enlisted
    ),
    # Its end. A repeated request gets the same reply.
    "FinishTransaction": _asking(
        handle_named, read_finish, core.FinishTransactionReply, write_finished
    ),
    # A slot of a batch of a sink, which is opened if it is not; or its committed state.
    "EnlistInBatch": _asking_with_spare(
        sink_named,
        read_enlist_in_batch,
        core.EnlistInBatchReply,
        write_enlisted_in_batch,
        count=RequestStats.count_enlisted,
    ),
    # A new start of an open batch's timeout.
    "KeepBatchAlive": _asking(
        handle_named, read_keep_alive, core.KeepBatchAliveReply, write_kept_alive
    ),
    # Commit or abort of a batch. The first commit counts.
    "FinishBatch": _asking(
        sink_named,
        read_finish_batch,
        core.FinishBatchReply,
        write_finished_batch,
        RequestStats.count_finished,
    ),
    # Removal of the state of a sink's batches.
    "ForgetSink": _asking(sink_named, read_forget_sink, core.ForgetSinkReply, write_forgotten),
}
