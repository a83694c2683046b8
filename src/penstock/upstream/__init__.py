"""Who answers: a remote provider, later an embedded model or a capture."""
