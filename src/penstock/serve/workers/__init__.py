"""What the worker processes of one gateway share: requests to each other and to other gateways, memory."""
