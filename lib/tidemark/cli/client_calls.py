"""Calls to a cluster, with the client's errors as messages and exit codes."""

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
    """Run a call to its end. Raises CommandError for errors of the cluster or the network."""
    try:
        return asyncio.run(call)
    except ClientError as error:
        raise as_command_error(error) from None
    except BaseExceptionGroup as group:
        raise as_command_error(_first(group)) from None


def as_command_error(error: ClientError) -> CommandError:
    """Return the client's message, with its advice as the hint, and an exit code."""
    what, advised, hint = error.message.rpartition("; ")
    if not advised:
        what, hint = error.message, ""
    code = next((code for kind, code in _CODES if isinstance(error, kind)), ExitCode.FAILED)
    return CommandError(f"{what} ({error.code.name})", hint=hint, code=code)


def _first(group: BaseExceptionGroup[BaseException]) -> ClientError:
    """Return the client's first error; a group without one is a bug and is raised unchanged."""
    matching = group.subgroup(ClientError)
    if matching is None:
        raise group
    error: BaseException = matching
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, ClientError), "a subgroup holds nothing else"
    return error
