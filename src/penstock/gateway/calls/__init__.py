"""One call: what was asked, which targets may answer it, and why it failed."""
