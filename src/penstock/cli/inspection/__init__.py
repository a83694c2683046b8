"""What `penstock inspect` and `penstock lint` have in common: read a stream, locate and report its defects."""
