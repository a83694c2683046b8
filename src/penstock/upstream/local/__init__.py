"""A model on this machine, run by llama.cpp in a child process."""
