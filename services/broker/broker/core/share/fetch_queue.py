"""Fetches that wait for records of share-partitions, in the order of their arrival."""

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

Fetch = TypeVar("Fetch", bound=Hashable)


class FetchQueue(Generic[Fetch]):
    """Waiting fetches by share-partition. One that was looked at without success keeps its place.

    Invariant: a fetch is found by each of its share-partitions, and share-partitions without
    fetches take no memory.
    """

    def __init__(self) -> None:
        self._by_key: dict[Hashable, dict[Fetch, None]] = {}
        self._keys: dict[Fetch, tuple[Hashable, ...]] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, fetch: object) -> bool:
        return fetch in self._keys

    def park(self, fetch: Fetch, keys: Iterable[Hashable]) -> None:
        """Add a fetch that waits for these share-partitions."""
        assert fetch not in self._keys, "it waits already"
        self._keys[fetch] = tuple(keys)
        for key in self._keys[fetch]:
            self._by_key.setdefault(key, {})[fetch] = None

    def leave(self, fetch: Fetch) -> list[Hashable]:
        """Remove a fetch; return its share-partitions that no other one waits for. Idempotent."""
        deserted: list[Hashable] = []
        for key in self._keys.pop(fetch, ()):
            waiting = self._by_key[key]
            del waiting[fetch]
            if not waiting:
                del self._by_key[key]
                deserted.append(key)
        return deserted

    def has(self, key: Hashable) -> bool:
        """Return True if a fetch waits for a share-partition."""
        return key in self._by_key

    def waiting(self, key: Hashable) -> tuple[Fetch, ...]:
        """Return the fetches of a share-partition, in the order of their arrival."""
        return tuple(self._by_key.get(key, ()))

    def check(self) -> None:
        """Assert the invariant."""
        pairs = {(fetch, key) for fetch, keys in self._keys.items() for key in keys}
        assert pairs == {(fetch, key) for key, waiting in self._by_key.items() for fetch in waiting}
        assert all(self._by_key.values()), "no share-partition without a fetch"
