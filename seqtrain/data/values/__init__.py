"""Series of real values: tables of them, their scaling, and what models are given of them."""
