"""The fast path: read a healthy stream by comparing bytes instead of parsing it, and still produce its events.

Nearly all events of a healthy stream are text deltas, and most of their bytes are the same in each event. A *template*
(`templates.py`) holds these bytes. A *matcher* (`matcher.py`) compares the next event with them, and takes its text.
Every other event takes the slow path (`core/slow_path.py`): framing, JSON, the dialect's frame reader, the grammar.
`StreamReader` (`core/stream.py`) decides between the two: its modes are the states of this machine. Both paths produce
the same events, the same completion and the same accounting. The rest of this text is the complete argument for that.

**What is learned.** A template is learned from an event that the slow path has read, found healthy, and turned into
exactly one `TextDelta` or `ReasoningDelta`. The event has one `data:` line, perhaps an `event:` line before it, and the
line ends that the dialect's clients read. `learn_template` cuts its bytes into literals and *slots*. One slot is the
text. The dialect's `TextFormat` names the others. *Padding* is a string without meaning, which some providers add to
hide the length of the text from eavesdroppers. *Spaces* before the last bracket are what other providers add for that
purpose. A *counter* is a number that grows by one with each event. A *report* of the usage so far has *counts*.

**How it is proved: by substitution.** `learn_template` puts another value into each slot, and decodes the result. The
JSON must be that of the original event, changed at these places and nowhere else. It follows that each slot is inside
the JSON string (or is the JSON number) that it is taken for, and that the literals determine everything else. The
literals are ASCII. The values in slots are restricted:

- A text is not empty and is valid UTF-8. It has no control character and no line end that only some clients know, so
  all clients see the same lines. If it has a quote or a backslash, the strict decoder of the slow path must accept it
  as one JSON string. That refuses quotes that are not escaped, so the text cannot end its string; and lone halves of
  surrogate pairs, which the frame reader joins.
- Padding is alphanumeric. Spaces are any number of spaces.
- A counter is the previous number plus one.
- A count is an integer from 1 to 999,999,999. Zero, other numbers, names and strings in a report are literals. So a
  report that matches has the same members as the learned one, of the same types.

Hence an event that matches has the JSON of the learned event, except for the values in its slots. By supplying a
`TextFormat`, the dialect promises that its frame reader makes one text delta of such JSON, and that reading a text
delta leaves the frame reader in a state in which it reads the next one in the same way. An event that could change that
state is not a text delta. So it does not match, and takes the slow path. After every read of the slow path the matcher
is dropped, and learned again only if that read ended with healthy text.

**Why the HTTP parser may be skipped.** `http/upstream_connection.py` passes a read to the fast path only if its bytes
are exactly one whole HTTP chunk (size in plain hexadecimal, payload, CR LF), and only while the parser is between two
chunks. A parser that skips a whole chunk is still between two chunks. The payload is compared as above, and the chunk
is written to the client as it arrived (`gateway/relay/streamed_answer.py`). A read that is not one whole chunk, or does
not match, goes to the parser. The parser has then missed nothing but whole chunks. No event spans two payloads: a
payload matches only if it begins and ends as the template does.

**How the slow path catches up.** The slow path has not seen the events that the matcher took. It needs to know their
number, their bytes and lines (for the positions of later repairs), and what the frame reader would know of them
(`FrameReader.follow_text`): their choice and kind, the last event, which has the last padding, number and report, and
in some dialects their text. `SlowPath.skip` takes all that over, before the slow path reads on. An opening is read
again from its bytes, and its events are discarded: the slow path is then in the state in which it would be.

**Clients of another dialect.** The events do not depend on the client's dialect, nor does the way they are read. The
client's writer gets each text by itself, and writes it from a template of its own (`StreamWriter.text_writer`): the
frame of a delta of the open block, in which only the text varies, and perhaps a number. The result is what the writer
makes of the delta: the last event that was written is a delta of the same kind and block, so all that such a delta
takes with it (the start of a block, extras, a signature) is written; and until another matcher is learned, nothing but
such deltas and heartbeats is. A dialect keeps that promise in `AnswerWriter.text_writer`, or has none.

**Dialects that repeat the text.** Some dialects send a text once more as a whole behind its deltas, and number all
events. There, three more things must hold.

1. *The frame reader knows the text.* It compares the whole with the deltas. It gets the texts when the slow path
   catches up. They belong to the text of the last delta that the slow path read, because the matcher was learned from
   it.
2. *The writer knows the text*, because it writes the whole. It gets the text of each forwarded delta.
3. *A delta is forwarded only if the writer would write the same*: the same members with the same values, in any order,
   apart from padding. `StreamWriter.accepts` compares them once for each matcher. From then on each delta that matches
   is one number higher, and so is the writer's next number. They stay equal until the writer writes something. That is
   either an event of the slow path, after which there is another matcher, or a heartbeat, which ends the agreement.
   Without agreement, deltas still take the fast path, and are written as for a client of another dialect.

**Dialects that report usage with the text.** The frame reader merges reports member by member, the later value wins,
and so does the grammar. All events that a matcher takes have the members of one that the slow path read before. So the
last of them alone leaves both in the same state as all of them: the frame reader reads only its report. A report that
matches is never blank, and never needs a repair, because that depends on zeros and types only, which are literals. An
event with text and a report may also begin the answer or a block, which does not happen again for the same JSON. If it
begins a block, it is not forwarded, unless it is the first of the answer, so that the writer knows of the block. The
last message mostly has text, too. It is forwarded only if the body ends with the same read (`if last`): it is one text
delta as above, and the finish of the only choice, after which the grammar calls the answer completed; and its report
has all that was reported before. Otherwise its text is written at once, and the finish when the bytes end.

**Openings** (`openings.py`). The first events of two answers of one target differ only in an id, a time or counts,
perhaps a fingerprint, and padding. The text deltas of the two answers differ in the same values, or (`in_deltas` is
False) not at all. `OpeningTemplate` is learned from one answer whose first events were followed by text deltas only,
and in which the slow path would accept a trailer, by the same proof for all these events. If the first read has the
usual ending too, the slow path gets it as two reads, so that it learns of such answers; how bytes are split changes no
event. The values of its slots match narrow patterns (no quote, no backslash; digits only for a time or a count). Spaces
before the last bracket of an event are outside of all strings. Each target has its own, so that the bytes of one
provider are never compared with those of another.

**Trailers.** By rules 3 and 4 of `core/hub/grammar.py`, the grammar emits a finish and a usage report when the bytes
end. So reading them late changes nothing. A `StreamTrailer` accepts exactly this: one finish without content, for the
only choice, with a reason that needs no repair; perhaps one usage report, which needs neither repair nor merging; then
the sentinel. For that input the grammar yields `Finish`, `UsageReport`, `End`, and `StreamTrailer.events` returns the
same. If anything else arrives, the slow path reads the buffered bytes together with it, as if all had arrived at once.
A trailer may begin only where text is expected: one choice, no tool calls, no fault, no usage so far. In a dialect that
numbers blocks, it begins with the end of the only open block, and must have the finish in the same read: clients see
the end of a block at once. Where usage is reported before, the trailer merges it by the functions of the slow path, or
knows that the merged counts are the last ones that are not zero (`anthropic_messages/trailer.py`).

**Unstreamed answers.** A client of the provider's own dialect gets the body as it came if `TextFormat.read_body`
accepts it. The typed decoders there know every member that they accept, by name and type. They refuse an unknown
member, JSON that the strict decoder of the slow path refuses, and each value of which the slow path would make a
repair, a loss, a fault or another value: an empty or repeated id, a finish that does not fit the calls, arguments that
are not JSON, counts that are not sound, no content. So for a body that they accept the slow path reads one frame (blank
lines, which it would take for borders between events, are refused, too) and emits its text, finishes and usage without
a repair; and what the writer makes of that has the same members with the same values, but for members that are null or
empty, and the places of calls. Where clients must get a member with another value (`PlainBody.changes`, and what the
gateway sets in kept responses), only that member is written anew (`JsonMembers.edited`). What is booked (`PlainBody`)
is what the relay would have noted of these events. They come when the body ends, so it may be held until then: an
unstreamed answer commits only when it is complete. If the attempt ends in another way, if the answer is refused, if it
would reach a limit, or if an operator watches it, the reader gets the same pieces, and the slow path decides. A body
that does not begin as an object, or a piece that ends a line, cannot wait: it may be one of several events.
`tests/whole_answers.py` checks that both paths record the same and that clients read the same answer.

`tests/invariants.py` checks the rest for every stream that the property tests and the fuzzer produce, and for
clients of every dialect; the corpus tests for every recorded stream, and `tests/dialects/` for a second dialect.
"""
