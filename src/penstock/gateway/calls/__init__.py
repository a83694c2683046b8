"""How a call is made: the choice and order of its targets, and the attempts at them."""
