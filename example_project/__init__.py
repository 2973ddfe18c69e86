"""A small shop that publishes, delays, retries and buries messages as a real one would."""
