"""Converts the configuration and the keys of LiteLLM's proxy, with a finding for every field."""
