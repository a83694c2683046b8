"""The hub: events, requests and what both are made of, in no provider's terms."""
