"""Captures as a provider: recorded answers are played again, in any provider's style, with faults on request."""
