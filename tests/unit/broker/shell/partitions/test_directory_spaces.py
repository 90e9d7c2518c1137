"""Space of devices: measured in threads, once for all that wait for it."""

import asyncio
import threading
from pathlib import Path

import pytest
from broker.shell.partitions.directory_spaces import UNKNOWN, DirectorySpaces, Space
from waiting import until

SPACE = Space(1_000, 10)


class Devices:
    """Devices of which ``/hangs`` does not answer before it is let go."""

    def __init__(self) -> None:
        self.lets_go = threading.Event()
        self.measured: list[str] = []

    def measure(self, path: str) -> Space:
        self.measured.append(path)
        if path == "/hangs":
            self.lets_go.wait()
        return SPACE


def test_a_device_that_hangs_keeps_one_thread_and_holds_up_no_other() -> None:
    async def main() -> None:
        devices = Devices()
        spaces = DirectorySpaces(devices.measure)
        async with asyncio.TaskGroup() as tasks:
            try:
                waiting = [tasks.create_task(spaces.of("/hangs")) for _ in range(100)]
                await until(lambda: devices.measured == ["/hangs"])
                assert await spaces.of("/other") == SPACE
                waiting.pop().cancel()
                await asyncio.sleep(0)
                assert not any(one.done() for one in waiting)
            finally:
                devices.lets_go.set()
        assert {one.result() for one in waiting} == {SPACE}
        assert devices.measured == ["/hangs", "/other"]
        await spaces.of("/hangs")
        assert devices.measured == ["/hangs", "/other", "/hangs"]

    asyncio.run(main())


@pytest.mark.parametrize("name", [".", "gone"])
def test_a_directory_that_is_gone_has_no_known_space(tmp_path: Path, name: str) -> None:
    space = asyncio.run(DirectorySpaces().of(str(tmp_path / name)))
    assert (space == UNKNOWN) == (name == "gone")
    assert space.usable_bytes <= space.total_bytes
