"""Transactions v2 (KIP-890) in bare requests of Kafka's protocol, for one transactional id."""

from e2e.kafka_wire import Wire, produce_body
from e2e.wire import ask
from tidemark.codec.record_batch import TRANSACTIONAL_BIT
from tidemark.codec.records import build_batch
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.long_tail import Struct
from tidemark.kafka.produce import read_produce_response
from tidemark.model.errors import ErrorCode
from tidemark.runtime.clock import Clock
from waiting import wait_for

END_TXN_V2 = 5


def init(wire: Wire) -> tuple[int, int]:
    """A session; producer id and epoch."""
    fields = {
        "transactional_id": "late",
        "transaction_timeout": 60_000,
        "producer_id": -1,
        "producer_epoch": -1,
    }
    answers: list[Struct] = []

    def begun() -> bool:
        answers.append(ask(wire, ApiKey.INIT_PRODUCER_ID, 4, fields))
        return not answers[-1].error_code

    wait_for(begun, lambda: str(ErrorCode(answers[-1].error_code)))
    return answers[-1].producer_id, answers[-1].producer_epoch


def write(wire: Wire, producer: tuple[int, int], sequence: int, value: bytes) -> ErrorCode:
    """One transactional batch of v2; asked again while the end before it is under way."""
    batch = build_batch(
        [(Clock().wall_ms(), None, value, ())],
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=sequence,
        attributes_extra=TRANSACTIONAL_BIT,
    )
    body = produce_body("a", batch, version=12, acks=-1, transactional_id="late")

    def answered() -> tuple[ErrorCode] | None:
        answer = read_produce_response(wire.ask(ApiKey.PRODUCE, 12, body), 12)
        code = ErrorCode(answer.topics[0][2][0].error_code)
        return None if code is ErrorCode.NOT_ENOUGH_REPLICAS else (code,)

    return wait_for(answered, "the end before it is through")[0]


def end(wire: Wire, producer: tuple[int, int], *, commit: bool) -> tuple[ErrorCode, int, int]:
    """EndTxn 5; the code and the next transaction's producer id and epoch."""
    fields = {
        "transactional_id": "late",
        "producer_id": producer[0],
        "producer_epoch": producer[1],
        "committed": commit,
    }
    answer = ask(wire, ApiKey.END_TXN, END_TXN_V2, fields)
    return ErrorCode(answer.error_code), answer.producer_id, answer.producer_epoch
