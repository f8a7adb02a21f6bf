"""The interactive section of the report: a curve, moved by its parameters, beside cross-entropy."""
