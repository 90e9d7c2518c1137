"""Logs: one structured line per state change, JSON or text, with the request id of the caller.

Use the standard ``logging`` and put values into fields, never into the sentence:
``log.info("topic created", extra=fields(topic="orders", partition_count=3))``.
"""

import json
import logging
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Final, Literal, TextIO

LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
LogFormat = Literal["json", "text"]

REQUEST_ID: Final[ContextVar[str]] = ContextVar("tidemark_request_id", default="")
"""Id of the request that this task serves; '' if there is none. Relayed requests carry it on."""

NAMES_LOGGED_MAX: Final = 10
"""Names in one field of a log line: a change may concern thousands of partitions."""

_FIELDS_ATTRIBUTE: Final = "tidemark_fields"
# Their INFO describes their own work; the services log the consequences themselves.
_NOISY_LOGGERS: Final = ("kazoo", "uvicorn", "grpc", "asyncio", "concurrent")
_KAZOO: Final = "kazoo.client"
_WITH_ZNODES: Final = ("Sending request", "Received response", "Received EVENT")


def fields(**values: object) -> dict[str, object]:
    """Return values for a log line, to be passed as ``extra``; any names are allowed."""
    return {_FIELDS_ATTRIBUTE: values}


def shortened(key: str, names: Sequence[str]) -> dict[str, object]:
    """Return fields of a log line: ``count``, and under ``key`` the first few names."""
    shown = names[:NAMES_LOGGED_MAX]
    more = len(names) - len(shown)
    return {"count": len(names), key: ",".join(shown) + (f" and {more} more" if more else "")}


def new_request_id() -> str:
    """Return sixteen random hex digits."""
    return secrets.token_hex(8)


@contextmanager
def request_scope(request_id: str | None = None) -> Iterator[str]:
    """Add the request id to every log line of this task, and of tasks it starts, in the block."""
    chosen = request_id or new_request_id()
    token = REQUEST_ID.set(chosen)
    try:
        yield chosen
    finally:
        REQUEST_ID.reset(token)


def _fields_of(record: logging.LogRecord) -> Mapping[str, object]:
    found = getattr(record, _FIELDS_ATTRIBUTE, None)
    return found if isinstance(found, dict) else {}


def _timestamp(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, tz=UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


class JsonFormatter(logging.Formatter):
    """Formatter of one JSON object per line: ts, level, service, logger, message, request_id, then
    the fields.
    """

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        """Return the line for one record; a traceback goes into ``exception``."""
        line: dict[str, object] = {
            "ts": _timestamp(record),
            "level": record.levelname,
            "service": self._service,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if request_id := REQUEST_ID.get():
            line["request_id"] = request_id
        for name, value in _fields_of(record).items():
            line.setdefault(name, value)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


class TextFormatter(logging.Formatter):
    """Formatter of readable lines:
    ``2026-01-31T12:00:00.000Z INFO    broker.shell.node  topic created  topic=orders``.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line for one record; a traceback follows on its own lines."""
        values = dict(_fields_of(record))
        if request_id := REQUEST_ID.get():
            values.setdefault("request_id", request_id)
        pairs = " ".join(f"{name}={_as_word(value)}" for name, value in values.items())
        head = f"{_timestamp(record)} {record.levelname:<7} {record.name}  {record.getMessage()}"
        line = f"{head}  {pairs}" if pairs else head
        if record.exc_info:
            line = f"{line}\n{self.formatException(record.exc_info)}"
        return line


def _as_word(value: object) -> str:
    text = str(value)
    return text if text and not any(char in ' "=\n' for char in text) else json.dumps(text)


class WithoutZnodes(logging.Filter):
    """Leaves requests and responses out of kazoo's messages, but for their kind: znodes have the
    keys of users.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True: the line stays."""
        if isinstance(record.args, tuple) and record.msg.startswith(_WITH_ZNODES):
            record.args = tuple(
                one if isinstance(one, int | None) else type(one).__name__ for one in record.args
            )
        return True


def configure_logging(
    service: str,
    *,
    level: str = "INFO",
    log_format: LogFormat = "text",
    stream: TextIO | None = None,
) -> None:
    """Send all logs of this process to ``stream`` (stderr) only. May be called again."""
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonFormatter(service) if log_format == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    for name in _NOISY_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    kazoo = logging.getLogger(_KAZOO)
    kazoo.filters = [WithoutZnodes()]
    logging.captureWarnings(capture=True)
    set_level(level)


def set_level(level: str, logger: str = "") -> None:
    """Set the log level of all loggers (''), or of one logger and those below it.

    Raises ValueError for a level that is not in LEVELS.
    """
    wanted = level.strip().upper()
    if wanted not in LEVELS:
        raise ValueError(f"log level must be one of: {', '.join(LEVELS)}; not {level!r}")
    logging.getLogger(logger or None).setLevel(wanted)


def levels() -> dict[str, str]:
    """Return the level of the root logger (under '') and of every logger with its own level."""
    found = {"": logging.getLevelName(logging.getLogger().level)}
    for name, logger in sorted(logging.Logger.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and logger.level != logging.NOTSET:
            found[name] = logging.getLevelName(logger.level)
    return found
