"""What a person looks at: figures (and, built on them, the report)."""
