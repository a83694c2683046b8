"""Request ids: unique, and all in the same format."""

import re
import time
from itertools import islice

from penstock.serve.responses import new_request_id, request_ids


def test_every_request_has_a_name_of_its_own_that_begins_with_its_second() -> None:
    before = int(time.time())
    names = [*islice(request_ids(), 1_000), *islice(request_ids(), 1_000), new_request_id()]
    after = int(time.time())
    assert len(set(names)) == 2_001
    assert all(re.fullmatch(r"req_[0-9a-f]{24}", name) for name in names)
    assert all(before <= int(name[4:12], 16) <= after for name in names)
