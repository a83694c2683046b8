"""The handlers of the routes of the admin API. A plain function queries the book, in a thread; a coroutine runs in the
event loop. Each returns the body of the response."""
