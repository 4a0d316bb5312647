"""Files and objects of other software: n-gram models, CRF models, data frames, datasets and documents."""
