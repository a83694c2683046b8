"""Kept answers: clients read them again, delete them, and continue them by their id.

| file | does |
|---|---|
| `kept_content.py` | `KeptContent`: the store's threads, and the pseudonyms of end users |
| `keeper.py` | `AnswerKeeper`: what is kept of one call |
| `memory.py` | bounds the bytes of conversations in memory |
| `stateful_answers.py` | the surface whose requests may continue a kept answer |
| `routes.py` | the endpoints that read and delete kept answers |
"""
