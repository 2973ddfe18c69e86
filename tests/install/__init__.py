"""What users install: a wheel, in environments of its own."""
