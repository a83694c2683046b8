"""Errors of providers: how they are written, and what their words mean."""
