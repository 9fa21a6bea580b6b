"""What an attempt leaves behind: the ledger, the artifacts, and how they are verified."""
