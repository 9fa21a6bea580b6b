"""Split shared costs to the cent."""
