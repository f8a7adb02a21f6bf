"""``python -m encouraging``, which is also what torchrun starts: ``torchrun ... -m encouraging run RECIPE``."""

from .cli import main

if __name__ == "__main__":
    main()
