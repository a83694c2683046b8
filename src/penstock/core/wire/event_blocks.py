"""EventBlocks: divides the bytes of a client's event stream into whole events, however they were written.

An event ends with a blank line. A block of comments only, such as a heartbeat, is no event: a client that remembers the
id of the last event would read it as one without data.
"""

import re

# Two line ends in a row, each of them "\r\n", "\n" or "\r". The groups are atomic, so that "\r\n" is never two.
_BLANK_LINE = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_COMMENTS = re.compile(rb"(?::[^\r\n]*(?:\r\n|\n|\r)+)+")
_LINE_ENDS = b"\r\n"


class EventBlocks:
    """The events of one stream. `feed` takes bytes as they were written, `close` what is left at the end."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The events that are complete now, each with its blank line."""
        data = self._rest + data
        events, start = [], 0
        for blank in _BLANK_LINE.finditer(data, max(len(self._rest) - 3, 0)):
            if blank.end() == len(data) and data.endswith(b"\r"):
                break  # "\n" may follow, which belongs to this line end
            block = data[start : blank.end()].lstrip(_LINE_ENDS)
            if block and not _COMMENTS.fullmatch(block):
                events.append(block)
            start = blank.end()
        self._rest = data[start:]
        return events

    def close(self) -> list[bytes]:
        """The last event, if its blank line is missing."""
        rest, self._rest = self._rest.strip(_LINE_ENDS), b""
        return [] if not rest or _COMMENTS.fullmatch(rest + b"\n") else [rest + b"\n\n"]
