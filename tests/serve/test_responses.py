"""The names of requests: one for each, of the same kind however they are made, and another one every time."""

import re
from itertools import islice

from penstock.serve.responses import new_request_id, request_ids


def test_every_request_has_a_name_of_its_own() -> None:
    names = [*islice(request_ids(), 1_000), *islice(request_ids(), 1_000), new_request_id()]
    assert len(set(names)) == 2_001
    assert all(re.fullmatch(r"req_[0-9a-f]{24}", name) for name in names)
