"""Material cards: the text with which a finite-element solver takes a law and its parameters. NumPy only."""
