"""The API of Ollama itself, `/api/chat`."""
