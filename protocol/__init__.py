"""The protocol of airlock, sans I/O: the wire types, the codec, and both sides of a pipe.

Imports the standard library's pure modules and msgspec, and nothing else: no file,
clock, task or random number is reached from here. ``messages`` has what is said,
``connection`` who may say it when, ``limits`` how much of it, ``adapter`` a copy of the
agent's side that needs only an interpreter.
"""
