"""Users of SCRAM in the admin client (KIP-554)."""

import secrets
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidemark.client.admin import answers as admin_answers
from tidemark.client.admin.calls import AdminCalls
from tidemark.client.errors import error_for
from tidemark.kafka.apis import ApiKey
from tidemark.model.errors import ErrorCode
from tidemark.model.scram import (
    ITERATIONS_DEFAULT,
    MECHANISM_NAMES,
    SALT_BYTES,
    salted_password,
)


class CredentialDescription(NamedTuple):
    """Credential of a user: ``SCRAM-SHA-256`` and its iterations."""

    mechanism: str
    iterations: int


_NAMES = {int(number): name for name, number in MECHANISM_NAMES.items()}


class UserAdmin(AdminCalls):
    """Methods of Admin for users that log in with SCRAM."""

    async def describe_users(
        self, names: Iterable[str] | None = None
    ) -> dict[str, tuple[CredentialDescription, ...]]:
        """Return the credentials of users (None: all users), never keys or salts. Raises
        ClientError for a user that does not exist.
        """
        named = None if names is None else [{"name": name} for name in names]
        answer = await self._ask_any(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": named})
        if answer.error_code != ErrorCode.NONE:
            raise error_for(answer.error_code, "describing users failed")
        found = admin_answers.by_name(answer.results, lambda each: each.user, "describing user {}")
        return {
            name: tuple(
                CredentialDescription(_NAMES.get(one.mechanism, str(one.mechanism)), one.iterations)
                for one in each.credential_infos
            )
            for name, each in sorted(found.items())
        }

    async def set_passwords(
        self,
        passwords: Mapping[str, str],
        *,
        mechanisms: Iterable[str] = tuple(MECHANISM_NAMES),
        iterations: int = ITERATIONS_DEFAULT,
    ) -> None:
        """Set passwords by user, with a credential for each mechanism. A password does not leave
        this process; the brokers get a salted hash.
        """
        upsertions = []
        for name, password in passwords.items():
            for mechanism in mechanisms:
                number, salt = MECHANISM_NAMES[mechanism], secrets.token_bytes(SALT_BYTES)
                upsertions.append(
                    {
                        "name": name,
                        "mechanism": int(number),
                        "iterations": iterations,
                        "salt": salt,
                        "salted_password": salted_password(number, password, salt, iterations),
                    }
                )
        await self._alter_users({"upsertions": upsertions}, "setting the password of {}")

    async def delete_users(self, names: Iterable[str]) -> None:
        """Delete users with all their credentials. Raises ClientError for one that does not
        exist.
        """
        described = await self.describe_users(names)
        deletions = [
            {"name": name, "mechanism": int(MECHANISM_NAMES[one.mechanism])}
            for name, credentials in described.items()
            for one in credentials
        ]
        if deletions:
            await self._alter_users({"deletions": deletions}, "deleting user {}")

    async def _alter_users(self, fields: Mapping[str, object], doing: str) -> None:
        wanted = {"deletions": [], "upsertions": [], **fields}
        answer = await self._ask_any(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, wanted)
        admin_answers.by_name(answer.results, lambda each: each.user, doing)
