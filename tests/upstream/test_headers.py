"""The headers of an answer, as its receiver sees them."""

from penstock.http.headers import Headers

FIELDS = {
    b"Content-Type": b"text/html",
    b"X-Content-Encoding": b"no",
    b"SERVER": b"caf\xe9",
    b"x-a": b"",
    b"X-A": b"2",
}
READ = {"content-type": "text/html", "x-content-encoding": "no", "server": "café", "x-a": "2"}


def test_names_are_in_lower_case_and_the_last_value_counts() -> None:
    assert dict(Headers(FIELDS)) == READ
    assert len(Headers(FIELDS)) == len(READ)


def test_only_what_is_there_is_there() -> None:
    headers = Headers(FIELDS)
    assert all(name in headers for name in READ)
    for name in ("content-encoding", "Content-Type", "content", "type\nx", "server\nx-a", "é", ""):
        assert name not in headers
        assert headers.get(name, "none") == "none"
    assert headers["content-type"] == headers.get("content-type") == "text/html"
    assert "content-type" not in Headers({})


def test_what_comes_later_is_not_among_them() -> None:
    fields = {b"A": b"1"}
    headers = Headers(fields)
    fields[b"Trailer"] = b"2"
    assert "trailer" not in headers
    fields.clear()
    assert dict(headers) == {"a": "1"}
