"""Duties of the administration outlive their internal errors."""

from controller.admin.service import keep
from virtual_time import run_virtual


def test_a_duty_begins_again_after_an_internal_error() -> None:
    begun: list[int] = []

    async def duty() -> None:
        begun.append(len(begun))
        if len(begun) < 3:
            raise ExceptionGroup("of a task group", [ValueError("a bug")])

    run_virtual(keep(duty))
    assert begun == [0, 1, 2]
