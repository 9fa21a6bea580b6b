"""One attempt of one agent: the gate, the pipe, the clocks, the end."""
