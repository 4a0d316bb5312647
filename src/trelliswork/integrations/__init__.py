"""Our models inside other software: layers for torch, components for spaCy, scorers for scikit-learn."""
