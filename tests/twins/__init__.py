"""Plain Python twins of the compiled core: slow, obvious, and compared with it on random graphs."""
