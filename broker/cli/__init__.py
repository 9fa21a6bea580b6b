"""The command ``airlock``: arguments to calls, results to the terminal, errors to exit codes."""
