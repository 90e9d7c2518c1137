"""A broker that takes no times of requests: ``python -m bench.unmetered``.

It is the broker itself without the clock readings and histograms of each request. Counters remain:
they are additions within the statements that do the work.
"""

from typing import Any

from broker.process import main
from broker.shell.request_times import RequestTimes
from tidemark.cli.dev.cluster import DevCluster
from tidemark.cli.dev.layout import Member


class UnmeteredCluster(DevCluster):
    """Its brokers take no times."""

    def _argv(self, member: Member) -> list[str]:
        argv = super()._argv(member)
        if member.kind == "broker":
            argv[argv.index("-m") + 1] = "bench.unmetered"
        return argv


def _take_no_times() -> None:
    begin = RequestTimes.__init__

    def without_clock(times: RequestTimes, *args: Any, **named: Any) -> None:
        begin(times, *args, **named)
        times.now_s = lambda: 0.0

    def nothing(times: RequestTimes, *args: Any) -> float:
        del times, args
        return 0.0

    for name, replacement in (
        ("__init__", without_clock),
        ("answered", nothing),
        ("answered_later", nothing),
    ):
        setattr(RequestTimes, name, replacement)


if __name__ == "__main__":
    _take_no_times()
    main()
