"""Patterns of a KIP-848 group: when they are matched against the topics' names.

The result is logged, since it depends on who asked: topics that the sender of the heartbeat may not
describe are left out, as in Kafka (KAFKA-18813). Requests without such a sender, and the next owner
of the group, use what is logged.
"""

from collections.abc import Callable, Set
from typing import Final

from tidemark.model.ids import InstantMs
from tidemark.model.topics import INTERNAL_TOPICS
from tidemark.re2.pattern import Pattern, matching
from tidemark.re2.syntax import PatternError

from broker.core.groups.requests import Topics
from broker.core.groups.subscriptions.resolver import Matches

MayDescribe = Callable[[str], bool]
"""True for the name of a topic that the sender of a request may describe."""

_NO_TOPICS: Final = frozenset[str]()


class GroupPatterns:
    """Patterns of one group. A loss of this memory costs only time: all are matched again."""

    __slots__ = ("_due", "_matchers", "_position")

    def __init__(self) -> None:
        self._matchers: dict[str, _Matcher] = {}
        self._position: int | None = None
        self._due = InstantMs(0)

    def are_due(self, topics: Topics, now: InstantMs) -> bool:
        """True if topics may be new, or if what principals may describe may have changed."""
        if self._position is None:
            return True
        return bool(self._matchers) and (self._position != topics.position or now >= self._due)

    def match(
        self,
        regexes: Set[str],
        logged: Matches,
        topics: Topics,
        may_describe: MayDescribe,
        now: InstantMs,
        interval_ms: int,
    ) -> Matches:
        """Return the topics of all patterns of the group: those of the log if nothing has changed
        within ``interval_ms``.
        """
        for regex in self._matchers.keys() - regexes:
            del self._matchers[regex]
        for regex in regexes - self._matchers.keys():
            self._matchers[regex] = _Matcher(regex)
        self._position = topics.position
        has_others = [matcher.renew(topics) for matcher in self._matchers.values()]
        if not any(has_others) and now < self._due and regexes <= logged.keys():
            return {regex: logged[regex] for regex in regexes}
        self._due = InstantMs(now + interval_ms)
        found = _NO_TOPICS.union(*(one.matched for one in self._matchers.values()))
        visible = frozenset(filter(may_describe, found))
        return {regex: self._matchers[regex].matched & visible for regex in regexes}


class _Matcher:
    """One pattern with its cached matches. Metadata changes often, topic names rarely, so only new
    names are matched.
    """

    __slots__ = ("_names", "_pattern", "_position", "matched")

    def __init__(self, regex: str) -> None:
        self._pattern = _compiled(regex)
        self._position: int | None = None
        self._names = _NO_TOPICS
        self.matched = _NO_TOPICS

    def renew(self, topics: Topics) -> bool:
        """Match names that are new, and drop names that no longer exist. Return True if the matches
        are others, or if there were none before.
        """
        if self._position == topics.position:
            return False
        is_first, before = self._position is None, self.matched
        self._position = topics.position
        names = frozenset(topics.names())
        if self._pattern is not None:
            # A pattern never matches internal topics; a member can subscribe to them by name.
            new = names - self._names - INTERNAL_TOPICS
            self.matched = (before & names) | matching(self._pattern, new)
        self._names = names
        return is_first or self.matched != before


def _compiled(regex: str) -> Pattern | None:
    """Compile a logged pattern. None, which matches nothing, if a newer release logged a syntax
    that this one does not support.
    """
    try:
        return Pattern(regex)
    except PatternError:
        return None
