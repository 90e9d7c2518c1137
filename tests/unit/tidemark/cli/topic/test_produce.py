"""``tidemark topic produce``: what it reads its lines from."""

import asyncio
import os
import threading
from pathlib import Path
from typing import IO

import pytest
from tidemark.cli.topic.lines import LineSource
from tidemark.cli.topic.produce import line_chunks


def lines_of(raw: IO[bytes]) -> list[bytes]:
    async def read() -> list[bytes]:
        source = LineSource(raw, raw, None)
        return [line async for chunk in line_chunks(source, b"\n") for line in chunk]

    return asyncio.run(read())


@pytest.mark.feature("AD67")
def test_stdin_that_is_no_file_and_no_pipe_is_read() -> None:
    # cron and systemd start commands with it.
    with Path(os.devnull).open("rb") as nothing:
        assert lines_of(nothing) == []


@pytest.mark.feature("AD67")
def test_lines_of_a_pipe_are_read_as_they_come() -> None:
    ours, theirs = os.pipe()

    def write() -> None:
        os.write(theirs, b"a\nb")
        os.close(theirs)

    writer = threading.Thread(target=write)
    with os.fdopen(ours, "rb") as pipe:
        writer.start()
        assert lines_of(pipe) == [b"a", b"b"]
        writer.join()
