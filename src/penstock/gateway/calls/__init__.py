"""One call: the request, the choice and order of its targets, the attempts, and its failures."""
