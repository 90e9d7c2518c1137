import io
import json
import logging
from collections.abc import Iterator

import pytest
from tidemark.runtime.telemetry import (
    LogFormat,
    configure_logging,
    fields,
    levels,
    request_scope,
    set_level,
    shortened,
)


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, own_level = root.handlers[:], root.level, levels()
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name in levels().keys() - own_level.keys():
        logging.getLogger(name).setLevel(logging.NOTSET)
    logging.getLogger("kazoo").filters.clear()
    logging.captureWarnings(capture=False)


def logged(log_format: LogFormat, *, level: str = "INFO") -> io.StringIO:
    stream = io.StringIO()
    configure_logging("broker", level=level, log_format=log_format, stream=stream)
    return stream


def test_a_json_line_holds_its_fields_and_the_request_id() -> None:
    stream = logged("json")
    with request_scope("r-1"):
        logging.getLogger("example").info("topic created", extra=fields(topic="orders", name="x"))
    line = json.loads(stream.getvalue())
    assert (line["message"], line["topic"], line["request_id"]) == (
        "topic created",
        "orders",
        "r-1",
    )
    assert (line["service"], line["level"], line["name"]) == ("broker", "INFO", "x")
    assert line["ts"].endswith("Z")


def test_a_field_never_replaces_what_every_line_has() -> None:
    stream = logged("json")
    logging.getLogger("example").info("said", extra=fields(message="other", level="other"))
    assert json.loads(stream.getvalue())["message"] == "said"


def test_a_text_line_quotes_what_has_spaces() -> None:
    stream = logged("text")
    logging.getLogger("example").warning("lost", extra=fields(why="disk is full", offset=3))
    assert stream.getvalue().endswith('WARNING example  lost  why="disk is full" offset=3\n')


def test_outside_of_a_request_there_is_no_request_id() -> None:
    stream = logged("json")
    with request_scope():
        pass
    logging.getLogger("example").info("started")
    assert "request_id" not in json.loads(stream.getvalue())


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_a_traceback_is_kept(log_format: LogFormat) -> None:
    stream = logged(log_format)
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("example").exception("failed")
    assert "ValueError: broken" in stream.getvalue()


def test_the_level_changes_while_running() -> None:
    stream = logged("text")
    log = logging.getLogger("example")
    log.debug("not yet")
    set_level("debug", "example")
    log.debug("now")
    assert "now" in stream.getvalue()
    assert "not yet" not in stream.getvalue()
    assert levels()["example"] == "DEBUG"


def test_a_level_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="must be one of: DEBUG, INFO"):
        set_level("LOUD")


@pytest.mark.feature("SE24")
def test_what_is_in_znodes_is_not_logged_whatever_the_level() -> None:
    stream = logged("text")
    set_level("DEBUG", "kazoo")
    data = (b'{"stored_key": "c2VjcmV0"}',)
    kazoo = logging.getLogger("kazoo.client")
    kazoo.debug("Sending request(xid=%s): %s", 7, data)
    kazoo.debug("Received response(xid=%s): %r", 7, data)
    set_level("WARNING", "kazoo")
    assert "Sending request(xid=7): tuple" in stream.getvalue()
    assert "c2VjcmV0" not in stream.getvalue()


def test_a_long_list_is_cut() -> None:
    cut = shortened("topics", [f"t{number}" for number in range(12)])
    assert cut == {"count": 12, "topics": ",".join(f"t{n}" for n in range(10)) + " and 2 more"}
