"""The processes of a run: who each of them is, what they tell each other, and what becomes of all when one is lost."""
