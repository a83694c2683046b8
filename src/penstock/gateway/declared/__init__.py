"""Declared administration: the teams and keys that a file says there should be, and the plan that makes it so."""
