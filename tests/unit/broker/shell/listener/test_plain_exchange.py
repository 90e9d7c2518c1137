import asyncio

import pytest
from broker.core.login import LoginFailedError, Step
from broker.shell.listener.plain_exchange import PlainExchange
from tidemark.model.scram import ScramMechanism, credential_from, salted_password
from tidemark.runtime.access.password_checks import CHECKS_MAX, PasswordChecks, WrongPasswordError

SHA_256 = ScramMechanism.SCRAM_SHA_256
SALT = bytes(12)
KEPT = credential_from(SHA_256, salted_password(SHA_256, "pencil", SALT, 4_096), SALT, 4_096)


def checks() -> PasswordChecks:
    return PasswordChecks(lambda: ({"alice": (KEPT,)}, b"secret"))


async def login(token: bytes) -> Step:
    return await PlainExchange(checks()).step(token).work()


@pytest.mark.parametrize("token", [b"\0alice\0pencil", b"alice\0alice\0pencil"])
def test_a_user_with_the_password_gets_in(token: bytes) -> None:
    assert asyncio.run(login(token)) == (b"", "alice", 0)


@pytest.mark.parametrize(
    "token",
    [
        b"\0alice\0pen",
        b"\0nobody\0pencil",
        b"bob\0alice\0pencil",
        b"\0alice\0",
        b"\0\0pencil",
        b"alice\0pencil",
        b"\0alice\0pen\0cil",
        b"\0alice\0\xff",
        b"",
    ],
)
def test_anything_else_is_refused(token: bytes) -> None:
    with pytest.raises(LoginFailedError):
        asyncio.run(login(token))


def test_no_more_passwords_wait_than_are_bounded() -> None:
    async def flood() -> list[BaseException | None]:
        shared = checks()
        tries = (shared.check("alice", "pencil") for _ in range(CHECKS_MAX + 1))
        return await asyncio.gather(*tries, return_exceptions=True)

    refused = [one for one in asyncio.run(flood()) if isinstance(one, WrongPasswordError)]
    assert len(refused) == 1
