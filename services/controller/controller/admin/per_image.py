"""PerImage and PerTopic: what is computed from a part of a metadata image, kept until that part
changes.

A cluster of 10,000 topics has pages that are asked for many times between two changes.
"""

from collections.abc import Callable, Mapping
from typing import Final, Generic, TypeVar

from tidemark.model.metadata import ClusterImage, TopicImage

Value = TypeVar("Value")


class PerImage(Generic[Value]):
    """Value computed once from a part of an image, its topics if no other is named. Callers must
    not change it.
    """

    def __init__(
        self,
        compute: Callable[[ClusterImage], Value],
        part: Callable[[ClusterImage], object] = lambda image: image.topics,
    ) -> None:
        self._compute = compute
        self._part = part
        self._seen: object = None
        self._value: Value | None = None

    def __call__(self, image: ClusterImage) -> Value:
        """Return the value for ``image``."""
        part = self._part(image)
        if self._value is None or part is not self._seen:
            self._value, self._seen = self._compute(image), part
        return self._value


class PerTopic(Generic[Value]):
    """Value of each topic, computed again for the topics that have changed. Callers must not change
    one.
    """

    def __init__(self, compute: Callable[[TopicImage], Value]) -> None:
        self._compute = compute
        self._topics: Mapping[str, TopicImage] = {}
        self._values: dict[str, Value] = {}

    def __call__(self, image: ClusterImage) -> Mapping[str, Value]:
        """Return the value of every topic of ``image`` by name."""
        if image.topics is not self._topics:
            before, values = self._topics, self._values
            self._values = {
                name: values[name] if before.get(name) is topic else self._compute(topic)
                for name, topic in image.topics.items()
            }
            self._topics = image.topics
        return self._values


sorted_names: Final = PerImage(lambda image: sorted(image.topics))
"""Sorted names of all topics of an image."""
