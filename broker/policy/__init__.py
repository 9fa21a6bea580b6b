"""The policy gate's own knowledge: labels, conversions, decisions. Pure; it performs nothing."""
