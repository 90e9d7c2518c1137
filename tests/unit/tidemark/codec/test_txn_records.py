"""Records of transactions: Kafka's bytes by its schema, and every record through its own bytes."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidemark.codec.sink_state import SinkState
from tidemark.codec.txn_records import (
    DamagedRecordError,
    EndKind,
    HandleRecord,
    HandleTombstone,
    NewerRecordError,
    Outcome,
    TransactionRecord,
    TransactionState,
    TransactionTombstone,
    TxnRecord,
    WriterRecord,
    WriterTombstone,
    decode,
    encode,
    encoded_bytes,
)
from tidemark.model.topics import TopicPartition

INT64 = st.integers(-1, 2**63 - 1)
EPOCHS = st.integers(-1, 2**15 - 1)
IDS = st.text(min_size=1, max_size=20)
PARTITIONS = st.frozensets(
    st.builds(
        TopicPartition, st.sampled_from(["a", "orders", "x" * 249]), st.integers(0, 2**31 - 1)
    )
)
STATES = st.sampled_from([state for state in TransactionState if state.name != "EMPTY"])
SINKS = st.builds(
    SinkState,
    IDS,
    INT64,
    INT64,
    st.integers(0, 2**32 - 1),
    st.text(max_size=20),
    st.lists(IDS, max_size=3).map(tuple),
)
OUTCOMES = st.builds(Outcome, INT64, st.sampled_from(EndKind), st.integers(0, 2**32 - 1))
RECORDS: st.SearchStrategy[TxnRecord] = st.one_of(
    st.builds(
        TransactionRecord,
        IDS,
        INT64,
        EPOCHS,
        st.integers(0, 2**31 - 1),
        STATES,
        INT64,
        INT64,
        PARTITIONS,
        INT64,
        INT64,
        st.integers(0, 2),
        EPOCHS,
    ),
    st.builds(TransactionTombstone, IDS),
    st.builds(
        HandleRecord,
        IDS,
        INT64,
        INT64,
        st.integers(0, 2**31 - 1),
        st.sampled_from(TransactionState),
        INT64,
        INT64,
        st.lists(st.integers(0, 20_000)).map(tuple),
        st.lists(OUTCOMES, max_size=4).map(tuple),
        st.none() | SINKS,
        st.binary(max_size=16),
    ),
    st.builds(HandleTombstone, IDS),
    st.builds(
        WriterRecord,
        IDS,
        st.integers(0, 20_000),
        INT64,
        IDS,
        INT64,
        EPOCHS,
        st.booleans(),
        PARTITIONS,
    ),
    st.builds(WriterTombstone, IDS, st.integers(0, 20_000)),
)
PLAIN = TransactionRecord(
    "tx", 258, 3, 60_000, TransactionState.ONGOING, 2_000, 1_000,
    frozenset({TopicPartition("b", 1), TopicPartition("a", 2), TopicPartition("a", 0)}),
)  # fmt: skip
PLAIN_VALUE = (
    "0001" "0000000000000102" "0003" "0000ea60" "01"  # version, producer, timeout, Ongoing
    "03" "0261" "03" "00000000" "00000002" "00" "0262" "02" "00000001" "00"  # a: 0 2, b: 1
    "00000000000007d0" "00000000000003e8" "00"  # updated, started, no tagged fields
)  # fmt: skip


def test_a_key_is_kafkas() -> None:
    assert encode(PLAIN)[0] == bytes.fromhex("000000027478")
    assert encode(TransactionTombstone("tx")) == (encode(PLAIN)[0], None)


@pytest.mark.feature("L06")
def test_a_value_is_kafkas() -> None:
    assert encode(PLAIN)[1] == bytes.fromhex(PLAIN_VALUE)


def test_a_session_without_a_transaction_has_null_partitions() -> None:
    record = TransactionRecord("tx", 1, 0, 5, TransactionState.EMPTY, 7)
    value = struct.pack(">hqhib", 1, 1, 0, 5, 0) + b"\x00" + struct.pack(">qq", 7, -1) + b"\x00"
    assert encode(record)[1] == value


def test_tagged_fields_are_kafkas() -> None:
    record = TransactionRecord(
        "tx", 1, 4, 5, TransactionState.COMPLETE_COMMIT, 7, 6,
        previous_producer_id=8, next_producer_id=9, client_version=2,
    )  # fmt: skip
    tagged = bytes.fromhex(
        "03" "00" "08" "0000000000000008" "01" "08" "0000000000000009" "02" "02" "0002"
    )  # fmt: skip
    value = encode(record)[1]
    assert value is not None
    assert value.endswith(tagged)


def test_our_tagged_field_has_a_number_far_from_kafkas() -> None:
    record = TransactionRecord(
        "tx", 1, 4, 5, TransactionState.COMPLETE_COMMIT, 7, last_producer_epoch=3
    )
    value = encode(record)[1]
    assert value is not None
    assert value.endswith(bytes.fromhex("0180a801020003"))


def test_a_value_of_version_0_is_read() -> None:
    value = (
        struct.pack(">hqhib", 0, 258, 3, 60_000, 1)
        + struct.pack(">i", 2)
        + struct.pack(">h1siii", 1, b"a", 2, 0, 2)
        + struct.pack(">h1sii", 1, b"b", 1, 1)
        + struct.pack(">qq", 2_000, 1_000)
    )
    assert decode(encode(PLAIN)[0], value) == PLAIN


def test_null_partitions_of_version_0_are_read() -> None:
    value = struct.pack(">hqhibiqq", 0, 1, 0, 5, 0, -1, 7, -1)
    expected = TransactionRecord("tx", 1, 0, 5, TransactionState.EMPTY, 7)
    assert decode(encode(PLAIN)[0], value) == expected


@given(RECORDS)
def test_every_record_comes_back(record: TxnRecord) -> None:
    key, value = encode(record)
    assert decode(key, value) == record
    assert encoded_bytes(record) == len(key) + len(value or b"")


@pytest.mark.parametrize("key_type", [1, 2, 0x53FF, 0x5402])
def test_an_unknown_kind_is_not_guessed_at(key_type: int) -> None:
    with pytest.raises(NewerRecordError):
        decode(struct.pack(">hh2s", key_type, 2, b"tx"), None)


@pytest.mark.parametrize(
    ("record", "newest"),
    [(PLAIN, 1), (HandleRecord("a", 1, 1, 1, TransactionState.ONGOING, 1, 1), 1)],
)
def test_an_unknown_version_is_not_guessed_at(record: TxnRecord, newest: int) -> None:
    key, value = encode(record)
    assert value is not None
    with pytest.raises(NewerRecordError):
        decode(key, struct.pack(">h", newest + 1) + value[2:])


@pytest.mark.parametrize("length", [0, 1, 5, 20, 30])
def test_a_torn_value_is_damaged(length: int) -> None:
    key, value = encode(PLAIN)
    assert value is not None
    with pytest.raises(DamagedRecordError):
        decode(key, value[:length])


def test_a_state_that_does_not_exist_is_damage() -> None:
    value = struct.pack(">hqhibiqq", 0, 1, 0, 5, 9, -1, 7, -1)
    with pytest.raises(DamagedRecordError):
        decode(encode(PLAIN)[0], value)


@pytest.mark.parametrize(
    ("state", "title"),
    [
        (TransactionState.EMPTY, "Empty"),
        (TransactionState.PREPARE_EPOCH_FENCE, "PrepareEpochFence"),
        (TransactionState.COMPLETE_ABORT, "CompleteAbort"),
    ],
)
def test_states_have_kafkas_names(state: TransactionState, title: str) -> None:
    assert state.title == title


def test_a_handle_is_of_the_version_that_every_release_reads_unless_it_is_a_sinks() -> None:
    plain = HandleRecord("a", 1, 1, 1, TransactionState.ONGOING, 1, 1)
    of_sink = HandleRecord("a", 1, 1, 1, TransactionState.ONGOING, 1, 1, sink=SinkState("q"))
    versions = [encode(record)[1][:2] for record in (plain, of_sink)]  # type: ignore[index]
    assert versions == [b"\x00\x00", b"\x00\x01"]


def test_a_handle_of_the_first_release_is_read() -> None:
    """Its bytes as that release wrote them."""
    key = bytes.fromhex("5400000161")
    value = bytes.fromhex(
        "0000"  # version
        "0000000000000003"  # number
        "0000000000000007"  # created at
        "00001388"  # timeout
        "04"  # CompleteCommit
        "000000000000000a"  # updated at
        "0000000000000008"  # started at
        "0200000000"  # winners: slot 0
        "020000000000000003000000000000000005"
        "00"  # outcomes: number 3, committed, crc 5
        "00"
    )
    done = TransactionState.COMPLETE_COMMIT
    expected = HandleRecord(
        "a", 3, 7, 5_000, done, 10, 8, (0,), (Outcome(3, EndKind.COMMITTED, 5),)
    )
    assert decode(key, value) == expected


def test_a_sinks_handle_has_these_bytes() -> None:
    """So that what this release wrote is read by the next one."""
    sink = SinkState("q", 8, 7, 9, "n", ("old",))
    record = HandleRecord("a", 3, 7, 5_000, TransactionState.ONGOING, 10, 8, sink=sink)
    key, value = encode(record)
    assert (key.hex(), value.hex() if value else None) == (
        "5400000161",
        "0001"  # version
        "0000000000000003"  # number
        "0000000000000007"  # created at
        "00001388"  # timeout
        "01"  # Ongoing
        "000000000000000a"  # updated at
        "0000000000000008"  # started at
        "01"  # no winners
        "01"  # no outcomes
        "0271"  # query id
        "0000000000000008"  # batch
        "0000000000000007"  # committed batch
        "0000000000000009"  # crc of its winners
        "026e"  # note
        "02046f6c64"  # retired queries
        "00"
        "00",
    )
