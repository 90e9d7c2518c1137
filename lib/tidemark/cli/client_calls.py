"""Calls on a cluster: what the client raises becomes a message and an exit code."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from tidemark.cli.failure import CommandError
from tidemark.client.errors import (
    AuthorizationError,
    ClientConfigError,
    ClientError,
    ConnectionLostError,
    RequestTimedOutError,
)
from tidemark.runtime.exit_codes import ExitCode

T = TypeVar("T")

_CODES: tuple[tuple[type[ClientError], ExitCode], ...] = (
    (AuthorizationError, ExitCode.NO_PERMISSION),
    (ClientConfigError, ExitCode.USAGE),
    (ConnectionLostError, ExitCode.UNAVAILABLE),
    (RequestTimedOutError, ExitCode.TEMPORARY),
)


def run(call: Coroutine[Any, Any, T]) -> T:
    """Run a call to its end. Raises CommandError for what the cluster or the network refused."""
    try:
        return asyncio.run(call)
    except ClientError as error:
        raise as_command_error(error) from None
    except BaseExceptionGroup as group:
        raise as_command_error(_first(group)) from None


def as_command_error(error: ClientError) -> CommandError:
    """The client's message, its advice apart, with the exit code that fits."""
    what, advised, hint = error.message.rpartition("; ")
    if not advised:
        what, hint = error.message, ""
    code = next((code for kind, code in _CODES if isinstance(error, kind)), ExitCode.FAILED)
    return CommandError(f"{what} ({error.code.name})", hint=hint, code=code)


def _first(group: BaseExceptionGroup[BaseException]) -> ClientError:
    """The first thing the client said; a group without any is a bug, raised as it is."""
    matching = group.subgroup(ClientError)
    if matching is None:
        raise group
    error: BaseException = matching
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, ClientError), "a subgroup holds nothing else"
    return error
