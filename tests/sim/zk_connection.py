"""Connection of a client to one simulated ZooKeeper server, and that server."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from sim.zk_requests import Answer, OnDone, OnWatch, Request
from sim.znode_tree import CHANGED, CHILD, CREATED, DELETED, Event, Tree

if TYPE_CHECKING:
    from sim.zookeeper import SimSession

RESEND_MS: Final = 50
EVENT_KINDS: Final = {
    CREATED: ("data",),
    CHANGED: ("data",),
    DELETED: ("data", "children"),
    CHILD: ("children",),
}


@dataclass
class SessionRecord:
    """One session in the state of the ensemble."""

    session_id: int
    timeout_ms: int
    touched: int
    connection: "Connection | None" = None


class Server:
    """One server: a tree that follows the log, and the watches of its clients."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tree = Tree()
        self.is_up = True
        self.lag_ms = 0
        self.connections: list[Connection] = []


class Connection:
    """Connection of one session to one server, until it breaks."""

    def __init__(self, session: "SimSession", server: Server, session_id: int) -> None:
        self.session = session
        self.server = server
        self.session_id = session_id
        self.is_broken = False
        self._zookeeper = session.zookeeper
        self._lost_from: int | None = None
        self._sent = 0
        self._arrives_at = {"there": 0, "back": 0}
        self._blocked: dict[str, list[Callable[[], None]]] = {"there": [], "back": []}
        self._waiting: deque[OnDone] = deque()
        self._watches: dict[tuple[str, str], list[OnWatch]] = {}
        self._telling: list[OnWatch] = []
        server.connections.append(self)

    def send(self, request: Request, on_done: OnDone) -> None:
        """Send after all earlier requests."""
        self._sent += 1
        number = self._sent
        self._waiting.append(on_done)
        self._travel("there", lambda: self._arrive(request, number))

    def _arrive(self, request: Request, number: int) -> None:
        if self._lost_from is not None and number >= self._lost_from:
            return
        record = self._zookeeper.sessions.get(self.session_id)
        if record is not None and record.connection is not self:
            return  # the session has moved on to another connection
        if not self.server.is_up or not self._zookeeper.has_quorum:
            return
        answer = self._zookeeper.serve(self, request)
        zxid = self.server.tree.zxid
        self._travel("back", lambda: self._answered(answer, zxid))

    def _answered(self, answer: Answer, zxid: int) -> None:
        if self.is_broken:
            return
        self.session.heard(zxid)
        self._waiting.popleft()(answer)

    def watch(self, kind: str, path: str, watch: OnWatch | None) -> None:
        """Set a watch at the server."""
        if watch is not None:
            self._watches.setdefault((kind, path), []).append(watch)

    def fire(self, event: Event) -> None:
        """Send the event to its watches, in order with the responses."""
        for kind in EVENT_KINDS[event.kind]:
            for watch in self._watches.pop((kind, event.path), ()):
                self._telling.append(watch)
                self._travel("back", partial(self._tell, watch, event))

    def _tell(self, watch: OnWatch, event: Event) -> None:
        if not self.is_broken:
            self._telling.remove(watch)
            self.session.heard(0)
            watch(event)

    def expired(self) -> None:
        """End the connection from the server's side."""
        self._travel("back", lambda: None if self.is_broken else self.session.lost())

    def break_off(self) -> None:
        """Break: the client receives nothing further, and the last of its requests may be lost."""
        if self.is_broken:
            return
        self.is_broken = True
        self.server.connections.remove(self)
        self._lost_from = self._zookeeper.dice.between(1, self._sent + 1)
        self.session.disconnected(self)

    def take_waiting(self) -> list[OnDone]:
        """Return the callbacks of requests that will get no response."""
        waiting = list(self._waiting)
        self._waiting.clear()
        return waiting

    def take_watches(self) -> list[OnWatch]:
        """Return the watches that will get no event from this server."""
        watches = [*self._telling, *(one for told in self._watches.values() for one in told)]
        self._watches.clear()
        self._telling.clear()
        return watches

    def _travel(self, way: str, action: Callable[[], None]) -> None:
        """Deliver in order. A lost message is sent again, and all behind it wait, until one side
        gives the connection up.
        """
        delay = None if self._blocked[way] else self._delay(way)
        if delay is None:
            self._blocked[way].append(action)
            if len(self._blocked[way]) == 1:
                self._zookeeper.schedule.after(RESEND_MS, lambda: self._resend(way))
            return
        now = self._zookeeper.schedule.now
        at = max(now + delay, self._arrives_at[way])
        self._arrives_at[way] = at
        self._zookeeper.schedule.after(at - now, action)

    def _delay(self, way: str) -> int | None:
        ends = (self.session.host, self.server.name)
        return self._zookeeper.travel_ms(*(ends if way == "there" else ends[::-1]))

    def _resend(self, way: str) -> None:
        if self.is_broken:
            return
        if self._delay(way) is None:
            self._zookeeper.schedule.after(RESEND_MS, lambda: self._resend(way))
            return
        blocked, self._blocked[way] = self._blocked[way], []
        for action in blocked:
            self._travel(way, action)
