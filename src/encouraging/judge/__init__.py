"""From records to verdicts: does one arm beat another over seeds? No pictures and no terminal output here."""
