"""Levels of this broker's loggers, as configuration of the resource type BROKER_LOGGER (KIP-412).

Names are those of Python's loggers; the root logger is ``root``. Levels have log4j's names. A level
is in force until it is removed or the process ends; it is not stored.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Final

from tidemark.kafka.long_tail import Struct
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import BrokerId

ROOT: Final = "root"
SET: Final = 0
DELETE: Final = 1
_NODE_ID: Final = re.compile(r"-?[0-9]{1,10}")
_REFUSED_OPERATIONS: Final[Mapping[int, str]] = {2: "APPEND", 3: "SUBTRACT"}
_LEVELS: Final[Mapping[str, int]] = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def logger_levels() -> dict[str, str]:
    """Return the level in force of every logger and package of loggers, sorted by name."""
    names = logging.Logger.manager.loggerDict
    return {name: _level_name(_logger(name)) for name in sorted({ROOT, *names})}


def check_broker(resource_name: str, broker_id: BrokerId) -> None:
    """Raise TidemarkError INVALID_REQUEST unless the resource is this broker."""
    if _NODE_ID.fullmatch(resource_name) is None:
        words = f"Node id must be an integer, but it is: {resource_name}"
        raise TidemarkError(ErrorCode.INVALID_REQUEST, words)
    if int(resource_name) != broker_id:
        words = f"Unexpected node id. Expected {broker_id}, but received {int(resource_name)}"
        raise TidemarkError(ErrorCode.INVALID_REQUEST, words)


def alter_levels(changes: Sequence[Struct], *, validate_only: bool) -> None:
    """Set or remove levels of IncrementalAlterConfigs: all of them, or none if one is refused.

    Raises TidemarkError with Kafka's errors and messages.
    """
    for change in changes:
        _check(change)
    if validate_only:
        return
    for change in changes:
        level = _LEVELS[change.value] if change.config_operation == SET else logging.NOTSET
        _logger(change.name).setLevel(level)


def _check(change: Struct) -> None:
    operation = change.config_operation
    if operation not in (SET, DELETE):
        what = _REFUSED_OPERATIONS.get(operation)
        words = f"{what} operation" if what else f"Unknown operation type {operation}"
        raise TidemarkError(
            ErrorCode.INVALID_REQUEST, f"{words} is not allowed for the BROKER_LOGGER resource"
        )
    if change.name not in logger_levels():
        raise TidemarkError(ErrorCode.INVALID_CONFIG, f"Logger {change.name} does not exist!")
    if operation == DELETE and change.name == ROOT:
        words = f"Removing the log level of the {ROOT} logger is not allowed"
        raise TidemarkError(ErrorCode.INVALID_REQUEST, words)
    if operation == SET and change.value not in _LEVELS:
        raise TidemarkError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {change.name} to {change.value} as it is not a supported"
            f" log level. Valid log levels are {', '.join(sorted(_LEVELS))}",
        )


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)


def _level_name(logger: logging.Logger) -> str:
    """Return the highest of log4j's levels that is not above the logger's level in force."""
    number = logger.getEffectiveLevel()
    fitting = [name for name, level in _LEVELS.items() if level <= number]
    return fitting[-1] if fitting else "TRACE"
