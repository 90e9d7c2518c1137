"""Scripts about a group whose members use both protocols: one topic of four partitions, and clients
that send a request when a script says so.
"""

from dataclasses import replace

from broker.core.groups.classic.group import ClassicGroup
from broker.core.groups.consumer.group import ConsumerGroup
from broker.core.groups.consumer.member import ConsumerMember
from broker.core.groups.settings import MigrationPolicy
from scenarios.runner import Command
from tidemark.model.errors import ErrorCode
from unit.broker.core.groups.mixed_worlds import (
    SETTINGS,
    STEP_MS,
    ClassicClient,
    Client,
    ConsumerClient,
    CutWorld,
    Story,
)

ROUNDS = 20


class GroupWorld(Story):
    """One script."""

    def __init__(self) -> None:
        super().__init__(seed=1, has_cuts=False)
        self.by_name: dict[str, ClassicClient | ConsumerClient] = {}
        self.refused: dict[str, ErrorCode] = {}

    def refuses(self, client: Client, code: ErrorCode) -> None:
        """Note an error that ends the client."""
        self.refused[client.name] = code

    def execute(self, command: Command) -> list[str]:
        """Run one command; return what its verb shows."""
        handler = getattr(self, f"_{command.verb}")
        lines: list[str] = handler(command)
        return lines

    # -- commands

    def _group(self, command: Command) -> list[str]:
        policy = MigrationPolicy(command.options.get("policy", "bidirectional"))
        self.world = CutWorld(replace(SETTINGS, group_consumer_migration_policy=policy))
        self.is_cooperative = command.options.get("assignor") == "cooperative"
        self.by_name, self.clients, self.names = {}, [], 0
        return [f"policy {policy}, {'cooperative' if self.is_cooperative else 'eager'} members"]

    def _start(self, command: Command) -> list[str]:
        name, protocol = command.arguments
        kind = ClassicClient if protocol == "classic" else ConsumerClient
        made = kind(self, name, self.is_cooperative, command.options.get("instance"))
        self.by_name[name] = made
        self.clients = list(self.by_name.values())
        return []

    def _stop(self, command: Command) -> list[str]:
        """The client leaves the group and ends."""
        self._take(command).leaves()
        self.world.pass_time(0)
        return self._state(command)

    def _kill(self, command: Command) -> list[str]:
        """The client ends without leaving the group."""
        self._take(command)
        return self._state(command)

    def _take(self, command: Command) -> ClassicClient | ConsumerClient:
        taken = self.by_name.pop(command.arguments[0])
        self.clients = list(self.by_name.values())
        return taken

    def _turn(self, command: Command) -> list[str]:
        """The named clients take one turn each, in this order."""
        for name in command.arguments:
            self.by_name[name].step()
        self.world.pass_time(0)
        return self._state(command)

    def _settle(self, command: Command) -> list[str]:
        """All clients go on until nothing changes any more."""
        for _ in range(ROUNDS):
            for client in self.clients:
                client.step()
                self.world.pass_time(STEP_MS)
        return self._state(command)

    def _wait(self, command: Command) -> list[str]:
        """Time passes; the named clients go on meanwhile, the others stand still."""
        seconds, *names = command.arguments
        until = self.world.now + 1_000 * int(seconds.removesuffix("s"))
        while self.world.now < until:
            for name in names:
                self.by_name[name].step()
            self.world.pass_time(min(STEP_MS, until - self.world.now))
        return self._state(command)

    def _failover(self, command: Command) -> list[str]:
        """Another broker loads the log; ``keep`` of the next decision's records are written."""
        if "keep" in command.options:
            self.world.cut_at = command.number("keep", 0)
            return []
        self.world.fail_over()
        self.world.pass_time(0)
        return self._state(command)

    # -- what is shown

    def _state(self, _: Command) -> list[str]:
        group = self.world.shard.state[0].get("g")
        lines = ["no group"]
        if isinstance(group, ClassicGroup):
            lines = [f"classic {group.state.value} generation {group.generation}"]
        elif isinstance(group, ConsumerGroup):
            state = group.logged
            members = [self._member(one) for one in state.members.values()]
            lines = [f"consumer {group.state} epoch {state.group_epoch}", *sorted(members)]
        return [*lines, *(self._client(one) for one in self.clients)]

    def _member(self, member: ConsumerMember) -> str:
        kind = "classic" if member.classic is not None else "consumer"
        parts = [f"  {member.member_id} {kind} e{member.member_epoch} {_numbers(member.assigned)}"]
        if member.pending_revocation:
            parts.append(f"revokes {_numbers(member.pending_revocation)}")
        return " ".join(parts)

    def _client(self, client: Client) -> str:
        if client.name in self.refused:
            return f"{client.name} is refused: {self.refused[client.name].name}"
        owned = ",".join(map(str, sorted(client.owned))) or "-"
        return f"{client.name} owns {owned}"


def _numbers(assignment: object) -> str:
    assert isinstance(assignment, dict)
    found = sorted(one for numbers in assignment.values() for one in numbers)
    return ",".join(map(str, found)) or "-"
