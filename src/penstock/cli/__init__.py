"""The commands. `main.py` lists them and imports only the requested one."""
