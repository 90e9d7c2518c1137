from tidemark.model.errors import ErrorCode
from txn_coordinator.core.marker_inputs import Answered, Fenced, Forget


def test_inputs_and_effects_are_values() -> None:
    assert Answered(1, ((ErrorCode.NONE,),)) == Answered(1, ((ErrorCode.NONE,),))
    assert Answered(1, ()) != Answered(2, ())
    assert {Forget(3), Forget(3), Fenced(3, 9)} == {Forget(3), Fenced(3, 9)}
