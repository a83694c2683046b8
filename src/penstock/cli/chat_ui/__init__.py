"""What `penstock chat` is made of.

| file | does |
|---|---|
| `run.py` | finds the gateway and the model; a dialogue on a terminal, one answer in a pipe |
| `caller.py` | asks a gateway, another one or its own, on a thread with a loop |
| `answer.py` | one answer: bytes → events as they come, and at the end what is `Told` of it |
| `till.py` | what an answer has cost |
| `conversation.py` | what was said so far, as the next request and as a file |
| `screen.py`, `wrap.py` | shows an answer while it comes, and the quiet line behind it |
| `prompt.py` | reads what the user types: lines, several lines, history, completion |
| `session.py` | the dialogue: questions, answers, commands |
| `advice.py` | what to do next, by what went wrong |
"""
