from controller.core.effects import Reply, TopicResult
from tidemark.model.errors import ErrorCode
from tidemark.model.metadata import START_OF_FEED


def test_effects_are_values() -> None:
    assert Reply(1, result=(TopicResult("a"),)) == Reply(1, result=(TopicResult("a"),))


def test_a_reply_is_an_answer_without_error_unless_it_says_so() -> None:
    assert (Reply(1).error, Reply(1).position) == (ErrorCode.NONE, START_OF_FEED)
