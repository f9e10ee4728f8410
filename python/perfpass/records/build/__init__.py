"""Programs that distil what the repository carries from the public sources."""
