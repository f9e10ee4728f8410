"""A language model generating: one offline batch, and its phases (prompt, tokens) one by one."""
