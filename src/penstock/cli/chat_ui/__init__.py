"""The parts of `penstock chat`.

| file | does |
|---|---|
| `run.py` | finds the gateway and the model; a dialogue on a terminal, one answer in a pipe |
| `caller.py` | sends requests to a gateway, a remote one or one in this process, from a thread with an event loop |
| `answer.py` | one answer: bytes → events as they arrive, and at the end a `ChatResult` |
| `cost.py` | the cost of an answer |
| `conversation.py` | the turns so far, as messages of the next request and as a file |
| `screen.py`, `wrap.py` | shows an answer while it streams, and a summary line after it |
| `prompt.py` | reads what the user types: lines, several lines, history, completion |
| `session.py` | the dialogue: questions, answers, commands |
| `advice.py` | what the user can do next, by error code |
"""
