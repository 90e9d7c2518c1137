"""Levels of loggers as configuration: DescribeConfigs and IncrementalAlterConfigs (KIP-412)."""

import logging
from collections.abc import Iterator

import pytest
from tidemark.kafka.apis import ApiKey
from tidemark.model.errors import ErrorCode
from unit.broker.shell.kafka.conftest import Ask

LOGGER = 8
SET, DELETE, APPEND = 0, 1, 2


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    one = logging.getLogger("broker.loggers.test")
    yield one
    one.setLevel(logging.NOTSET)


def shown(ask: Ask) -> dict[str, tuple[str, int, int]]:
    asked = {"resource_type": LOGGER, "resource_name": "1", "configuration_keys": None}
    fields = {"resources": [asked], "include_synonyms": True}
    (result,) = ask(ApiKey.DESCRIBE_CONFIGS, fields).results
    assert (result.error_code, [one for one in result.configs if one.synonyms]) == (0, [])
    return {one.name: (one.value, one.config_source, one.config_type) for one in result.configs}


def alter(ask: Ask, *changes: tuple[str, int, str | None], only: bool = False) -> tuple[int, str]:
    configs = [
        {"name": name, "config_operation": operation, "value": value}
        for name, operation, value in changes
    ]
    asked = {"resource_type": LOGGER, "resource_name": "1", "configs": configs}
    fields = {"resources": [asked], "validate_only": only}
    (result,) = ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, fields).responses
    return result.error_code, result.error_message or ""


def test_a_level_is_set_and_removed(ask: Ask, logger: logging.Logger) -> None:
    assert alter(ask, (logger.name, SET, "TRACE")) == (0, "")
    assert logger.isEnabledFor(5)
    assert shown(ask)[logger.name] == ("TRACE", 6, 0)
    assert alter(ask, (logger.name, DELETE, None)) == (0, "")
    assert shown(ask)[logger.name] == shown(ask)["root"]


def test_a_change_that_is_only_validated_changes_nothing(ask: Ask, logger: logging.Logger) -> None:
    assert alter(ask, (logger.name, SET, "FATAL"), only=True) == (0, "")
    assert logger.level == logging.NOTSET


@pytest.mark.parametrize(
    ("name", "operation", "value", "error", "words"),
    [
        ("no.such", SET, "INFO", ErrorCode.INVALID_CONFIG, "Logger no.such does not exist!"),
        ("root", SET, "LOUD", ErrorCode.INVALID_CONFIG, "DEBUG, ERROR, FATAL, INFO, TRACE, WARN"),
        ("root", SET, None, ErrorCode.INVALID_CONFIG, "not a supported log level"),
        ("root", DELETE, None, ErrorCode.INVALID_REQUEST, "Removing the log level of the root"),
        ("root", APPEND, "INFO", ErrorCode.INVALID_REQUEST, "APPEND operation is not allowed"),
        ("root", 9, "INFO", ErrorCode.INVALID_REQUEST, "Unknown operation type 9 is not allowed"),
    ],
)
def test_what_is_refused_leaves_every_level(
    ask: Ask,
    logger: logging.Logger,
    name: str,
    operation: int,
    value: str | None,
    error: ErrorCode,
    words: str,
) -> None:
    code, message = alter(ask, (logger.name, SET, "ERROR"), (name, operation, value))
    assert (code, logger.level) == (error, logging.NOTSET)
    assert words in message


def test_the_old_alter_has_no_loggers(ask: Ask) -> None:
    asked = {"resource_type": LOGGER, "resource_name": "1", "configs": []}
    (result,) = ask(ApiKey.ALTER_CONFIGS, {"resources": [asked]}).responses
    assert result.error_message == "Unsupported resource type: 8"
