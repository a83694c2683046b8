"""The OpenAI chat-completions dialect: `POST /v1/chat/completions`, as an API to call and as one to offer."""
