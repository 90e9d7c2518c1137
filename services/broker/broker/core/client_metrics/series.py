"""ClientSeries: the metrics that clients pushed last, bounded in number, until they are stale."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tidemark.model.ids import InstantMs

Labels = tuple[tuple[str, str], ...]


class Point(NamedTuple):
    """One value of a push. ``is_delta``: it is the increase since the push before."""

    name: str
    labels: Labels
    value: float
    is_delta: bool


class ClientSample(NamedTuple):
    """One value to show: the labels of its client, and its own."""

    client: Labels
    labels: Labels
    value: float


@dataclass(slots=True)
class _Pushed:
    client: Labels
    stale_at: InstantMs
    values: dict[tuple[str, Labels], float] = field(default_factory=dict)


class ClientSeries:
    """Values by client instance, each of its last push."""

    def __init__(self, series_max: int) -> None:
        self.count = self.dropped = 0
        """Number of series; points without room so far."""
        self._series_max = series_max
        self._pushed: dict[bytes, _Pushed] = {}
        self._by_name: dict[str, dict[bytes, dict[Labels, float]]] = {}

    def put(
        self,
        instance_id: bytes,
        client: Labels,
        points: Iterable[Point],
        stale_at: InstantMs,
    ) -> None:
        """Replace the values of an instance. A value that is an increase is added to the one before
        it.
        """
        before = self._pushed.get(instance_id)
        earlier = {} if before is None else before.values
        self.forget(instance_id)
        pushed = _Pushed(client, stale_at)
        for name, labels, value, is_delta in points:
            key = (name, labels)
            if key not in pushed.values and self.count >= self._series_max:
                self.dropped += 1
                continue
            self.count += key not in pushed.values
            pushed.values[key] = earlier.get(key, 0.0) + value if is_delta else value
        self._pushed[instance_id] = pushed
        for (name, labels), value in pushed.values.items():
            self._by_name.setdefault(name, {}).setdefault(instance_id, {})[labels] = value

    def forget(self, instance_id: bytes) -> None:
        """Drop the values of an instance, if there are any."""
        pushed = self._pushed.pop(instance_id, None)
        if pushed is None:
            return
        self.count -= len(pushed.values)
        for name in {name for name, _ in pushed.values}:
            instances = self._by_name[name]
            del instances[instance_id]
            if not instances:
                del self._by_name[name]

    def expire(self, now: InstantMs) -> None:
        """Drop the values of instances that are stale."""
        for instance_id in [key for key, one in self._pushed.items() if one.stale_at <= now]:
            self.forget(instance_id)

    def names(self) -> list[str]:
        """Return the names of all metrics, sorted."""
        return sorted(self._by_name)

    def samples(self, name: str) -> Iterator[ClientSample]:
        """Yield the values of one metric. The values may change meanwhile."""
        for instance_id, values in list(self._by_name.get(name, {}).items()):
            pushed = self._pushed.get(instance_id)
            if pushed is None:
                continue
            for labels, value in values.items():
                yield ClientSample(pushed.client, labels, value)

    def check(self) -> None:
        """Assert the invariants."""
        assert self.count == sum(len(one.values) for one in self._pushed.values())
        assert self.count <= self._series_max
        shown = sum(len(values) for of in self._by_name.values() for values in of.values())
        assert shown == self.count
