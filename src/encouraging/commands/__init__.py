"""What the command line does, one file per command; ``cli.py`` has only the words and flags."""
