"""Sends to the log what Python and other packages would print on standard error, so that all output has one format.

These are exceptions that the event loop reports (of a callback or a task), uncaught exceptions of threads, exceptions
that Python cannot raise (`sys.unraisablehook`), warnings, and `logging` records of level WARNING or above.
"""

import asyncio
import logging
import sys
import threading
from typing import Any

from penstock.serve.telemetry.log import Log, where
from penstock.serve.telemetry.log_lines import Level


def divert(log: Log, loop: asyncio.AbstractEventLoop) -> None:
    """Install the handlers in this process."""

    def in_loop(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        log.write(_joined(context.get("message") or "an error in the event loop", error), "error")

    def in_thread(args: threading.ExceptHookArgs) -> None:
        name = args.thread.name if args.thread is not None else "a thread"
        log.write(_joined(f"the thread {name} has failed", args.exc_value), "error")

    def unraisable(args: "sys.UnraisableHookArgs") -> None:
        log.write(_joined(args.err_msg or "an exception was ignored", args.exc_value), "error")

    loop.set_exception_handler(in_loop)
    threading.excepthook = in_thread
    sys.unraisablehook = unraisable
    logging.captureWarnings(capture=True)
    logging.getLogger().addHandler(_Handler(log))


class _Handler(logging.Handler):
    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        level: Level = "error" if record.levelno >= logging.ERROR else "warning"
        self._log.write(_joined(f"{record.name}: {record.getMessage()}", error), level)


def _joined(message: str, error: BaseException | None) -> str:
    return f"{message}: {where(error)}" if error is not None else message
