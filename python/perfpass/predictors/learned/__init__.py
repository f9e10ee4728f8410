"""What learning leaves behind: artefacts, packed trees, arrays, intervals, components."""
