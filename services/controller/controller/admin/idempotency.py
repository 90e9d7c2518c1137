"""IdempotencyStore: answers to requests with an Idempotency-Key, in ZooKeeper.

A key is claimed before the request is carried out, so that it is carried out once, at whatever
controller it arrives. Keys are kept for a day at least.

/idempotency/<day>/<digest>   digest of the request; its answer once there is one
"""

import base64
import hashlib
from contextlib import suppress
from typing import Any, Final, NamedTuple

from tidemark.runtime import zk_paths
from tidemark.runtime.clock import Clock
from tidemark.runtime.zk_session import (
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    ZkError,
    ZkSession,
)

from controller.admin.errors import AdminError, bad_value, conflict, try_again

KEY_CHARS_MAX: Final = 255
ANSWER_BYTES_MAX: Final = 524_288
KEYS_PER_DAY_MAX: Final = 100_000
_DAY_MS: Final = 86_400_000
_PRUNED_MAX: Final = 100


class Answer(NamedTuple):
    """Answer that is given again."""

    status: int
    headers: dict[str, str]
    body: bytes


class IdempotencyStore:
    """Claims of keys, and their answers. Raises AdminError if ZooKeeper cannot be reached."""

    def __init__(self, session: ZkSession, clock: Clock) -> None:
        self._session = session
        self._clock = clock

    async def claim(self, principal: str, path: str, key: str, body: bytes) -> Answer | str:
        """Claim a key. Return the earlier answer, or the path of the claim: carry the request out,
        and settle it. Raises AdminError if the key was used for another request, or is in use.
        """
        if not key or len(key) > KEY_CHARS_MAX:
            raise bad_value(
                f"an Idempotency-Key has 1 to {KEY_CHARS_MAX} characters", field="Idempotency-Key"
            )
        name = hashlib.sha256(f"{principal}\0{path}\0{key}".encode()).hexdigest()[:40]
        request = hashlib.sha256(body).hexdigest()
        today = self._clock.wall_ms() // _DAY_MS
        try:
            earlier = await self._earlier(today, name)
            if earlier is None:
                return await self._create(today, name, request)
        except ZkError as problem:
            raise try_again(f"ZooKeeper did not answer: {problem}") from None
        return _answer(earlier, request)

    async def _earlier(self, today: int, name: str) -> dict[str, Any] | None:
        for day in (today, today - 1):
            path = f"{zk_paths.IDEMPOTENCY}/{day}/{name}"
            try:
                data, _ = await self._session.get(path)
            except NoNodeError:
                continue
            return zk_paths.decode(path, data)
        return None

    async def _create(self, today: int, name: str, request: str) -> str:
        parent = f"{zk_paths.IDEMPOTENCY}/{today}"
        path = f"{parent}/{name}"
        await self._session.ensure_path(parent)
        await self._prune(today)
        stat = await self._session.exists(parent)
        if stat is not None and stat.child_count >= KEYS_PER_DAY_MAX:
            raise AdminError(
                429, 42901, f"{KEYS_PER_DAY_MAX} idempotency keys were used today", field=None
            )
        try:
            await self._session.create(path, zk_paths.encode({"request": request, "answer": None}))
        except NodeExistsError:
            raise _in_use() from None
        return path

    async def settle(self, path: str, body: bytes, answer: Answer | None) -> None:
        """Keep the answer of a claim; without one, or if it is too long, free the key."""
        try:
            if answer is None or len(answer.body) > ANSWER_BYTES_MAX:
                await self._session.delete(path)
                return
            content = {
                "request": hashlib.sha256(body).hexdigest(),
                "answer": {
                    "status": answer.status,
                    "headers": answer.headers,
                    "body": base64.b64encode(answer.body).decode(),
                },
            }
            await self._session.set(path, zk_paths.encode(content))
        except ZkError:
            return  # the request was carried out; a repetition of it is refused as in use

    async def _prune(self, today: int) -> None:
        """Delete the keys of past days, a bounded number at a time."""
        days, _ = await self._session.children(zk_paths.IDEMPOTENCY)
        for day in days:
            if int(day) < today - 1:
                # Another controller may delete the same keys, or find one more, at the same time.
                with suppress(NoNodeError, NotEmptyError):
                    await self._delete_some(f"{zk_paths.IDEMPOTENCY}/{day}")

    async def _delete_some(self, parent: str) -> None:
        names, _ = await self._session.children(parent)
        for name in names[:_PRUNED_MAX]:
            await self._session.delete(f"{parent}/{name}")
        if len(names) <= _PRUNED_MAX:
            await self._session.delete(parent)


def _answer(earlier: dict[str, Any], request: str) -> Answer:
    if earlier["request"] != request:
        raise AdminError(
            422,
            42201,
            "the Idempotency-Key was used for another request",
            field="Idempotency-Key",
            remedy="use a new key for each request",
        )
    answer = earlier["answer"]
    if answer is None:
        raise _in_use()
    return Answer(answer["status"], answer["headers"], base64.b64decode(answer["body"]))


def _in_use() -> AdminError:
    return conflict(
        "a request with this Idempotency-Key is under way, or ended without an answer",
        field="Idempotency-Key",
        remedy="look if it was carried out; repeat it with a new key if it was not",
    )
