"""What a key may spend and use: accounts, admission, reservations."""
