"""Kept answers: clients read them again, delete them, and continue them by their id.

| file | does |
|---|---|
| `keeper.py` | `AnswerKeeper`: the store's threads, and what is kept of one call |
| `stateful_answers.py` | the surface whose requests may continue a kept answer |
| `routes.py` | the endpoints that read and delete kept answers |
"""
