"""Hosts and the network between them: delay, loss, cuts one way or both, processes that die or
stand still.

    host      one machine with one process at a time; what is scheduled on it dies with the process,
              and waits while the process is paused
    post      one message: late, overtaken, lost where the way is cut
    Wire      a connection: in order, resent while the way is cut, broken when an end dies
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from sim.dice import Dice
from sim.network import Schedule

RESEND_MS: Final = 40
LATE_MS: Final = 200

Action = Callable[[], None]


class Host:
    """A machine. ``life`` is raised when its process begins and when it ends."""

    def __init__(self, schedule: Schedule, name: str) -> None:
        self.name = name
        self.life = 0
        self.is_up = False
        self.is_paused = False
        self.inside: Callable[[Action], None] = _plainly
        """How the process calls what comes from outside: with its loop running."""
        self._schedule = schedule
        self._held: list[tuple[int, Action]] = []

    @property
    def now(self) -> int:
        """The simulator's time."""
        return self._schedule.now

    def after(self, delay_ms: int, action: Action) -> None:
        """Schedule for the present process."""
        life = self.life
        self._schedule.after(delay_ms, lambda: self.run(life, action))

    def run(self, life: int, action: Action) -> None:
        """Now, if that process still runs; when it goes on, if it is paused."""
        if life != self.life or not self.is_up:
            return
        if self.is_paused:
            self._held.append((life, action))
            return
        self.inside(action)

    def begin(self) -> None:
        """A process starts."""
        self.life += 1
        self.is_up = True

    def end(self) -> None:
        """It is no more."""
        self.life += 1
        self.is_up = self.is_paused = False
        self._held.clear()

    def pause(self) -> None:
        """SIGSTOP, or a long stop of the virtual machine."""
        self.is_paused = True

    def resume(self) -> None:
        """All that came meanwhile is taken now, in order."""
        self.is_paused = False
        held, self._held = self._held, []
        for life, action in held:
            self._schedule.after(0, lambda life=life, action=action: self.run(life, action))  # type: ignore[misc]


class Network:
    """Who reaches whom, and how late. Ways are one-way: (source, target), by host names."""

    def __init__(self, schedule: Schedule, dice: Dice, *, keepalive_ms: int = 1_500) -> None:
        """A connection whose way has been cut for ``keepalive_ms`` is broken."""
        self.keepalive_ms = keepalive_ms
        self.schedule = schedule
        self.dice = dice
        self.hosts: dict[str, Host] = {}
        self.cuts: set[tuple[str, str]] = set()
        self.is_steady = False
        """Every message takes a millisecond: for scripts, which are not to depend on chance."""
        self.joins_writes = False
        """What is written in a turn travels as one message; else a cut may come between two parts
        of an answer.
        """
        self.late_ms: dict[tuple[str, str], int] = {}
        """How much later than others messages of a way arrive."""
        self._wires: list[Wire] = []
        self._calls: dict[object, tuple[Host, int, Host, Action]] = {}

    def host(self, name: str) -> Host:
        """A new machine."""
        made = self.hosts[name] = Host(self.schedule, name)
        return made

    def travel_ms(self, source: str, target: str) -> int | None:
        """How long a message takes that is sent now; None: it is lost."""
        if (source, target) in self.cuts:
            return None
        if self.is_steady:
            return 1 + self.late_ms.get((source, target), 0)
        longest_ms = 30 if self.dice.chance(0.02) else 2
        return self.dice.between(0, longest_ms) + self.late_ms.get((source, target), 0)

    def zookeeper_link(self, source: str, target: str) -> int | None:
        """As ``travel_ms``; a paused process neither sends nor takes anything."""
        for name in (source, target):
            host = self.hosts.get(name)
            if host is not None and host.is_paused:
                return None
        return self.travel_ms(source, target)

    def cut(self, source: str, target: str) -> None:
        """Nothing goes that way. Connections that need it break when it lasts."""
        self.cuts.add((source, target))
        self.schedule.after(self.keepalive_ms, lambda: self._break_between(source, target))

    def heal(self, source: str, target: str) -> None:
        """It goes again."""
        self.cuts.discard((source, target))

    def heal_all(self) -> None:
        """Everybody reaches everybody."""
        self.cuts.clear()
        self.late_ms.clear()

    def _break_between(self, source: str, target: str) -> None:
        if (source, target) not in self.cuts:
            return
        for wire in tuple(self._wires):
            if {wire.client.name, wire.server.name} == {source, target}:
                wire.break_off(wire.client)
                wire.break_off(wire.server)

    def post(self, source: Host, target: Host, action: Action, *, life: int | None = None) -> bool:
        """One message to the process that runs on ``target`` when it arrives, or to that of one
        ``life`` alone; whether it is on its way.
        """
        delay = self.travel_ms(source.name, target.name)
        if delay is None:
            return False
        self.schedule.after(
            delay, lambda: target.run(target.life if life is None else life, action)
        )
        return True

    def post_again(
        self, source: Host, target: Host, action: Action, *, life: int, give_up: Action
    ) -> None:
        """One message over a connection that others use as well: sent again while the way is cut,
        until the connection is given up. It is for one process of ``target``.
        """
        since = self.schedule.now

        def attempt() -> None:
            delay = self.travel_ms(source.name, target.name)
            if delay is not None:
                self.schedule.after(delay, lambda: target.run(life, action))
            elif self.schedule.now - since > self.keepalive_ms:
                give_up()
            else:
                self.schedule.after(RESEND_MS, attempt)

        attempt()

    def expect(self, client: Host, server: Host, fail: Action) -> object:
        """An answer is awaited: ``fail`` when the server's process dies. Answers a ticket."""
        ticket = object()
        self._calls[ticket] = client, client.life, server, fail
        return ticket

    def settle(self, ticket: object) -> None:
        """The answer came, or is not awaited any more."""
        self._calls.pop(ticket, None)

    def open_wire(self, client: Host, server: Host) -> "Wire":
        """A connection that both ends have accepted."""
        wire = Wire(self, client, server)
        self._wires.append(wire)
        return wire

    def gone(self, wire: "Wire") -> None:
        """Both ends know that it is broken."""
        if wire in self._wires:
            self._wires.remove(wire)

    def process_ended(self, host: Host, *, is_silent: bool) -> None:
        """The kernel ends the connections of a process that died; ``is_silent``: it died too."""
        for wire in tuple(self._wires):
            if host in (wire.client, wire.server):
                if is_silent:
                    wire.abandon(host)
                else:
                    wire.break_off(host)
        for client, life, server, fail in tuple(self._calls.values()):
            if server is host and not is_silent:
                self.post_again(server, client, fail, life=life, give_up=fail)


class Wire:
    """One connection between two processes. Bytes or messages are actions, run at the other end."""

    def __init__(self, network: Network, client: Host, server: Host) -> None:
        self.client = client
        self.server = server
        self._network = network
        self._lives = {client: client.life, server: server.life}
        self._broken = {client: False, server: False}
        self._waiting: dict[Host, deque[Action]] = {client: deque(), server: deque()}
        """Towards each end, in order."""
        self._is_moving = {client: False, server: False}
        self.on_broken: dict[Host, Action] = {client: _nothing, server: _nothing}

    @property
    def joins_writes(self) -> bool:
        """Whether what one end writes in a turn travels as one message."""
        return self._network.joins_writes

    def is_broken(self, end: Host) -> bool:
        """As this end knows."""
        return self._broken[end]

    def other(self, end: Host) -> Host:
        """The other end."""
        return self.server if end is self.client else self.client

    def send(self, source: Host, action: Action) -> None:
        """Have ``action`` run at the other end, behind all that was sent before."""
        if self._broken[source]:
            return
        target = self.other(source)
        self._waiting[target].append(action)
        self._pump(target)

    def _pump(self, target: Host) -> None:
        if self._is_moving[target] or not self._waiting[target]:
            return
        source = self.other(target)
        delay = self._network.travel_ms(source.name, target.name)
        self._is_moving[target] = True

        def arrive() -> None:
            self._is_moving[target] = False
            waiting = self._waiting[target]
            if delay is not None and waiting:
                action = waiting.popleft()
                if not self._broken[target]:
                    target.run(self._lives[target], action)
            self._pump(target)

        self._network.schedule.after(RESEND_MS if delay is None else delay, arrive)

    def break_off(self, by: Host) -> None:
        """One end closes, or its process has died. The other hears of it behind what is on its way:
        the first of that may arrive, and late.
        """
        if self._broken[by]:
            return
        self._end(by)
        target = self.other(by)
        dice = self._network.dice
        waiting = self._waiting[target]
        while waiting and len(waiting) > dice.between(0, 1):
            waiting.pop()
        late_ms = dice.between(0, LATE_MS) if dice.chance(0.2) else 0
        self._network.schedule.after(late_ms, lambda: self.send_end(target))

    def finish(self, by: Host) -> None:
        """One end closes in order: all that it has sent arrives before the end does."""
        if not self._broken[by]:
            self._end(by)
            self.send_end(self.other(by))

    def send_end(self, target: Host) -> None:
        """The end of the stream, behind what waits."""
        self._waiting[target].append(lambda: self._end(target))
        self._pump(target)

    def abandon(self, end: Host) -> None:
        """That machine is gone without a word: the other end finds out by silence."""
        other = self.other(end)
        self._broken[end] = True
        self._waiting[other].clear()
        self._network.schedule.after(self._network.keepalive_ms, lambda: self._end(other))

    def _end(self, end: Host) -> None:
        if self._broken[end]:
            return
        self._broken[end] = True
        self._waiting[end].clear()
        self._network.gone(self)
        end.run(self._lives[end], self.on_broken[end])


def _plainly(action: Action) -> None:
    action()


def _nothing() -> None:
    """Nobody cares."""
