"""Logins of gRPC callers by certificates: a connection is one login, however many calls it has."""

from collections import OrderedDict
from typing import Any, Final

import grpc

from tidemark.model.authorization import PROCESS
from tidemark.model.metadata import SSL
from tidemark.protocol.audit import Login, NoteLogin
from tidemark.runtime.access.grpc_logins import CountsLogins
from tidemark.runtime.peers import FindsPeers, Peer, RefusedPeerError, host_of

GRPC_OF_PROCESSES: Final = "grpc.listen"
"""Name of the gRPC server for processes, as the audit log has it; it is no listener."""
_CONNECTIONS_KEPT: Final = 4_096
_USER: Final = "User:"


class CertificateLogins:
    """Check of callers with certificates, which notes their logins. Processes of the cluster are
    no clients, and are not noted.
    """

    def __init__(
        self,
        peers: FindsPeers,
        listener: str,
        note_login: NoteLogin,
        counts: CountsLogins | None = None,
    ) -> None:
        """``peers`` finds the callers. ``counts``: None for callers that are not counted."""
        self._peers = peers
        self._listener = listener
        self._note_login = note_login
        self._counts = counts
        self._noted: OrderedDict[tuple[str, str], None] = OrderedDict()

    async def peer_of(self, context: Any) -> Peer:
        """Return the caller. Raises RefusedPeerError, also if a login must be noted and cannot
        be.
        """
        address = str(context.peer())
        try:
            peer = await self._peers.peer_of(context)
        except RefusedPeerError as refused:
            if self._counts is not None:
                self._counts.failed += 1
            failed = Login("", host_of(address), self._listener, SSL, succeeded=False)
            self._note_login(failed._replace(reason=str(refused)))
            raise
        if peer.principal != PROCESS:
            self._note(address, peer.principal)
        return peer

    def _note(self, address: str, principal: str) -> None:
        """Note the first call of a connection; of one that has been idle while thousands of others
        called, perhaps a later one too.
        """
        connection = (address, principal)
        if connection in self._noted:
            self._noted.move_to_end(connection)
            return
        user = principal.removeprefix(_USER)
        if not self._note_login(Login(user, host_of(address), self._listener, SSL, succeeded=True)):
            raise RefusedPeerError("the audit log is full", grpc.StatusCode.UNAVAILABLE)
        if self._counts is not None:
            self._counts.succeeded += 1
        self._noted[connection] = None
        if len(self._noted) > _CONNECTIONS_KEPT:
            self._noted.popitem(last=False)
