"""JSON: typed getters for foreign values, and members edited in place."""
