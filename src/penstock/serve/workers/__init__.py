"""What the worker processes of one gateway share: live calls, the text of a call, requests to each other, memory."""
