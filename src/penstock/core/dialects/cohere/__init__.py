"""The API of Cohere, version 2: `/v2/chat`."""
