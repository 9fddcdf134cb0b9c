"""Everything to be asked of a card. Each body is one function of a device: `make test-long` tries it on the CPU."""
