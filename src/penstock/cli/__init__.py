"""The commands. `main.py` lists them and imports only the one asked for."""
