import pytest
from tidemark.model.topics import TopicPartition
from tidemark_spark.errors import OptionError
from tidemark_spark.source.read_options import (
    Assign,
    AtTimestamp,
    Edge,
    PerPartition,
    PerPartitionTimestamp,
    ReadOptions,
    Subscribe,
    SubscribePattern,
    read_options,
)

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
LEAST = {"bootstrap.servers": "h:9292", "subscribe": "a"}


def of(*, streaming: bool = False, **options: str) -> ReadOptions:
    named = {name.replace("__", "."): value for name, value in options.items()}
    return read_options(LEAST | named, streaming=streaming)


def refused(options: dict[str, str], *, streaming: bool = False) -> str:
    with pytest.raises(OptionError) as found:
        read_options(options, streaming=streaming)
    return str(found.value)


def test_defaults_of_a_batch() -> None:
    assert of() == ReadOptions(
        bootstrap_servers="h:9292", selection=Subscribe(("a",)), starting=Edge.EARLIEST
    )


def test_a_stream_starts_at_the_end() -> None:
    assert of(streaming=True).starting is Edge.LATEST


def test_case_of_letters_does_not_count() -> None:
    options = {"BOOTSTRAP.servers": "h:1", "SUBSCRIBE": "a", "failondataloss": "FALSE"}
    assert not read_options(options, streaming=False).fail_on_data_loss


@pytest.mark.parametrize(
    ("name", "text", "selection"),
    [
        ("subscribe", " a, b,a,", Subscribe(("a", "b"))),
        ("subscribePattern", "a-.*", SubscribePattern("a-.*")),
        ("assign", '{"a": [1, 0, 1]}', Assign((A0, A1))),
    ],
)
def test_what_is_read(name: str, text: str, selection: object) -> None:
    options = {"bootstrap.servers": "h:1", name: text}
    assert read_options(options, streaming=False).selection == selection


@pytest.mark.parametrize(
    ("name", "text", "bound"),
    [
        ("startingOffsets", "Earliest", Edge.EARLIEST),
        ("startingOffsets", '{"a": {"0": 5, "1": -2}}', PerPartition({A0: 5, A1: -2})),
        ("startingTimestamp", "1000", AtTimestamp(1_000)),
        ("startingOffsetsByTimestamp", '{"a": {"0": 7}}', PerPartitionTimestamp({A0: 7})),
    ],
)
def test_where_it_starts(name: str, text: str, bound: object) -> None:
    assert read_options(LEAST | {name: text}, streaming=False).starting == bound


def test_ids_of_topics() -> None:
    assert of(topicIds='{"a": "1D"}').topic_ids == {"a": "1d"}
    assert "an option of batch" in refused(LEAST | {"topicIds": "{}"}, streaming=True)


def test_a_timestamp_goes_before_offsets() -> None:
    assert of(startingTimestamp="5", startingOffsets="earliest").starting == AtTimestamp(5)


@pytest.mark.parametrize(
    ("name", "text", "bound"),
    [
        ("endingOffsets", "latest", Edge.LATEST),
        ("endingOffsets", '{"a": {"0": 5, "1": -1}}', PerPartition({A0: 5, A1: -1})),
        ("endingTimestamp", "1000", AtTimestamp(1_000)),
        ("endingOffsetsByTimestamp", '{"a": {"0": 7}}', PerPartitionTimestamp({A0: 7})),
    ],
)
def test_where_it_ends(name: str, text: str, bound: object) -> None:
    assert read_options(LEAST | {name: text}, streaming=False).ending == bound


def test_settings_of_the_client() -> None:
    read = of(client__request__timeout__ms="500", client__check_crcs="false", client__client_id="x")
    assert read.client == {"request_timeout_ms": 500, "check_crcs": False, "client_id": "x"}


def test_limits_of_a_stream() -> None:
    read = of(streaming=True, maxOffsetsPerTrigger="9", minOffsetsPerTrigger="3")
    assert (read.offsets_per_trigger_max, read.offsets_per_trigger_min) == (9, 3)


@pytest.mark.parametrize(
    ("text", "ms"), [("15m", 900_000), ("1min", 60_000), ("2 s", 2_000), ("7ms", 7)]
)
def test_a_duration(text: str, ms: int) -> None:
    assert of(streaming=True, maxTriggerDelay=text).trigger_delay_ms_max == ms


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("failOnDataLos", "true", "failOnDataLoss"),
        ("kafka.bootstrap.servers", "h:9092", "bootstrap.servers"),
        ("kafka.request.timeout.ms", "5", "client.request.timeout.ms"),
        ("failOnDataLoss", "yes", "true or false"),
        ("isolation.level", "serializable", "read_committed"),
        ("includeHeaders", "1", "true or false"),
        ("maxRecordsPerBatch", "0", "an integer of at least 1"),
        ("minPartitions", "x", "an integer of at least 1"),
        ("startingOffsets", "first", "earliest"),
        ("startingOffsets", '{"a": 5}', '{"topic": {"0": 23, "1": 42}}'),
        ("startingOffsets", '{"a": {"0": -3}}', '{"topic": {"0": 23, "1": 42}}'),
        ("startingOffsets", "{", "not JSON"),
        ("startingOffsets", "latest", "would read nothing"),
        ("startingOffsets", "committed", "group.id"),
        ("startingTimestamp", "yesterday", "an integer"),
        ("startingTimestamp", f"{2**63}", "at most"),
        ("startingOffsets", '{"a": {"²": 5}}', '{"topic": {"0": 23, "1": 42}}'),
        ("startingOffsets", '{"a": {"0": 9223372036854775808}}', '{"topic": {"0": 23, "1": 42}}'),
        ("endingOffsets", '{"a": {"0": -2}}', "-1 (latest)"),
        ("endingOffsets", "earliest", "latest"),
        ("maxOffsetsPerTrigger", "5", "streaming queries"),
        ("client.reqest.timeout.ms", "5", "request_timeout_ms"),
        ("client.transport", "kafka", "no setting"),
        ("client.request.timeout.ms", "soon", "an integer"),
        ("topicIds", '{"a": 5}', "in hexadecimal"),
        ("assign", '{"a": [0]}', "exactly one"),
        ("subscribePattern", "a", "exactly one"),
    ],
)
def test_a_wrong_option_says_what_to_try(name: str, text: str, says: str) -> None:
    assert says in refused(LEAST | {name: text})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"subscribe": "a"}, "bootstrap.servers is missing"),
        ({"bootstrap.servers": "h:1"}, "exactly one"),
        ({"bootstrap.servers": "h:1", "subscribe": ","}, "no topic"),
        ({"bootstrap.servers": "h:1", "subscribePattern": "("}, "regular expression"),
        ({"bootstrap.servers": "h:1", "assign": "[]"}, '{"topic": [0, 1]}'),
        ({"bootstrap.servers": "h:1", "assign": "{}"}, "no partition"),
        ({"bootstrap.servers": "h:1", "assign": '{"a": 0}'}, '{"topic": [0, 1]}'),
    ],
)
def test_what_is_needed(options: dict[str, str], says: str) -> None:
    assert says in refused(options)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    assert "batch queries" in refused(LEAST | {name: "latest"}, streaming=True)


def test_a_duration_without_a_unit() -> None:
    assert "15m" in refused(LEAST | {"maxTriggerDelay": "5"}, streaming=True)


def test_sparks_own_options_pass() -> None:
    assert of(path="/x", checkpointLocation="/y").selection == Subscribe(("a",))
