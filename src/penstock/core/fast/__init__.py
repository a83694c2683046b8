"""The fast path of same-API streams: templates, and the machine that matches them."""
