"""Black-box conformance suites for what speaks the protocol. Imports protocol, never broker."""
