"""The calls in progress of one process, and their text, for the live view of the admin page."""
