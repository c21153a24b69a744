"""XLA's profiles: `profile` is the loader, `planes` reads the planes of devices and hosts as events."""
