"""Patterns of a group, and when they are matched."""

from collections.abc import Collection, Mapping

from broker.core.groups.subscriptions.patterns import GroupPatterns
from tidemark.model.ids import InstantMs
from unit.broker.core.groups.consumer.worlds import FakeTopics

INTERVAL_MS = 1_000


class Counting(FakeTopics):
    """Topics that count the reads of all names."""

    asked = 0

    def names(self) -> Collection[str]:
        self.asked += 1
        return super().names()


class Look:
    """Patterns of a group over time; what they find is logged at once."""

    def __init__(self, topics: FakeTopics) -> None:
        self.topics = topics
        self.patterns = GroupPatterns()
        self.logged: Mapping[str, frozenset[str]] = {}
        self.now = 0
        self.hidden: set[str] = set()
        self.questions: list[str] = []

    def __call__(self, *regexes: str) -> Mapping[str, frozenset[str]]:
        self.logged = self.patterns.match(
            set(regexes),
            self.logged,
            self.topics,
            self.may_describe,
            InstantMs(self.now),
            INTERVAL_MS,
        )
        return self.logged

    def may_describe(self, name: str) -> bool:
        self.questions.append(name)
        return name not in self.hidden

    def is_due(self) -> bool:
        return self.patterns.are_due(self.topics, InstantMs(self.now))


def test_a_pattern_means_all_topics_that_fit() -> None:
    assert Look(FakeTopics(a1=3, a2=1, b=2))("a.") == {"a.": {"a1", "a2"}}


def test_a_pattern_never_means_our_own_topics() -> None:
    assert Look(FakeTopics(__consumer_offsets=50, a=1))(".*") == {".*": {"a"}}


def test_topics_that_may_not_be_described_are_left_out_of_all_patterns() -> None:
    look = Look(FakeTopics(a1=1, a2=1, b=1))
    look.hidden.add("a1")
    assert look("a.", ".*", "b") == {"a.": {"a2"}, ".*": {"a2", "b"}, "b": {"b"}}
    assert sorted(look.questions) == ["a1", "a2", "b"], "one question a topic"


def test_a_new_topic_is_found_once_the_metadata_has_it() -> None:
    look = Look(FakeTopics(a1=1))
    look("a.")
    assert not look.is_due()
    look.topics.put("a2", 1)
    assert look.is_due()
    assert look("a.") == {"a.": {"a1", "a2"}}


def test_a_topic_that_is_gone_is_not_meant_any_more() -> None:
    look = Look(FakeTopics(a1=1, a2=1))
    look("a.")
    look.topics.delete("a1")
    assert look("a.") == {"a.": {"a2"}}


def test_other_changes_of_the_metadata_ask_for_no_permissions() -> None:
    look = Look(FakeTopics(a1=1))
    look("a.")
    look.questions.clear()
    look.topics.put("b", 1)
    look.topics.put("a1", 2)
    assert look("a.") == {"a.": {"a1"}}
    assert look.questions == []


def test_permissions_are_asked_for_again_after_a_time() -> None:
    look = Look(FakeTopics(a1=1))
    look("a.")
    look.hidden.add("a1")
    look.now += INTERVAL_MS - 1
    assert not look.is_due()
    assert look("a.") == {"a.": {"a1"}}
    look.now += 1
    assert look.is_due()
    assert look("a.") == {"a.": frozenset()}


def test_a_group_without_patterns_has_nothing_to_look_at() -> None:
    look = Look(FakeTopics(a1=1))
    assert look.is_due(), "nobody knows yet"
    assert look() == {}
    look.topics.put("a2", 1)
    look.now += INTERVAL_MS
    assert not look.is_due()


def test_the_names_are_read_once_a_pattern_and_position() -> None:
    topics = Counting(a1=1)
    look = Look(topics)
    for _ in range(3):
        look("a.")
    assert topics.asked == 1


def test_a_pattern_that_is_not_logged_is_matched() -> None:
    look = Look(FakeTopics(a1=1))
    look("a.")
    look.logged = {}
    assert look("a.") == {"a.": {"a1"}}


def test_patterns_nobody_uses_any_more_are_forgotten() -> None:
    look = Look(FakeTopics(a1=1))
    look("a.")
    assert look() == {}
    assert not look.patterns._matchers


def test_a_logged_pattern_that_cannot_be_read_means_nothing() -> None:
    assert Look(FakeTopics(a1=1))(r"\p{Greek}") == {r"\p{Greek}": frozenset()}
