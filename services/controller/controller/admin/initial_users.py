"""The first users of a cluster, from a file: brokers whose listeners all want a login need a user
before anybody can log in to make one. Kafka has ``kafka-storage format --add-scram`` for this.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.scram import (
    ITERATIONS_DEFAULT,
    SALT_BYTES,
    ScramCredential,
    ScramMechanism,
    check_user_name,
    credential_from,
    salted_password,
)
from tidemark.runtime.exit_codes import ExitCode
from tidemark.runtime.service import ServiceError
from tidemark.runtime.telemetry import fields

from controller.core.effects import UserResults
from controller.core.inputs import AlterUsers, NewCredential
from controller.shell.node import ControllerNode

log = logging.getLogger(__name__)

USERS_MAX: Final = 100
_TIMEOUT_MS: Final = 15_000
_AGAIN_S: Final = 1.0
_KEY: Final = "initial.users.file"


def initial_users(path: str, node: ControllerNode) -> dict[str, Callable[[], Awaitable[None]]]:
    """Return the duty that makes the users of a file, read now; nothing without a file. Raises
    ServiceError.
    """
    if not path:
        return {}
    credentials = read_users(Path(path))

    async def run() -> None:
        while True:
            await node.active.wait()
            if await make_first_users(node, credentials):
                await node.standby.wait()
            else:
                await asyncio.sleep(_AGAIN_S)

    return {"initial-users": run}


async def make_first_users(node: ControllerNode, credentials: tuple[NewCredential, ...]) -> bool:
    """Make the users if the cluster has none. Return False if it should be tried again."""
    image = node.image
    if image is None or image.users:
        return image is not None
    reply = await node.ask(lambda header: AlterUsers(header, (), credentials), _TIMEOUT_MS)
    names = sorted({one.user for one in credentials})
    results = reply.result.users if isinstance(reply.result, UserResults) else ()
    problems = [one.message or one.error.name for one in results if one.error]
    if reply.error is ErrorCode.NONE and not problems:
        log.info("first users made", extra=fields(users=names))
        return True
    reason = ", ".join(problems) or reply.message or reply.error.name
    log.warning("first users not made", extra=fields(users=names, reason=reason))
    return False


def read_users(path: Path) -> tuple[NewCredential, ...]:
    """Return the credentials of a file with lines ``user:password``. Empty lines, and those that
    begin with ``#``, are left out. Raises ServiceError, which never has a password.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        raise _refused(f"cannot read {path}: {problem}") from None
    passwords: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        user, colon, password = line.partition(":")
        if not colon or not password:
            raise _refused(f"line {number} of {path} is not user:password")
        if user in passwords:
            raise _refused(f"line {number} of {path} has the user {user!r} again")
        try:
            check_user_name(user)
        except TidemarkError as problem:
            raise _refused(f"line {number} of {path}: {problem.message}") from None
        passwords[user] = password
    if not 0 < len(passwords) <= USERS_MAX:
        raise _refused(f"{path} has {len(passwords)} users, not 1 to {USERS_MAX}")
    return tuple(
        NewCredential(user, _credential(mechanism, password))
        for user, password in passwords.items()
        for mechanism in ScramMechanism
    )


def _credential(mechanism: ScramMechanism, password: str) -> ScramCredential:
    salt = secrets.token_bytes(SALT_BYTES)
    salted = salted_password(mechanism, password, salt, ITERATIONS_DEFAULT)
    return credential_from(mechanism, salted, salt, ITERATIONS_DEFAULT)


def _refused(problem: str) -> ServiceError:
    return ServiceError(f"{_KEY}: {problem}", ExitCode.CONFIG)
