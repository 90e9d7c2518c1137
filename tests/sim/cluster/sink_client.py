"""The library's client of sinks and handles over the simulated network, and a task's writer."""

from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio
from tidemark.client.config import ClientConfig
from tidemark.client.deadline import Deadline
from tidemark.client.errors import ClientError
from tidemark.client.transactions.control import CoordinatorCalls
from tidemark.client.transactions.multi_writer import TransactionClient, WriterReceipt
from tidemark.client.transactions.sink_batches import SinkBatches
from tidemark.client.wire.grpc_transport import client_error
from tidemark.codec.record_batch import TRANSACTIONAL_BIT
from tidemark.codec.records import build_batch
from tidemark.model.errors import ErrorCode
from tidemark_wire.v1 import txn_pb2_grpc

from sim.checkers import require
from sim.cluster.client import ALL, Client
from sim.cluster.processes import SimClock
from sim.cluster.rpc import SimChannel
from sim.cluster.txn_client import ABORTABLE, AGAIN, FENCED, PRODUCE_S
from sim.cluster.txn_history import Txn

if TYPE_CHECKING:
    from sim.cluster.parts import SimTopic
    from sim.cluster.txn_world import TxnWorld

CONFIG: Final = ClientConfig(
    client_id="sim", request_timeout_ms=600, retry_backoff_ms=20, retry_backoff_max_ms=200
)
PATIENCE_MS: Final = 1_500
"""Time-out of one call, with all its attempts."""


class EvenJitter:
    """Replacement for ``random`` where the client spreads its attempts."""

    @staticmethod
    def random() -> float:
        """Return the mean."""
        return 0.5


class SimCalls(CoordinatorCalls):
    """Calls to a random reachable broker."""

    def __init__(self, world: "TxnWorld", client: TransactionClient) -> None:
        super().__init__(client._session, client.config, client.clock)
        self._world = world

    async def _once(self, call: Any, deadline: Deadline) -> Any:
        world = self._world
        name = world.dice.pick(world.machines).host.name
        if ("client", name) in world.network.cuts:
            raise ClientError(ErrorCode.NETWORK_EXCEPTION, f"{name} is not reached")
        left_ms = deadline.left_ms(self._clock.now_ms())
        timeout_s = max(1.0, min(left_ms, self._config.request_timeout_ms)) / 1_000
        channel: Any = SimChannel(world, world.client, f"{name}:1")
        try:
            return await call(txn_pb2_grpc.TransactionCoordinatorStub(channel), timeout_s)
        except grpc.aio.AioRpcError as problem:
            raise client_error(problem, name) from None


def sink_batches(world: "TxnWorld") -> SinkBatches:
    """Return a client that is not started: it has no connections of its own."""
    clock = SimClock(world.client, 1_000)
    sink = SinkBatches("b1:1", CONFIG, clock=clock, default_api_timeout_ms=PATIENCE_MS)
    sink.calls = SimCalls(world, sink)
    return sink


class TaskFailedError(Exception):
    """A task failed: its records must not count."""


class TaskWriter:
    """Writer under a receipt, over Kafka's wire, as a BatchWriter is."""

    def __init__(
        self,
        world: "TxnWorld",
        sink_id: str,
        receipt: WriterReceipt,
        txn: Txn,
        *,
        impatience: float,
    ) -> None:
        """``impatience``: probability of giving up a batch that was not acknowledged in time."""
        self.receipt = receipt
        self.txn = txn
        self._world = world
        self._sink_id = sink_id
        self._impatience = impatience
        self._sequences: dict[str, int] = {}

    async def send(self, topic: "SimTopic", values: list[bytes]) -> None:
        """Send one batch until it is acknowledged. Raises TaskFailedError."""
        for value in values:
            self._world.history.writes(self.txn, topic.name, value)
            topic.ledger.sends(value, once=True)
        client = self._client(topic)
        sequence = self._sequences.get(topic.name, 0)
        batch = self._batch(values, sequence)
        while True:
            try:
                result = await client.produce(batch, ALL)
            except (OSError, TimeoutError):
                if self._world.dice.chance(self._impatience):
                    raise TaskFailedError("the batch was given up; it may yet come") from None
                await client.rest()
                continue
            code = ErrorCode(result.error_code)
            if code is ErrorCode.NONE:
                break
            self._judge(topic, code)
            client.disconnect()
            await client.rest()
        client.disconnect()
        self._sequences[topic.name] = sequence + len(values)
        for number, value in enumerate(values):
            topic.ledger.acknowledges(value, result.base_offset + number)
        self._world.note("task", f"wrote {len(values)} in {self.txn.name}", topic)

    def _client(self, topic: "SimTopic") -> Client:
        client = Client(self._world, topic)
        client.transactional_id = self._sink_id
        client.produce_version = 12
        client.answer_s, client.wait_ms = PRODUCE_S, 350
        return client

    def _batch(self, values: list[bytes], sequence: int) -> bytes:
        return build_batch(
            [(self._world.wall_ms(), None, value, ()) for value in values],
            producer_id=self.receipt.producer_id,
            producer_epoch=self.receipt.producer_epoch,
            base_sequence=sequence,
            attributes_extra=TRANSACTIONAL_BIT,
        )

    def _judge(self, topic: "SimTopic", code: ErrorCode) -> None:
        """Return after an error that a retry can cure. Raises TaskFailedError."""
        self._world.note("task", f"hears {code.name} in {self.txn.name}", topic)
        if code in FENCED or code in ABORTABLE:
            raise TaskFailedError(code.name)
        require(
            code in AGAIN or code.retriable,
            "a task hears what it understands",
            f"{self.txn.name}: {code.name}",
        )
