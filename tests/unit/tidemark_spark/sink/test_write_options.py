import pickle

import pytest
from tidemark_spark.errors import OptionError
from tidemark_spark.sink.write_options import (
    BatchName,
    Delivery,
    ReplayMismatch,
    WriteOptions,
    write_options,
)

LEAST = {"bootstrap.servers": "h:9292", "topic": "t"}


def of(*, streaming: bool = True, **options: str) -> WriteOptions:
    named = {name.replace("__", "."): value for name, value in options.items()}
    return write_options(LEAST | named, streaming=streaming)


def refused(options: dict[str, str], *, streaming: bool = True) -> str:
    with pytest.raises(OptionError) as found:
        of(streaming=streaming, **options)
    return str(found.value)


def test_defaults() -> None:
    options = of()
    assert (options.topic, options.sink_id, options.group_id) == ("t", None, None)
    assert options.delivery is Delivery.EXACTLY_ONCE
    assert options.replay_mismatch is ReplayMismatch.FAIL
    assert options.config.required_acks == -1
    assert not options.config.allow_auto_create_topics


def test_case_of_letters_does_not_count() -> None:
    options = write_options({"BOOTSTRAP.servers": "h:1", "Sink.ID": "s"}, streaming=True)
    assert (options.bootstrap_servers, options.sink_id) == ("h:1", "s")


def test_options_travel_to_tasks() -> None:
    options = of(compression__type="lz4")
    assert pickle.loads(pickle.dumps(options)) == options


def test_client_settings_are_converted() -> None:
    options = of(client__batch_size="1000", client__client_id="me", client__retry__backoff__ms="7")
    assert options.config.batch_size == 1_000
    assert options.client == {"client_id": "me", "retry_backoff_ms": 7}


def test_a_call_may_be_given_up_sooner() -> None:
    assert of(client__default_api_timeout_ms="500").api_timeout_ms == 500


def test_a_batch_write_may_be_named() -> None:
    options = of(streaming=False, sink__id="s", query__id="q", batch__id="7")
    assert options.batch == BatchName("q", 7)


def test_the_sources_offsets_need_a_group() -> None:
    options = of(group__id="g", source__offsets="true")
    assert (options.group_id, options.source_offsets) == ("g", True)
    assert "group.id" in refused({"source__offsets": "true"})
    assert "source.offsets=true" in refused({"group__id": "g"})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"topicc": "x"}, "topic"),
        ({"kafka__bootstrap__servers": "h:1"}, "bootstrap.servers"),
        ({"delivery": "twice"}, "exactly-once or at-least-once"),
        ({"replay__mismatch": "x"}, "fail or skip"),
        ({"compression__type": "rar"}, "zstd"),
        ({"transaction__timeout__ms": "0"}, "at least 1"),
        ({"transaction__timeout__ms": f"{2**31}"}, "at most 2147483647"),
        ({"topic": " "}, "topic is empty"),
        ({"client__acks": "1"}, "in-sync replicas"),
        ({"client__transactional_id": "x"}, "sink.id"),
        ({"client__no_such": "1"}, "no setting no_such"),
        ({"client__linger_ms": "soon"}, "an integer"),
        ({"client__batch_size": "0"}, "batch_size must be above 0"),
        ({"query__id": "q", "batch__id": "1"}, "a streaming query has its own"),
        ({"delivery": "at-least-once", "sink__id": "s"}, "cannot be used with delivery"),
        (
            {"delivery": "at-least-once", "group__id": "g", "source__offsets": "true"},
            "committed in the transaction",
        ),
    ],
)
def test_what_is_wrong_is_said(options: dict[str, str], says: str) -> None:
    assert says in refused(options)


@pytest.mark.parametrize(
    "options",
    [
        {"query__id": "q", "batch__id": "1"},
        {"sink__id": "s", "query__id": "q"},
        {"sink__id": "s", "batch__id": "1"},
        {"sink__id": "s", "query__id": "q", "batch__id": "-1"},
    ],
)
def test_a_named_batch_is_named_wholly(options: dict[str, str]) -> None:
    assert "batch" in refused(options, streaming=False)


def test_servers_are_needed() -> None:
    with pytest.raises(OptionError, match=r"bootstrap\.servers is missing"):
        write_options({"topic": "t"}, streaming=True)
