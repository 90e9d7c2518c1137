"""ZooKeeper as an onlooker sees it: who has which session, and how to end one from outside."""

import json
import logging
from typing import Any, Final

from chaos.zk_password import session_password
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.retry import KazooRetry
from tidemark.model.metadata import SHARE, TXN
from tidemark.runtime import zk_paths

_ANSWER_S: Final = 2.0
_TAKE_OVER_S: Final = 5.0
_TRIES: Final = 10
# The connection broke, or the znode is not there: look again later.
_UNANSWERED: Final = (KazooException, KazooTimeoutError)


class Onlooker:
    """A client that only reads. Everything answers None, or nothing, while ZooKeeper does not."""

    def __init__(self, connect: str) -> None:
        self._connect = connect
        logging.getLogger("kazoo").setLevel(logging.CRITICAL)  # it loses connections all the time
        retry = KazooRetry(max_tries=-1, delay=0.1, backoff=1, max_delay=0.5)
        self._client = KazooClient(hosts=connect, timeout=3, connection_retry=retry)
        self._client.start(timeout=_TAKE_OVER_S)

    def stop(self) -> None:
        """End the session."""
        self._client.stop()
        self._client.close()

    def controller_epoch(self) -> int | None:
        """As it is in ZooKeeper."""
        found = self._get(zk_paths.CONTROLLER_EPOCH)
        return None if found is None else int(found[0]["controller_epoch"])

    def active_controller(self) -> tuple[int, int] | None:
        """Its id and its session."""
        found = self._get(zk_paths.CONTROLLER)
        return None if found is None else (int(found[0]["controller_id"]), found[1])

    def broker_sessions(self) -> dict[str, int]:
        """Incarnation (``<id>-<hex>``) to session, of every live znode."""
        return self._sessions(zk_paths.LIVE_BROKERS)

    def coordinator_sessions(self) -> dict[str, int]:
        """The same of txn-coordinators."""
        return self._sessions(zk_paths.live_coordinators(TXN))

    def share_coordinator_sessions(self) -> dict[str, int]:
        """The same of share-coordinators."""
        return self._sessions(zk_paths.live_coordinators(SHARE))

    def shard_owners(self) -> list[int]:
        """The id of the txn-coordinator that owns each shard; -1 where none does."""
        found = self._get(zk_paths.shards(TXN))
        return [] if found is None else [int(owner[0]) for owner in found[0]["owners"]]

    def owner_of(self, shard: int) -> int | None:
        """Of whom the znode says so."""
        owners = self.shard_owners()
        return owners[shard] if shard < len(owners) and owners[shard] >= 0 else None

    def expire(self, session_id: int) -> bool:
        """Take a session over and close it; whether it is gone.

        Its owner reconnects at once and may take it back before it is closed: then again.
        """
        for _ in range(_TRIES):
            thief = KazooClient(
                hosts=self._connect,
                timeout=_TAKE_OVER_S,
                client_id=(session_id, session_password(session_id)),
            )
            try:
                thief.start(timeout=_TAKE_OVER_S)
                got = thief.client_id is not None and thief.client_id[0] == session_id
            except KazooTimeoutError:
                got = True
            finally:
                thief.stop()
                thief.close()
            if not got:
                return True  # the server gave another one: that one is no more
        return False

    def _sessions(self, parent: str) -> dict[str, int]:
        try:
            listed = self._client.get_children_async(parent).get(timeout=_ANSWER_S)
        except _UNANSWERED:
            return {}
        found = {one: self._get(f"{parent}/{one}") for one in listed}
        return {one: content[1] for one, content in found.items() if content is not None}

    def _get(self, path: str) -> tuple[dict[str, Any], int] | None:
        try:
            data, stat = self._client.get_async(path).get(timeout=_ANSWER_S)
        except _UNANSWERED:
            return None
        return json.loads(data), int(stat.ephemeralOwner)
