"""The Gemini dialect: `generateContent` and `streamGenerateContent`."""
