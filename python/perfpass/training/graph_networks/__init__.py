"""Graph networks that learn on classes of nodes, equal to PyTorch Geometric's layers on the whole graph."""
