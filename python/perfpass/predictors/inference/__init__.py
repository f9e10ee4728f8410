"""A run of any graph: time from a roofline and trees, memory, power."""
