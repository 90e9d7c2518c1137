"""Calls to a cluster, with the client's errors as messages and exit codes."""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from tidemark.cli.failure import CommandError
from tidemark.client.errors import (
    AuthenticationError,
    AuthorizationError,
    ClientConfigError,
    ClientError,
    ConnectionLostError,
    RequestTimedOutError,
)
from tidemark.model.errors import ErrorCode
from tidemark.runtime.exit_codes import ExitCode

T = TypeVar("T")

_CODES: tuple[tuple[type[ClientError], ExitCode], ...] = (
    (AuthenticationError, ExitCode.NO_PERMISSION),
    (AuthorizationError, ExitCode.NO_PERMISSION),
    (ClientConfigError, ExitCode.USAGE),
    (ConnectionLostError, ExitCode.UNAVAILABLE),
    (RequestTimedOutError, ExitCode.TEMPORARY),
)


class Explanation(NamedTuple):
    """Likely cause of an error, and the command to run next."""

    cause: str
    command: str


_HEALTH = "tidemark cluster health"
_EXPLANATIONS: Final[Mapping[ErrorCode, Explanation]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Explanation(
        "it was never created, was deleted, or is spelt differently",
        "tidemark topic list, or create the topic first: tidemark topic create",
    ),
    ErrorCode.INVALID_REPLICATION_FACTOR: Explanation(
        "fewer brokers are alive than replicas were asked for", "tidemark cluster brokers"
    ),
    ErrorCode.INVALID_TOPIC_EXCEPTION: Explanation(
        "no topic can have this name, or one that differs in '.' and '_' alone exists",
        "letters, digits, '.', '_' and '-', at most 249 of them; tidemark topic list",
    ),
    ErrorCode.INVALID_PARTITIONS: Explanation(
        "a topic has at least one partition, and never fewer than before", "tidemark topic describe"
    ),
    ErrorCode.INVALID_REGULAR_EXPRESSION: Explanation(
        "the pattern is not in RE2's syntax", "'^orders-.*', quoted for the shell"
    ),
    ErrorCode.SECURITY_DISABLED: Explanation(
        "the brokers run without authorizer.class.name: every client may do everything",
        "set it and super.users at every broker, as docs/operating/security.md describes",
    ),
    ErrorCode.LEADER_NOT_AVAILABLE: Explanation("no replica in sync is alive", _HEALTH),
    ErrorCode.NOT_CONTROLLER: Explanation("no controller is active at the moment", _HEALTH),
    ErrorCode.NOT_ENOUGH_REPLICAS: Explanation(
        "fewer replicas are in sync than min.insync.replicas", _HEALTH
    ),
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Explanation(
        "the coordinator moves, loads, or its partition has no leader", _HEALTH
    ),
    ErrorCode.REQUEST_TIMED_OUT: Explanation(
        "a broker is overloaded, paused or cut off; the request may still be carried out",
        f"{_HEALTH}, or a longer -X timeout-ms=120000",
    ),
    ErrorCode.GROUP_ID_NOT_FOUND: Explanation(
        "it never committed, was deleted, or its offsets expired", "tidemark group list"
    ),
    ErrorCode.NON_EMPTY_GROUP: Explanation(
        "consumers of the group still run, or their sessions have not ended yet",
        "tidemark group describe GROUP --members",
    ),
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: Explanation(
        "it never wrote, or expired (transactional.id.expiration.ms)", "tidemark txn list"
    ),
    ErrorCode.TOPIC_ALREADY_EXISTS: Explanation(
        "an earlier command or a client created it", "tidemark topic describe, or --if-not-exists"
    ),
    ErrorCode.INVALID_CONFIG: Explanation(
        "the name is misspelt, or the value is out of its bounds", "tidemark config list"
    ),
    ErrorCode.BROKER_ID_NOT_REGISTERED: Explanation(
        "no broker of this id has joined the cluster, or it is unregistered already",
        "tidemark cluster brokers",
    ),
    ErrorCode.UNSUPPORTED_VERSION: Explanation(
        "the broker's release is older, or the group is of another type",
        "tidemark cluster brokers",
    ),
}
_ADDRESSES: Final = "tidemark profile show, for the address in use; -b HOST:PORT for another one"
_CONNECTION_CAUSES: Final[Mapping[str, Explanation]] = {
    "refused": Explanation(
        "nothing listens there: the brokers do not run, or listen at other ports",
        f"tidemark dev status; {_ADDRESSES}",
    ),
    "certificate is not accepted": Explanation(
        "another authority signed it, or it is for another host name",
        "ssl.ca.location, and the host name in the address; tidemark profile show",
    ),
    "TLS handshake failed": Explanation(
        "the listener does not speak TLS, or wants a certificate from the client",
        "security.protocol, ssl.certificate.location; tidemark profile show",
    ),
    "within": Explanation("the host is down, or a firewall drops packets", _ADDRESSES),
    "not known": Explanation("the host name is misspelt, or DNS does not have it", _ADDRESSES),
    "does not speak": Explanation(
        "another service listens there, or the listener needs TLS (security.protocol)", _ADDRESSES
    ),
    "closed the connection": Explanation(
        "the broker stopped, the listener has another security.protocol, or another service"
        " listens there",
        _ADDRESSES,
    ),
    "unreachable": Explanation("there is no route to the host", _ADDRESSES),
}


def run(call: Coroutine[Any, Any, T], *, api: str = "", address: str = "") -> T:
    """Run a call to its end; ``api`` and ``address`` are for messages about failures that do not
    name theirs. Raises CommandError for errors of the cluster or the network.
    """
    try:
        return asyncio.run(call)
    except ClientError as error:
        raise as_command_error(error, api=api, address=address) from None
    except BaseExceptionGroup as group:
        raise as_command_error(_first(group), api=api, address=address) from None


def as_command_error(error: ClientError, *, api: str = "", address: str = "") -> CommandError:
    """Return what failed, where, why, and what to try, with an exit code."""
    explained = _explanation(error)
    return CommandError(
        f"{error.what} ({error.code.name})",
        address=error.where or address,
        api=getattr(error, "tidemark_api", api),
        cause=explained.cause,
        hint=explained.command,
        code=next((code for kind, code in _CODES if isinstance(error, kind)), ExitCode.FAILED),
    )


def _explanation(error: ClientError) -> Explanation:
    if error.code is ErrorCode.SASL_AUTHENTICATION_FAILED:
        return Explanation(
            "the password is wrong, or the user has no credential for sasl.mechanism",
            "sasl.username, sasl.password.file, sasl.mechanism; tidemark profile show",
        )
    if isinstance(error, AuthorizationError):
        return Explanation("the principal lacks the permission", error.advice)
    if isinstance(error, ConnectionLostError):
        for words, explanation in _CONNECTION_CAUSES.items():
            if words in error.what:
                return explanation
    if isinstance(error, ClientConfigError) and not error.where:
        return Explanation("", error.advice or "the addresses and settings of the command")
    return _EXPLANATIONS.get(error.code, Explanation("", error.advice))


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
