"""Who answers: a remote provider, or a capture; later an embedded model."""
