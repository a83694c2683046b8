"""Long work of a command: with the lowest priority, and ended by Ctrl-C."""

import os
import signal
import sys
import threading

import pytest

from penstock.cli.background import in_background


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it is the priority of the process")
def test_only_the_work_has_the_lowest_priority() -> None:
    before = os.getpriority(os.PRIO_PROCESS, 0)
    assert in_background(lambda _: os.getpriority(os.PRIO_PROCESS, 0)) == min(19, before + 19)
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


def test_ctrl_c_ends_the_work_and_waits_for_it() -> None:
    main, ended = threading.main_thread().ident, []
    assert main is not None

    def work(ending: threading.Event) -> None:
        signal.pthread_kill(main, signal.SIGINT)
        ended.append(ending.wait(60))

    with pytest.raises(KeyboardInterrupt):
        in_background(work)
    assert ended == [True]


def test_an_error_of_the_work_is_raised() -> None:
    def work(_: threading.Event) -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        in_background(work)
