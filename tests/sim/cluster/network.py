"""Hosts and the network between them: delay, loss, cuts one way or both, processes that die or
stand still.

    host      one machine with one process at a time; actions scheduled on it end with the process,
              and wait while the process is paused
    post      one message: late, overtaken, lost where the way is cut
    Wire      a connection: in order, resent while the way is cut, broken when an end dies
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from sim.dice import Dice
from sim.network import Schedule

RESEND_MS: Final = 40
LATE_MS: Final = 200

Action = Callable[[], None]


class Host:
    """A machine. ``life`` is raised when its process begins and when it ends."""

    def __init__(self, schedule: Schedule, name: str, failures: list[BaseException]) -> None:
        """``failures``: where the loops of its processes put what they would only log."""
        self.name = name
        self.failures = failures
        self.life = 0
        self.is_up = False
        self.is_paused = False
        self.inside: Callable[[Action], None] = _plainly
        """Function that runs an action from outside, with the loop of the process running."""
        self._schedule = schedule
        self._held: list[tuple[int, Action]] = []

    @property
    def now(self) -> int:
        """Time of the simulator."""
        return self._schedule.now

    def after(self, delay_ms: int, action: Action) -> None:
        """Schedule for the present process."""
        self._schedule.after(delay_ms, partial(self.run, self.life, action))

    def run(self, life: int, action: Action) -> None:
        """Run now if that process still runs, or when it resumes if it is paused."""
        if life != self.life or not self.is_up:
            return
        if self.is_paused:
            self._held.append((life, action))
            return
        self.inside(action)

    def begin(self) -> None:
        """Begin a process."""
        self.life += 1
        self.is_up = True

    def end(self) -> None:
        """End the process."""
        self.life += 1
        self.is_up = self.is_paused = False
        self._held.clear()

    def pause(self) -> None:
        """Pause (SIGSTOP, or a long stop of the virtual machine)."""
        self.is_paused = True

    def resume(self) -> None:
        """Resume: take all that arrived meanwhile, in order."""
        self.is_paused = False
        held, self._held = self._held, []
        for life, action in held:
            self._schedule.after(0, partial(self.run, life, action))


class Network:
    """Reachability and delay between hosts. Ways are one-way: (source, target), by host names."""

    def __init__(self, schedule: Schedule, dice: Dice, *, keepalive_ms: int = 1_500) -> None:
        """A connection whose way has been cut for ``keepalive_ms`` is broken."""
        self.keepalive_ms = keepalive_ms
        self.schedule = schedule
        self.dice = dice
        self.failures: list[BaseException] = []
        """Bugs of the processes of all hosts which those processes would survive."""
        self.hosts: dict[str, Host] = {}
        self.cuts: set[tuple[str, str]] = set()
        self.is_steady = False
        """True if every message takes a millisecond: scripts must not depend on chance."""
        self.joins_writes = False
        """True if all writes of one turn travel as one message; otherwise a cut may divide a
        response.
        """
        self.late_ms: dict[tuple[str, str], int] = {}
        """Additional delay of each way."""
        self._wires: list[Wire] = []
        self._calls: dict[object, tuple[Host, int, Host, Action]] = {}

    def host(self, name: str) -> Host:
        """Add a machine."""
        made = self.hosts[name] = Host(self.schedule, name, self.failures)
        return made

    def travel_ms(self, source: str, target: str) -> int | None:
        """Return the travel time of a message sent now; None: lost."""
        if self.cuts and (source, target) in self.cuts:
            return None
        late_ms = self.late_ms.get((source, target), 0) if self.late_ms else 0
        if self.is_steady:
            return 1 + late_ms
        longest_ms = 30 if self.dice.chance(0.02) else 2
        return self.dice.between(0, longest_ms) + late_ms

    def zookeeper_link(self, source: str, target: str) -> int | None:
        """Return ``travel_ms``, or None for a paused process, which neither sends nor receives."""
        for name in (source, target):
            host = self.hosts.get(name)
            if host is not None and host.is_paused:
                return None
        return self.travel_ms(source, target)

    def cut(self, source: str, target: str) -> None:
        """Cut one way. Connections that need it break if the cut lasts."""
        self.cuts.add((source, target))
        self.schedule.after(self.keepalive_ms, lambda: self._break_between(source, target))

    def heal(self, source: str, target: str) -> None:
        """End the cut of one way."""
        self.cuts.discard((source, target))

    def heal_all(self) -> None:
        """End all cuts."""
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
        """Send one message to the process on ``target`` at its arrival, or only to that of one
        ``life``. Return True if it is under way.
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
        """Send one message over a shared connection to one process of ``target``: it is sent again
        while the way is cut, until the connection is given up.
        """
        since = self.schedule.now

        def attempt() -> None:
            delay = self.travel_ms(source.name, target.name)
            if delay is not None:
                self.schedule.after(delay, partial(target.run, life, action))
            elif self.schedule.now - since > self.keepalive_ms:
                give_up()
            else:
                self.schedule.after(RESEND_MS, attempt)

        attempt()

    def expect(self, client: Host, server: Host, fail: Action) -> object:
        """Register a pending response; ``fail`` is called if the server's process dies. Return a
        ticket.
        """
        ticket = object()
        self._calls[ticket] = client, client.life, server, fail
        return ticket

    def settle(self, ticket: object) -> None:
        """Withdraw the ticket: the response has come, or the caller has given up."""
        self._calls.pop(ticket, None)

    def open_wire(self, client: Host, server: Host) -> "Wire":
        """Return a connection that both ends have accepted."""
        wire = Wire(self, client, server)
        self._wires.append(wire)
        return wire

    def gone(self, wire: "Wire") -> None:
        """Remove a connection that is broken at both ends."""
        if wire in self._wires:
            self._wires.remove(wire)

    def process_ended(self, host: Host, *, is_silent: bool) -> None:
        """Close the connections of a process that died, as the kernel does; ``is_silent``: the
        machine died too.
        """
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
        """Actions under way to each end, in order."""
        self._is_moving = {client: False, server: False}
        self.on_broken: dict[Host, Action] = {client: _nothing, server: _nothing}

    @property
    def joins_writes(self) -> bool:
        """True if the writes of one end in a turn travel as one message."""
        return self._network.joins_writes

    def is_broken(self, end: Host) -> bool:
        """Return True if this end has noticed a break."""
        return self._broken[end]

    def other(self, end: Host) -> Host:
        """The other end."""
        return self.server if end is self.client else self.client

    def send(self, source: Host, action: Action) -> None:
        """Run ``action`` at the other end, after all that was sent before."""
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
        if delay is None:
            self._network.schedule.after(RESEND_MS, partial(self._resend, target))
        else:
            self._network.schedule.after(delay, partial(self._arrive, target))

    def _resend(self, target: Host) -> None:
        self._is_moving[target] = False
        self._pump(target)

    def _arrive(self, target: Host) -> None:
        self._is_moving[target] = False
        waiting = self._waiting[target]
        if waiting:
            action = waiting.popleft()
            if not self._broken[target]:
                target.run(self._lives[target], action)
            if waiting:
                self._pump(target)

    def break_off(self, by: Host) -> None:
        """Close one end abruptly, or at its process's death. The other end notices after the
        messages under way, of which the first may arrive, late.
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
        """Close one end in order: all that it has sent arrives before the end of the stream."""
        if not self._broken[by]:
            self._end(by)
            self.send_end(self.other(by))

    def send_end(self, target: Host) -> None:
        """Send the end of the stream, after all that waits."""
        self._waiting[target].append(lambda: self._end(target))
        self._pump(target)

    def abandon(self, end: Host) -> None:
        """Drop one end without a message: the other end notices by silence."""
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
    """Do nothing."""
