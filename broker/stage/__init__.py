"""The stage: a filtered, immutable tree of a checkout, and the changes made to it."""
