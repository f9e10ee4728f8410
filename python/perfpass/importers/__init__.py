"""Model in, OpGraph out: one module per source, `load` chooses."""
