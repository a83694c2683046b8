"""Kept content: answers that clients read again and continue by their id, and calls that the operator looks into.

| file | does |
|---|---|
| `kept_content.py` | `KeptContent`: the store's threads, and the pseudonyms of end users |
| `answer_store.py` | `AnswerStore`: where answers are kept |
| `recent_answers.py` | the `AnswerStore` in memory, which all workers of a gateway share |
| `keeper.py` | `AnswerKeeper`: what is kept of one call |
| `memory.py` | bounds the bytes of conversations in memory |
| `call_content.py` | `CallContent`: requests and answers that are kept for the operator |
| `stateful_answers.py` | the surface whose requests may continue a kept answer |
| `routes.py` | the endpoints that read and delete kept answers |
"""
