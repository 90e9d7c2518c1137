"""Values that are kept until the topics of the image change."""

from controller.admin.per_image import PerImage, PerTopic
from tidemark.model.ids import TopicId
from tidemark.model.metadata import ClusterImage, TopicImage


def image(**settings: str) -> ClusterImage:
    topics = {
        name: TopicImage(name, TopicId(bytes(16)), {"retention.ms": value}, ())
        for name, value in settings.items()
    }
    return ClusterImage(cluster_id="here", topics=topics)


def test_a_value_is_computed_once_for_an_image_and_again_for_the_next() -> None:
    asked: list[ClusterImage] = []

    def compute(one: ClusterImage) -> list[str]:
        asked.append(one)
        return sorted(one.topics)

    names = PerImage(compute)
    first, second = image(b="1", a="1"), image(c="1")
    assert [names(first), names(first), names(second)] == [["a", "b"], ["a", "b"], ["c"]]
    assert asked == [first, second]


def test_a_topic_that_has_not_changed_keeps_its_value() -> None:
    asked: list[str] = []

    def compute(one: TopicImage) -> str:
        asked.append(one.name)
        return one.configs["retention.ms"]

    values = PerTopic(compute)
    before = image(kept="1", changed="1", gone="1")
    assert values(before) == {"kept": "1", "changed": "1", "gone": "1"}
    topics = {"kept": before.topics["kept"], **image(changed="2", new="3").topics}
    after = values(ClusterImage(cluster_id="here", topics=topics))
    assert after == {"kept": "1", "changed": "2", "new": "3"}
    assert asked == ["kept", "changed", "gone", "changed", "new"]
