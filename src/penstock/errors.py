"""The exceptions that Penstock raises when its caller, not a provider, is at fault.

    PenstockError
    ├── UnknownDialectError     no dialect of that name: choose one of those the message lists
    ├── ClosedReaderError       bytes were fed after close(): make a new reader for a new stream
    ├── UnknownStyleError       no provider style of that name: choose one of those the message lists
    ├── UnknownFaultError       no such injectable fault, or not with that argument: the message lists what exists
    ├── UnknownTargetError      no provider serves that name: write it as provider/model
    ├── CaptureError            a file is not a capture, or was changed: its message names the line
    ├── WeightsError            a model's file cannot be downloaded or opened: the message says what to do
    ├── AdminError              a command or a request of the admin API cannot be carried out: the message says why
    ├── ListenError             the gateway cannot listen at that address: the message says why
    ├── BookError               the ledger's store fails for now: the message says why; retry later
    │   ├── SlowQueryError      a query took too long: narrow its time range or its filter
    │   └── BookUnusableError   it fails for good: the store is damaged, not a ledger, or of another version
    │       ├── OldBookError    it is of an earlier version, which a gateway migrates at its start
    │       └── EmptyBookError  no gateway has used it yet: a gateway creates its tables at its start
    └── ConfigError             the configuration has mistakes: fix each of its `problems`
        └── UnreadableConfigError   its file cannot be read at all: check the path

A provider's bytes never raise an exception. They become events: a `Repair` if a defect was tolerated, else a `Fault`.
"""

import errno

from msgspec import Struct

from penstock.error_codes import ErrorCode


class PenstockError(Exception):
    """The base class of all exceptions that Penstock raises on purpose."""


class UnknownDialectError(PenstockError, LookupError):
    """There is no dialect of that name."""


class ClosedReaderError(PenstockError):
    """The stream was already closed."""


class UnknownStyleError(PenstockError, LookupError):
    """No provider style has that name."""


class UnknownFaultError(PenstockError, ValueError):
    """There is no such injectable fault, or it does not take that argument."""


class UnknownTargetError(PenstockError, LookupError):
    """No provider serves that name."""


class CaptureError(PenstockError, ValueError):
    """A capture cannot be read; `line` is the line of its file."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"line {line}: {message}")
        self.line = line


class WeightsError(PenstockError):
    """The file of a local model cannot be downloaded or opened."""


class AdminError(PenstockError):
    """A command or a request of the admin API cannot be carried out: a value is invalid, or a key, a team or an entry
    does not exist. `code` is for programs; `param` is the name of the wrong value."""

    def __init__(self, message: str, *, code: ErrorCode = "invalid_key_terms", param: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.param = param


_LISTENING = {
    errno.EADDRINUSE: "the port is in use by another program; choose another with --port",
    errno.EACCES: "you may not listen on this port; choose one above 1023 with --port",
    errno.EADDRNOTAVAIL: "this machine has no such address; choose another with --host",
}


class ListenError(PenstockError):
    """The gateway cannot listen at its address."""

    @classmethod
    def of(cls, error: OSError) -> "ListenError":
        """The error with a message for the operator: what is wrong with the address, and what to do."""
        return cls(_LISTENING.get(error.errno or 0) or error.strerror or str(error))


class Problem(Struct, frozen=True):
    """One mistake in the configuration: its place, and what to write instead. It never contains a secret."""

    file: str
    line: int | None
    key: str
    message: str

    def __str__(self) -> str:
        """The format of compilers and editors: `file:line: key: message`."""
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return ": ".join(part for part in (place, self.key, self.message) if part)


class BookError(PenstockError):
    """The ledger's store fails for now: it is full, locked or unreachable."""


class SlowQueryError(BookError):
    """A query of the ledger took longer than its limit: ask for less."""


class BookUnusableError(BookError):
    """The ledger's store cannot be used: it is damaged, not a ledger, or of another version."""


class OldBookError(BookUnusableError):
    """The ledger was made by an earlier version, and is only read. A gateway migrates it at its start."""


class EmptyBookError(BookUnusableError):
    """The database has no ledger yet, and is only read. A gateway creates the ledger at its start."""


class ConfigError(PenstockError):
    """The configuration has mistakes; all of them are in `problems`."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


class UnreadableConfigError(ConfigError):
    """The configuration file cannot be read at all."""
