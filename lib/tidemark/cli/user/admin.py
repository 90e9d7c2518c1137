"""Calls of ``tidemark user``."""

from collections.abc import Iterable, Sequence
from typing import Any

from tidemark.cli.admin_client import open_admin
from tidemark.cli.failure import CommandError
from tidemark.model.errors import ErrorCode

Row = dict[str, Any]


async def list_all(bootstrap: str) -> list[Row]:
    """Return a row for each credential."""
    async with open_admin(bootstrap) as admin:
        users = await admin.describe_users()
    return [
        {"user": name, "mechanism": one.mechanism, "iterations": one.iterations}
        for name, credentials in users.items()
        for one in credentials
    ]


async def set_password(
    bootstrap: str, name: str, password: str, mechanisms: Iterable[str], *, must_exist: bool
) -> None:
    """Set a password. Raises CommandError if the user exists, or with ``must_exist`` does not."""
    async with open_admin(bootstrap) as admin:
        exists = name in await admin.describe_users()
        if exists != must_exist:
            state = "exists already" if exists else "does not exist"
            command = "set-password" if exists else "add"
            raise CommandError(
                f"user {name!r} {state} ({_code(exists=exists).name})",
                address=bootstrap,
                hint=f"tidemark user {command} {name}",
            )
        await admin.set_passwords({name: password}, mechanisms=tuple(mechanisms))


def _code(*, exists: bool) -> ErrorCode:
    return ErrorCode.DUPLICATE_RESOURCE if exists else ErrorCode.RESOURCE_NOT_FOUND


async def remove(bootstrap: str, names: Sequence[str]) -> None:
    """Delete users with all their credentials."""
    async with open_admin(bootstrap) as admin:
        await admin.delete_users(names)
