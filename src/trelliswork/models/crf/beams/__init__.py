"""CRF training within beams and with label n-grams of higher order."""
