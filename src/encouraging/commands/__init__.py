"""What the command line does, one file per command; ``cli/`` has only the words and flags."""
