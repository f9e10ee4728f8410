"""The roofline of this machine, measured and drawn."""
