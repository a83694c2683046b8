"""What Penstock raises when its caller, not a provider, is at fault.

    PenstockError
    ├── UnknownDialectError     no dialect of that name: choose one of those the message lists
    └── ClosedReaderError       bytes were fed after close(): make a new reader for a new stream

Provider bytes never raise. They become events: a `Repair` where the defect was tolerated, a `Fault` where it was not.
"""


class PenstockError(Exception):
    """The root of everything that Penstock raises on purpose."""


class UnknownDialectError(PenstockError, LookupError):
    """There is no dialect of that name."""


class ClosedReaderError(PenstockError):
    """The stream was already closed."""
