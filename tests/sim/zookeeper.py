"""A ZooKeeper ensemble and its clients, on the simulator's clock and dice; no I/O.

    zookeeper = SimZooKeeper(schedule, dice)
    session = zookeeper.connect("broker-1")
    session.submit(Multi((Check("/epoch", 3), Create("/a", b""))), on_done=heard)

Commits are entries of one log. Each server has its own tree, which follows the log, with a delay if
a fault sets one. Reads and watches use the server's tree; writes and ``sync`` bring it up to
date. A connection keeps the order in both directions. If it breaks, the dice decide whether a
request under way took effect.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from tidemark.runtime.zk_session import (
    Check,
    Create,
    Delete,
    Op,
    SessionLostError,
    SessionState,
    SetData,
    UnknownOutcomeError,
    ZkError,
    ZnodeStat,
)

from sim.dice import Dice
from sim.network import Schedule
from sim.zk_connection import Connection, Server, SessionRecord
from sim.zk_requests import (
    Answer,
    Children,
    Close,
    Exists,
    Get,
    Link,
    Multi,
    OnDone,
    Ping,
    Request,
    Sync,
)
from sim.znode_tree import (
    Draft,
    Transaction,
    Tree,
    Znode,
    require_znode,
)

RECONNECT_MS: Final = 100


class SimZooKeeper:
    """The ensemble. Its public methods are faults; ``stop`` ends its timers."""

    def __init__(
        self,
        schedule: Schedule,
        dice: Dice,
        *,
        servers: int = 3,
        link: Link | None = None,
        tick_ms: int = 500,
    ) -> None:
        """``tick_ms`` is the precision of expiry: late by up to one tick, never early."""
        self.schedule = schedule
        self.dice = dice
        self.servers = [Server(f"zk-{number}") for number in range(1, servers + 1)]
        self.sessions: dict[int, SessionRecord] = {}
        self.on_commit: Callable[[Transaction], None] = lambda _: None
        self.zxid = 0
        self._log: list[Transaction] = []
        self._link = link or (lambda _source, _target: dice.between(0, 3))
        self._tick_ms = tick_ms
        self._next_session = 1
        self._is_stopped = False

    # -- for tests and checkers

    @property
    def tree(self) -> Tree:
        """Return the committed tree. Not to be changed."""
        server = self.servers[0]
        self._catch_up(server)
        return server.tree

    @property
    def has_quorum(self) -> bool:
        """Return True if commits and connections are possible."""
        return 2 * sum(server.is_up for server in self.servers) > len(self.servers)

    def connect(self, host: str, *, timeout_ms: int = 9_000) -> "SimSession":
        """Return a client on ``host``, which connects and reconnects by itself."""
        return SimSession(self, host, timeout_ms)

    def travel_ms(self, source: str, target: str) -> int | None:
        """Return the travel time of a message sent now; None: lost."""
        return self._link(source, target)

    # -- faults

    def stop_server(self, number: int) -> None:
        """Stop a server; its connections break. Without a quorum all connections do."""
        server = self.servers[number]
        server.is_up = False
        self._break_connections(server)
        if not self.has_quorum:
            for other in self.servers:
                self._break_connections(other)

    def start_server(self, number: int) -> None:
        """Start a server. The new leader gives every session its whole time-out."""
        had_quorum = self.has_quorum
        self.servers[number].is_up = True
        self._catch_up(self.servers[number])
        if not had_quorum and self.has_quorum:
            self._touch_all()

    def elect(self) -> None:
        """Elect a leader: every connection breaks, every session gets its whole time-out."""
        for server in self.servers:
            self._break_connections(server)
        self._touch_all()

    def lag(self, number: int, lag_ms: int) -> None:
        """Delay commits at that server, unless a client of its own waits for one."""
        self.servers[number].lag_ms = lag_ms
        if not lag_ms:
            self._follow(self.servers[number])

    def expire(self, session_id: int) -> None:
        """Expire a session, as after too long a silence."""
        self._end_session(session_id)

    def _break_connections(self, server: Server) -> None:
        for connection in list(server.connections):
            connection.break_off()

    def _touch_all(self) -> None:
        for record in self.sessions.values():
            record.touched = self.schedule.now

    # -- sessions, on the ensemble's side

    def admit(self, session_id: int, timeout_ms: int) -> int:
        """Begin or continue a session; return 0 if it has expired."""
        if not session_id:
            session_id, self._next_session = self._next_session, self._next_session + 1
            self.zxid += 1
            self.sessions[session_id] = SessionRecord(session_id, timeout_ms, self.schedule.now)
            self._watch_over(session_id)
        if session_id not in self.sessions:
            return 0
        self.sessions[session_id].touched = self.schedule.now
        return session_id

    def _watch_over(self, session_id: int) -> None:
        record = self.sessions.get(session_id)
        if record is None or self._is_stopped:
            return
        due = record.touched + record.timeout_ms
        due += -due % self._tick_ms
        if self.schedule.now >= due and self.has_quorum:
            self._end_session(session_id)
        else:
            delay = max(due - self.schedule.now, self._tick_ms)
            self.schedule.after(delay, lambda: self._watch_over(session_id))

    def _end_session(self, session_id: int) -> None:
        record = self.sessions.pop(session_id, None)
        if record is None:
            return
        self.zxid += 1
        for server in self.servers[:1]:
            self._catch_up(server)
        tree = self.servers[0].tree
        draft = Draft(tree, self.zxid, session_id)
        draft.run([Delete(path) for path in tree.ephemerals_of(session_id)])
        self._commit(draft.transaction())
        if record.connection is not None:
            record.connection.expired()

    def stop(self) -> None:
        """End all timers of this ensemble."""
        self._is_stopped = True

    # -- the log

    def write(self, server: Server, session_id: int, ops: tuple[Op, ...]) -> list[Znode | None]:
        """Commit, and apply it at that server. Raises ZkError."""
        self._catch_up(server)
        self.zxid += 1
        draft = Draft(server.tree, self.zxid, session_id)
        results = draft.run(ops)
        self._commit(draft.transaction())
        self._catch_up(server)
        return results

    def _commit(self, transaction: Transaction) -> None:
        self._log.append(transaction)
        self.on_commit(transaction)
        for server in self.servers:
            self._follow(server)

    def _follow(self, server: Server) -> None:
        """Apply commits now or late; always in order."""
        if not server.is_up:
            return
        if server.lag_ms:
            end = len(self._log)
            self.schedule.after(server.lag_ms, lambda: self._catch_up(server, end))
        else:
            self._catch_up(server)

    def _catch_up(self, server: Server, end: int | None = None) -> None:
        last = len(self._log) if end is None else end
        if not self._log or self._log[last - 1].zxid <= server.tree.zxid:
            return
        first = last
        while first > 0 and self._log[first - 1].zxid > server.tree.zxid:
            first -= 1
        for transaction in self._log[first:last]:
            server.tree.apply(transaction)
            for event in transaction.events:
                for connection in server.connections:
                    connection.fire(event)

    def catch_up_to(self, server: Server, zxid: int) -> None:
        """Bring a server at least to ``zxid``: no client reads a state older than it has seen."""
        if server.tree.zxid < zxid:
            self._catch_up(server)

    def serve(self, connection: "Connection", request: Request) -> Answer:
        """Return the server's response to a request that has arrived."""
        session_id = connection.session_id
        record = self.sessions.get(session_id)
        if record is None:
            return Answer(error=SessionLostError(f"session {session_id}"))
        record.touched = self.schedule.now
        try:
            return Answer(self._serve(connection, request))
        except ZkError as error:
            return Answer(error=error)

    def _serve(self, connection: "Connection", request: Request) -> object:
        server = connection.server
        match request:
            case Get(path, watch):
                znode = require_znode(server.tree.znodes.get(path), path)
                connection.watch("data", path, watch)
                return znode.data, stat_of(znode)
            case Exists(path, watch):
                connection.watch("data", path, watch)
                found = server.tree.znodes.get(path)
                return None if found is None else stat_of(found)
            case Children(path, watch):
                names = server.tree.children(path)
                connection.watch("children", path, watch)
                return names, stat_of(server.tree.znodes[path])
            case Sync():
                self._catch_up(server)
            case Multi(ops):
                written = self.write(server, connection.session_id, ops)
                return [None if znode is None else stat_of(znode) for znode in written]
            case Create() | SetData() | Delete() | Check():
                (changed,) = self.write(server, connection.session_id, (request,))
                return None if changed is None else stat_of(changed)
            case Close():
                self._end_session(connection.session_id)
            case Ping():
                pass
        return None


def stat_of(znode: Znode) -> ZnodeStat:
    """Return the stat as a client sees it."""
    return ZnodeStat(
        znode.version,
        znode.created_zxid,
        znode.children_zxid,
        znode.owner_session,
        znode.child_count,
    )


class SimSession:
    """A client. States and reconnects as of ``ZkSession``: a request made while SUSPENDED waits;
    one under way at a break ends in UnknownOutcomeError, at expiry in SessionLostError.
    """

    def __init__(self, zookeeper: SimZooKeeper, host: str, timeout_ms: int) -> None:
        self.zookeeper = zookeeper
        self.host = host
        self.session_timeout_ms = timeout_ms
        self.session_id = 0
        self.state = SessionState.LOST
        self.is_stopped = False
        self._is_dead = False
        self._connection: Connection | None = None
        self._queue: deque[tuple[Request, OnDone]] = deque()
        self._listeners: list[Callable[[SessionState], None]] = []
        self._seen_zxid = 0
        self._heard_at = 0
        self._later(0, self._connect)

    def add_listener(self, on_state: Callable[[SessionState], None]) -> None:
        """Call ``on_state`` with every change of state, in order."""
        self._listeners.append(on_state)

    def remove_listener(self, on_state: Callable[[SessionState], None]) -> None:
        """Stop the calls of ``on_state``."""
        self._listeners.remove(on_state)

    def submit(self, request: Request, on_done: OnDone) -> None:
        """Send a request. ``on_done`` is called once, never within this call."""
        if self.is_stopped:
            self._later(0, lambda: on_done(Answer(error=SessionLostError("stopped"))))
        elif self._connection is None:
            self._queue.append((request, on_done))
        else:
            self._connection.send(request, on_done)

    def stop(self, on_done: Callable[[], None] = lambda: None) -> None:
        """End the session: its ephemerals go when the server gets the request."""
        connection = self._connection
        self.is_stopped = True
        if connection is None:
            self._later(0, on_done)
            return

        def closed(_: Answer) -> None:
            connection.break_off()
            on_done()

        connection.send(Close(), closed)

    def kill(self) -> None:
        """End the process without any message; the session expires by itself."""
        self.is_stopped = self._is_dead = True
        self._queue.clear()
        if self._connection is not None:
            self._connection.take_waiting()
            self._connection.take_watches()
            self._connection.break_off()

    def disconnect(self) -> None:
        """Break the connection now (a fault); another one follows."""
        if self._connection is not None:
            self._connection.break_off()

    # -- the connection's side

    def heard(self, zxid: int) -> None:
        """Note a message from the server."""
        self._seen_zxid = max(self._seen_zxid, zxid)
        self._heard_at = self.zookeeper.schedule.now

    def lost(self) -> None:
        """End the session; a new one follows."""
        self.session_id = 0
        if self._connection is not None:
            self._connection.break_off()
        else:
            self._enter(SessionState.LOST)

    def disconnected(self, connection: Connection) -> None:
        """Handle a break of any cause. In kazoo's order: the state, the calls, the watches."""
        if connection is not self._connection:
            return
        self._connection = None
        is_over = self.session_id == 0
        self._enter(SessionState.LOST if is_over else SessionState.SUSPENDED)
        error = SessionLostError("expired") if is_over else UnknownOutcomeError("connection lost")
        for on_done in connection.take_waiting():
            on_done(Answer(error=error))
        for watch in connection.take_watches():
            watch(None)
        self._later(self.zookeeper.dice.between(1, RECONNECT_MS), self._connect)

    def _connect(self) -> None:
        """Connect to any server that can be reached; retry until one is."""
        if self.is_stopped or self._connection is not None:
            return
        zookeeper = self.zookeeper
        server = zookeeper.dice.pick(zookeeper.servers)
        there = zookeeper.travel_ms(self.host, server.name)
        back = zookeeper.travel_ms(server.name, self.host)
        if not server.is_up or not zookeeper.has_quorum or there is None or back is None:
            self._later(RECONNECT_MS, self._connect)
            return
        self._later(there, lambda: self._connected(server, back))

    def _connected(self, server: Server, back: int) -> None:
        zookeeper = self.zookeeper
        if self.is_stopped or self._connection is not None:
            return
        if not server.is_up or not zookeeper.has_quorum:
            self._later(RECONNECT_MS, self._connect)
            return
        admitted = zookeeper.admit(self.session_id, self.session_timeout_ms)
        if not admitted:
            self.session_id = 0
            self._enter(SessionState.LOST)
            self._later(back, self._connect)
            return
        zookeeper.catch_up_to(server, self._seen_zxid)
        self.session_id = admitted
        self._connection = Connection(self, server, admitted)
        zookeeper.sessions[admitted].connection = self._connection
        self._heard_at = zookeeper.schedule.now
        self._enter(SessionState.CONNECTED)
        self._flush()
        self._beat(self._connection)

    def _flush(self) -> None:
        while self._queue and self._connection is not None:
            self._connection.send(*self._queue.popleft())

    def _beat(self, connection: Connection) -> None:
        """Ping every third of the time-out; after two thirds of silence the connection is lost."""
        if connection is not self._connection or self.is_stopped:
            return
        third = self.session_timeout_ms // 3
        if self.zookeeper.schedule.now - self._heard_at >= 2 * third:
            connection.break_off()
            return
        connection.send(Ping(), lambda _: None)
        self._later(third, lambda: self._beat(connection))

    def _later(self, delay_ms: int, action: Callable[[], None]) -> None:
        self.zookeeper.schedule.after(delay_ms, action)

    def _enter(self, state: SessionState) -> None:
        if state is self.state:
            return
        self.state = state
        if self._is_dead:
            return
        for listener in tuple(self._listeners):
            listener(state)
