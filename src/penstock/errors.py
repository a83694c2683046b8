"""What Penstock raises when its caller, not a provider, is at fault.

    PenstockError
    ├── UnknownDialectError     no dialect of that name: choose one of those the message lists
    ├── ClosedReaderError       bytes were fed after close(): make a new reader for a new stream
    ├── UnknownStyleError       no provider style of that name: choose one of those the message lists
    ├── UnknownFaultError       no such injectable fault, or not with that argument: the message lists what exists
    ├── UnknownTargetError      no provider answers to that name: write it as provider/model
    ├── CaptureError            a file is no capture, or was changed: its message names the line
    ├── WeightsError            a model's file cannot be had: the message says why, and what to do
    ├── KeyTermsError           a key cannot be made, found or changed so: the message says what to do instead
    ├── ListenError             nobody can be served at that address: the message says why
    ├── BookError               the ledger's store cannot do it now: the message says why; it may be asked again
    │   └── BookUnusableError   nor later: the store is damaged, or not ours, or newer than this version
    └── ConfigError             the configuration has mistakes: mend each of its `problems`
        └── UnreadableConfigError   its file cannot be read at all: check the path

Provider bytes never raise. They become events: a `Repair` where the defect was tolerated, a `Fault` where it was not.
"""

import errno

from msgspec import Struct

from penstock.error_codes import ErrorCode


class PenstockError(Exception):
    """The root of everything that Penstock raises on purpose."""


class UnknownDialectError(PenstockError, LookupError):
    """There is no dialect of that name."""


class ClosedReaderError(PenstockError):
    """The stream was already closed."""


class UnknownStyleError(PenstockError, LookupError):
    """No provider style has that name."""


class UnknownFaultError(PenstockError, ValueError):
    """There is no such injectable fault, or it does not take that argument."""


class UnknownTargetError(PenstockError, LookupError):
    """No provider answers to that name."""


class CaptureError(PenstockError, ValueError):
    """A capture cannot be read; `line` is where in its file."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"line {line}: {message}")
        self.line = line


class WeightsError(PenstockError):
    """The file of a model on this machine cannot be had."""


class KeyTermsError(PenstockError):
    """A key cannot be made, found or changed so. `code` says which it is to programs, `param` what was wrong."""

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
    """The gateway cannot listen where it should."""

    @classmethod
    def of(cls, error: OSError) -> "ListenError":
        """The same in words for whoever starts it: what is wrong with the address, and what to do."""
        return cls(_LISTENING.get(error.errno or 0) or error.strerror or str(error))


class Problem(Struct, frozen=True):
    """One mistake in the configuration: where it stands, and what to write instead. Never says what a secret is."""

    file: str
    line: int | None
    key: str
    message: str

    def __str__(self) -> str:
        """As compilers and editors write it: `file:line: key: message`."""
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return ": ".join(part for part in (place, self.key, self.message) if part)


class BookError(PenstockError):
    """The ledger's store cannot do it now: it is full, locked or gone."""


class BookUnusableError(BookError):
    """The ledger's store cannot be used: it is damaged, or something else, or made by a newer version."""


class ConfigError(PenstockError):
    """The configuration has mistakes; all of them are in `problems`."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


class UnreadableConfigError(ConfigError):
    """The file of the configuration cannot be read at all."""
