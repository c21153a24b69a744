"""What one file contributes to an answer about many: small frames, merged in any order, finished once."""
