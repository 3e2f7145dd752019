"""What is replaced before a text goes somewhere, the keys, and the vault of originals."""
