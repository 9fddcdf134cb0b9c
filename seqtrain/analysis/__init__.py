"""What models cost, remember and see: measured, beside what theory says of them."""
