"""Registered recipes: the closed list of commands, and the running of one of them."""
